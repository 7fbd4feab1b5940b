"""Printing to the terminal, as wide as it is, and to a pipe, one line a record."""

import os
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console, RenderableType

from npu_sim.show.layout import UNLIMITED, lines_table, print_to, stack


def show(*parts: RenderableType) -> None:
    """Print an answer: wrapped at the terminal's width or at ``COLUMNS``; not at all into a pipe or a file."""
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else UNLIMITED
    print_to(Console(highlight=False, width=width), stack(*parts))


def show_lines(headline: str, lines: Iterable[tuple[Any, ...]]) -> None:
    """Print labelled lines under a headline."""
    from npu_sim.show.layout import Paragraph

    show(Paragraph(headline, "bold green"), "", lines_table(lines))
