"""Measurements: speed, and how well the statistics hold."""
