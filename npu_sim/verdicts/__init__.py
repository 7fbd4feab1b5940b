"""Verdicts on measured results: whether a product can have produced their bits."""
