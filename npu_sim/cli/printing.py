"""Text and JSON on standard output, and errors on standard error."""

import json
import os
import sys
from collections.abc import Mapping
from math import isfinite
from typing import Any

from rich.console import Console, RenderableType

from npu_sim.files.writing import schema
from npu_sim.language import visible
from npu_sim.show.forms.layout import UNLIMITED, print_to, stack


def print_text(*parts: RenderableType, error: bool = False) -> None:
    """Print an answer on standard output, or an error on standard error.

    Text is as wide as the terminal or ``COLUMNS``; in a pipe or a file lines are not wrapped.
    """
    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else UNLIMITED
    console = Console(highlight=False, width=width, stderr=error, force_jupyter=False)
    print_to(console, stack(*parts))


def discard_output() -> None:
    """Discard what standard output could not take; the last flush would raise the error again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_json(form: str, data: Mapping[str, Any]) -> None:
    """Print a JSON document; ``form`` is its name in :mod:`npu_sim.files.writing`."""
    content = {"schema": schema(form), **_finite(data)}
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    print(visible(text, lines=True))


def _finite(value: Any) -> Any:
    """Return plain data with infinities and NaN as text: JSON has no form for them."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not isfinite(value) else value
