"""Language models: found, loaded, tokenised for, and scored exactly."""
