"""A study: its file, its grid of runs, and who makes them."""
