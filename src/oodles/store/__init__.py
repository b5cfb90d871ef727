"""The folder of a study: its files, their writers and their readers."""
