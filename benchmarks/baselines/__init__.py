"""What scoring is compared with. None of these imports oodles."""
