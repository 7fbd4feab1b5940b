"""The laboratory: what a user can see about determinism, invariance and precision on their own data."""
