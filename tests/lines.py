"""One line of a file of calls, checked without the file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from npu_sim.cores import DEFAULT_PRODUCT
from npu_sim.questions.preflight_checks import Checked, check_call, malformed
from npu_sim.questions.preflight_lines import MalformedLineError, call_of, parse, profile_of_line
from npu_sim.status import UsageError


def check_line(
    line: str | bytes,
    number: int = 1,
    product: str = DEFAULT_PRODUCT,
    directory: Path | None = None,
) -> Checked:
    """Return the result of one line; its outcome is ``malformed`` if it is not a call."""
    values: Mapping[str, Any] = {}
    try:
        values = parse(line)
        return check_call(call_of(values), number, profile_of_line(values, product, directory))
    except (MalformedLineError, UsageError) as error:
        return malformed(values, number, error)
