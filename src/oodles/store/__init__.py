"""The folder of a study: what is written, by whom, and how it is read back."""
