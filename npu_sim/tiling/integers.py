"""Integer helpers of the planners; plain functions that Numba compiles as they are."""


def ceil_div(a: int, b: int) -> int:
    """Return the quotient ``a / b`` rounded up."""
    return (a + b - 1) // b


def align(a: int, b: int) -> int:
    """Return the smallest multiple of ``b`` that is not below ``a``."""
    return (a + b - 1) // b * b


def align_down(a: int, b: int) -> int:
    """Return the largest multiple of ``b`` that is not above ``a``."""
    return a // b * b
