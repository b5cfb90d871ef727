"""Data: which sets are tested, their examples, and how a prompt reads."""
