"""Codes that the planners of several operators share."""

FLOAT_DTYPES = ("float32", "float16", "bfloat16")
"""Words of every dtype axis; codes are positions."""
FLOAT32 = FLOAT_DTYPES.index("float32")
DOCUMENTED = 0
"""Code of ``limits = documented``."""
