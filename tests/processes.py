"""Programs that tests run in a separate Python: other thread counts, or no compiler."""

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALL_THREADS = """
from npu_sim.kernels.engine import compile
compile.ALONE_BYTES = compile.ALONE_OPERATIONS = 0
"""
"""Preamble of a program in which even small work is split over all threads."""


def printed_by(program, *arguments, seconds=None, **environment):
    """Run a program from the repository root; return its stdout.

    Parameters
    ----------
    program
        Its text.
    arguments
        Its arguments.
    seconds
        How long it may run.
    """
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def words_printed_by(program, *arguments, **environment):
    """Run a program from the repository root; return the words of its stdout."""
    return printed_by(program, *arguments, **environment).split()


def interruptible():
    """Handle interruptions again: a test run in the background inherits that they are ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
