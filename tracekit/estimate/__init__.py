"""Estimates of a step that never ran on a GPU: by formula, and traced. Nothing is printed here."""
