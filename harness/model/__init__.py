"""Frozen values, findings and errors: the vocabulary every other layer speaks. Imports nothing of the project."""
