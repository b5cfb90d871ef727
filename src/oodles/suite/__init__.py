"""Data: test sets, their examples, and the patterns that turn examples into prompts."""
