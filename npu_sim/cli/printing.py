"""Text and JSON on standard output, and errors on standard error."""

import json
import os
import sys
from collections.abc import Mapping
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


def print_json(form: str, data: Mapping[str, Any]) -> None:
    """Print a JSON document; ``form`` is its name in :mod:`npu_sim.files.writing`."""
    text = json.dumps({"schema": schema(form), **data}, indent=2, ensure_ascii=False)
    print(visible(text, lines=True))
