"""Entry point of ``npu-sim`` and ``python -m npu_sim``."""

import gc
import os
import signal
import sys

COLLECTION_THRESHOLD = 100_000
"""Allocations between two garbage collections; imports allocate many objects and free none."""


def main() -> None:
    """Run the command line; an interruption while modules are imported is handled as well."""
    gc.set_threshold(COLLECTION_THRESHOLD)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed: nothing is printed; files get other descriptors
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  (open as long as the process)
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # a background process ignores interruptions
        signal.signal(signal.SIGINT, _end)
    from npu_sim.cli import main as command
    from npu_sim.cli.interruption import INTERRUPTED, INTERRUPTION

    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, INTERRUPTION.interrupt)
    INTERRUPTION.watch()
    try:
        command()
    except SystemExit as end:
        if end.code == INTERRUPTED:
            # A normal exit would wait for threads, and might end by the signal instead.
            os._exit(INTERRUPTED)
        raise
    except Exception:
        if INTERRUPTION.raised:  # some libraries turn it into an error of their own
            INTERRUPTION.report()
            os._exit(INTERRUPTED)
        raise
    finally:
        gc.freeze()  # skip the last collection: the system frees all memory at exit


def _end(*_: object) -> None:
    print("interrupted", file=sys.stderr, flush=True)
    os._exit(128 + signal.SIGINT)


if __name__ == "__main__":
    main()
