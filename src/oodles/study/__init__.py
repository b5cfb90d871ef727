"""A study: its file, its grid of runs, and the processes that execute them."""
