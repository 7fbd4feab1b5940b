"""``python -m npu_sim``, and what ``npu-sim`` starts: the command line."""

import gc
import os
import signal
import sys

LOADED_OBJECTS = 100_000
"""So many objects are made between two searches for garbage: loading makes many, and none is
garbage."""


def main() -> None:
    """Load the command line, which takes a moment in which the user may interrupt as well, and run it."""
    gc.set_threshold(LOADED_OBJECTS)
    heard = signal.getsignal(signal.SIGINT)
    if heard is signal.default_int_handler:  # in the background interruptions are ignored
        signal.signal(signal.SIGINT, _end)
    from npu_sim.cli import main as command
    from npu_sim.cli.interruption import INTERRUPTED, INTERRUPTION

    if heard is signal.default_int_handler:
        signal.signal(signal.SIGINT, INTERRUPTION.interrupt)
    INTERRUPTION.watch()
    try:
        command()
    except SystemExit as end:
        if (
            end.code == INTERRUPTED
        ):  # at once: Python's own way out waits for threads, and may end by the signal instead
            os._exit(INTERRUPTED)
        raise
    except Exception:
        if INTERRUPTION.heard:  # some libraries make errors of their own of it
            INTERRUPTION.say()
            os._exit(INTERRUPTED)
        raise
    finally:
        gc.freeze()  # Python would look through everything once more before the system takes it back at once


def _end(*_: object) -> None:
    print("interrupted", file=sys.stderr, flush=True)
    os._exit(128 + signal.SIGINT)


if __name__ == "__main__":
    main()
