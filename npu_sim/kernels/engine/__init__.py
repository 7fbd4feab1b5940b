"""Compilation, caching and threads of kernels, regardless of what they compute."""
