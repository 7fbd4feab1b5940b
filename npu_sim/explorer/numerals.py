"""Whole numbers as people write sizes: ``4096``, ``4K``, ``7168*2``, ``1e4``."""

import re
from fractions import Fraction

from npu_sim.status import UsageError, shown

UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
"""What a letter after a number multiplies it with: 4K tokens are 4096."""
FACTOR = re.compile(
    r"\s*(\d{1,20}(?:\.\d{1,20})?(?:e\d{1,2})?)\s*([kmg]?)\s*", re.ASCII | re.IGNORECASE
)
LONGEST = 100
"""Characters of a number; more is none."""
EXAMPLES = "a whole number, such as 4096, 4K (which is 4096), 7168*2 or 1e4"


def whole_number(name: str, text: str) -> int:
    """Return the number that a text says: digits, powers of ten and the letters K, M, G of 1024, with * between factors.

    Raises
    ------
    UsageError
        For a text that says none.
    """
    unsigned = text.strip().removeprefix("-")
    factors = (
        [FACTOR.fullmatch(part) for part in unsigned.split("*")] if len(text) <= LONGEST else [None]
    )
    product = Fraction(1)
    for factor in factors:
        if factor is None:
            raise _error(name, text)
        product *= Fraction(factor[1]) * UNITS[factor[2].lower()]
    if product.denominator != 1:
        raise _error(name, text)
    return -product.numerator if text.strip().startswith("-") else product.numerator


def _error(name: str, text: str) -> UsageError:
    return UsageError(name, f"{name} = {shown(text)} is not a whole number", EXAMPLES)
