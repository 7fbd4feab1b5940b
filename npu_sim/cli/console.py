"""Printing to the terminal, as wide as it is, and to a pipe, one line a record."""

import os
import sys

from rich.console import Console, RenderableType

from npu_sim.show.layout import UNLIMITED, print_to, stack


def show(*parts: RenderableType, error: bool = False) -> None:
    """Print an answer, or an error on standard error: as wide as the terminal or ``COLUMNS``, and not wrapped in a pipe or a file."""
    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else UNLIMITED
    print_to(Console(highlight=False, width=width, stderr=error), stack(*parts))
