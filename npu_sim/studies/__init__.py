"""Studies of determinism, invariance and precision on the user's own data."""
