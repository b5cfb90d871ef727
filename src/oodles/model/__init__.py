"""Language models: resolve names, load weights, tokenise prompts, and score answers exactly."""
