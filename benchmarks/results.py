"""Measure everything, and append a section for this machine to RESULTS.md.

    python benchmarks/results.py [--quick] [--only small bandwidth]

A later run replaces the section part by part: the output of each script replaces the text between
``<!-- NAME -->`` and ``<!-- /NAME -->``. The file is written after every part. Ctrl-C ends the run
with what the script measured so far.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from measure import machine

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "RESULTS.md"


class Part(NamedTuple):
    """A script with its options; its output is a table, text, or too long for the page."""

    command: tuple[str, ...]
    printed: str = "table"


PARTS = {
    "operators": Part(("operators.py", "--json", "your_machine.json")),
    "avx2": Part(("operators.py", "--avx2", "--quick", "--json", "your_machine_avx2.json")),
    "small": Part(("small_calls.py",)),
    "bandwidth": Part(("bandwidth.py",)),
    "start_up": Part(("start_up.py",)),
    "scaling": Part(("scaling.py", "--plot", "your_scaling.svg"), "too long"),
    "sweep": Part(("sweep.py",), "text"),
}


SECTION = """
## Your machine

<!-- machine -->
<!-- /machine -->

<!-- operators -->
<!-- /operators -->

The same machine, all libraries restricted to AVX2, the quick form:

<!-- avx2 -->
<!-- /avx2 -->

Small calls and plans, microseconds; the last column shows how fast the machine is:

<!-- small -->
<!-- /small -->

Memory, arrays of 512 MiB:

<!-- bandwidth -->
<!-- /bandwidth -->

Start-up, from `import numpy` to the last result of five operators on tiny inputs:

<!-- start_up -->
<!-- /start_up -->

Sweeps of 10 million shapes each, full records in memory:

<!-- sweep -->
<!-- /sweep -->

![Time and extra memory against rows, columns and threads](your_scaling.svg)
"""
HEADING = SECTION.split("\n")[1]


def with_section(page: str) -> str:
    """Return a page with the section of this machine, empty if the page had none."""
    return page if HEADING in page.splitlines() else page + SECTION


def machine_sentence() -> str:
    """Return a sentence that names the machine and the versions."""
    here = machine()
    versions = ", ".join(
        f"{name} {here[name]}"
        for name in ("python", "numpy", "numba", "torch", "jax")
        if here[name]
    )
    return f"Measured on {here['threads']} threads of {here['processor']}; {versions}."


def filled(text: str, part: str, printed: str) -> str:
    """Return a page with the output of a script filled in.

    Raises
    ------
    ValueError
        When the page has no place of that name.
    """
    begin, end = f"<!-- {part} -->\n", f"<!-- /{part} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(
            f"there is no place for {part}: {begin.strip()} and {end} on lines of their own"
        )
    return f"{before}{begin}{printed.strip()}\n{end}{after}"


def fill(part: str, printed: str) -> None:
    """Fill the output of a script into the page."""
    whole, page = RESULTS.with_suffix(".new"), with_section(RESULTS.read_text(encoding="utf-8"))
    whole.write_text(filled(page, part, printed), encoding="utf-8")
    whole.replace(RESULTS)


def printed_by(command: list[str]) -> tuple[str, int]:
    """Run a script and return what it printed, and its exit status; Ctrl-C reaches it too."""
    with subprocess.Popen(command, cwd=FOLDER, stdout=subprocess.PIPE, text=True) as process:
        while True:
            try:
                return process.communicate()[0], process.returncode
            except KeyboardInterrupt:
                continue  # it prints what it has


def main() -> None:
    """Run the scripts of the chosen parts, one after the other, and fill the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="parts to measure"
    )
    parser.add_argument(
        "--quick", action="store_true", help="the quick form of operators.py, as AVX2 always has"
    )
    options = parser.parse_args()
    fill("machine", machine_sentence())
    for name in options.only:
        part = PARTS[name]
        command = [sys.executable, *part.command]
        if options.quick and "operators.py" in part.command:
            command.append("--quick")
        print(f"{name}: {' '.join(command[1:])}", file=sys.stderr, flush=True)
        printed, status = printed_by(command)
        if printed and part.printed != "too long":
            fill(name, f"```text\n{printed.strip()}\n```" if part.printed == "text" else printed)
        if status:
            sys.exit(status)


if __name__ == "__main__":
    main()
