"""One run, from its first step to its last: train, evaluate, keep."""
