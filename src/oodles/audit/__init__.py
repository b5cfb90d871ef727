"""Is the data what the suite says, and does the model see what the pattern says?"""
