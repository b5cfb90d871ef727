"""Scores that other tools wrote -> the long table: one file per format, found by a registry that users can extend."""
