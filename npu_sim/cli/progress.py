"""Progress of long work on standard error."""

import sys
from collections.abc import Callable
from typing import Any

from rich.console import Console

from npu_sim.cli.interruption import INTERRUPTION
from npu_sim.language import percent_text, say, translated
from npu_sim.plans.answers import Progress


def with_progress(work: Callable[[Progress], Any]) -> Any:
    """Return ``work(report)``, showing a progress bar on standard error if that is a terminal.

    ``report(stage, fraction)`` is called with the name of a stage and the part done, 0 to 1; an
    interruption prints both.
    """
    last = "", 0.0

    def report(stage: str, fraction: float) -> None:
        nonlocal last
        last = stage, fraction
        if bar is not None:
            bar.update(task, description=translated(stage), completed=fraction)

    bar = None
    try:
        if not sys.stderr.isatty():
            return work(report)
        from rich.progress import Progress

        with Progress(console=Console(stderr=True, force_jupyter=False), transient=True) as bar:
            task = bar.add_task("", total=1.0)
            return work(report)
    except KeyboardInterrupt:
        stage, fraction = last
        if fraction:
            INTERRUPTION.report(
                say("interrupted: {stage}, {done} done", stage=stage, done=percent_text(fraction))
            )
        raise
