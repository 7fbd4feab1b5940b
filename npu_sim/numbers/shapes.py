"""Shapes as users write them: ``4096x512``."""

import re
from collections.abc import Sequence

from npu_sim.language import Text
from npu_sim.status import shown

LONGEST_SIZE = 100
"""Digits of one size."""
_BETWEEN_SIZES = re.compile("[xX×*,]")


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape as users write it."""
    return "x".join(map(str, shape)) or "scalar"


def parse_shape(text: str) -> tuple[int, ...]:
    """Read a shape as users write it; an empty text and ``scalar`` have rank 0.

    Raises ValueError for a size that is not an integer of 0 or more.
    """
    if text in ("", "scalar"):
        return ()
    parts = list(map(str.strip, _BETWEEN_SIZES.split(text)))
    for part in parts:
        if not (part.isascii() and part.isdecimal()):
            raise ValueError(Text("size {part} is not an integer >= 0", part=shown(part)))
        if len(part) > LONGEST_SIZE:
            message = Text(
                "a size of {part_count} digits is more than any tensor has", part_count=len(part)
            )
            raise ValueError(message)
    return tuple(map(int, parts))
