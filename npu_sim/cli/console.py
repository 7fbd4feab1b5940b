"""Printing to the terminal, as wide as it is, and to a pipe, one line a record."""

import os
import sys

from rich.console import Console, RenderableType

from npu_sim.show.layout import UNLIMITED, print_to, stack


def show(*parts: RenderableType) -> None:
    """Print an answer: wrapped at the terminal's width or at ``COLUMNS``; not at all into a pipe or a file."""
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else UNLIMITED
    print_to(Console(highlight=False, width=width), stack(*parts))
