"""Parsing of integers in the notations of sizes: ``4096``, ``4K``, ``7168*2``, ``1e4``."""

import re
from fractions import Fraction

from npu_sim.language import Text
from npu_sim.status import UsageError, shown

UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
"""Factor of a letter after a number: 4K is 4096."""
FACTOR = re.compile(
    r"\s*(\d{1,20}(?:\.\d{1,20})?(?:e\d{1,2})?)\s*([kmg]?)\s*", re.ASCII | re.IGNORECASE
)
MAX_CHARACTERS = 100
"""Longest text that is read as an integer."""
EXAMPLES = "an integer, such as 4096, 4K (4096), 7168*2 or 1e4"


def whole_number(name: str, text: str) -> int:
    """Return the integer that a text denotes.

    Factors are separated by ``*``; each is a decimal number, optionally with an exponent and with
    K, M or G for powers of 1024.

    Raises UsageError if the text denotes no integer.
    """
    unsigned = text.strip().removeprefix("-")
    factors = (
        [FACTOR.fullmatch(part) for part in unsigned.split("*")]
        if len(text) <= MAX_CHARACTERS
        else [None]
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
    return UsageError(
        name, Text("{name} = {text} is not an integer", name=name, text=shown(text)), EXAMPLES
    )
