"""A single run: train, evaluate, store."""
