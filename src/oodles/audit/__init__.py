"""Check that the data match the suite, and that the model sees the prompts that the pattern defines."""
