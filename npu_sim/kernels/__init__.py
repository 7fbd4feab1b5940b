"""The arithmetic of each operator: Numba only, arrays in, arrays out, no validation, no policy."""
