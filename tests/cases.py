"""Cases of parametrised tests, of which the README's command runs a part."""

from collections.abc import Iterable
from typing import Any

import pytest


def every(number: int, cases: Iterable[Any]) -> list[Any]:
    """Return the first case and each of that number after it as they are, the others as long."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=pytest.mark.long if position % number else (),
        )
        for position, case in enumerate(cases)
    ]
