"""Where a case of ``operators.py`` spends its time, and which part of the processor is full there.

    python benchmarks/hot_loops.py "rms_norm_grad col=16384 bf16" [--seconds 4] [--cpu znver3]

Samples one thread with ``perf record``, disassembles the code that was hit, and passes its
innermost loops to LLVM's machine-code analyser. A line is a loop: its share of the samples, its
number of instructions, the cycles of one iteration as the analyser computes them with all data in
L1, and the cycles for which its busiest resources are occupied (if all of them, that is the limit).
Needs Linux, perf, objdump and llvm-mca (Debian: linux-perf binutils llvm).
"""

import argparse
import collections
import ctypes
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numba
from cases import build, select

FREQUENCY = 4000
AROUND_BYTES = 1 << 15
LEAST_SHARE = 0.03
ROUNDS = 200
JUMP = re.compile(r"(?:j[a-z]+|b\.[a-z]+|cbn?z\s+\w+,)\s+(?:0x)?([0-9a-f]+)$")
"""A jump of x86-64 or ARM64, and where it goes."""


class Line(NamedTuple):
    """An instruction: where it is, and its text for an assembler."""

    address: int
    text: str


class Loop(NamedTuple):
    """Innermost loop: its instructions, and which part of all samples fell into it."""

    lines: list[Line]
    share: float


def sampled(
    work: Callable[[], object], seconds: float, folder: Path
) -> tuple[collections.Counter[int], float]:
    """Return the samples by address, and the milliseconds of a call."""
    command = [
        "perf",
        "record",
        "-q",
        "-e",
        "cpu-clock",
        "-F",
        str(FREQUENCY),
        "-o",
        str(folder / "perf.data"),
        "-p",
        str(os.getpid()),
    ]
    recorder = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    start, calls = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        work()
        calls += 1
    taken = (time.perf_counter() - start) / calls * 1e3
    recorder.send_signal(signal.SIGINT)
    recorder.wait()
    script = ["perf", "script", "-i", str(folder / "perf.data"), "-F", "ip"]
    found = subprocess.run(script, capture_output=True, text=True, check=True).stdout.split()
    return collections.Counter(int(address, 16) for address in found), taken


def disassembled(address: int, folder: Path) -> list[Line]:
    """Return the instructions around an address of this process."""
    for mapping in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(end, 16) for end in mapping.split()[0].split("-"))
        if first <= address < last:
            break
    else:
        return []
    first, last = max(first, address - AROUND_BYTES), min(last, address + AROUND_BYTES)
    (folder / "code").write_bytes(ctypes.string_at(first, last - first))
    machine = {"x86_64": "i386:x86-64", "aarch64": "aarch64"}[os.uname().machine]
    command = [
        "objdump",
        "-D",
        "-b",
        "binary",
        "-m",
        machine,
        f"--adjust-vma={first:#x}",
        str(folder / "code"),
    ]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = (row.split("\t") for row in listing.splitlines() if re.match(r"\s*[0-9a-f]+:\t", row))
    return [
        Line(int(row[0].strip(" :"), 16), row[2].split("#")[0].strip())
        for row in rows
        if len(row) > 2
    ]


def innermost_loops(lines: list[Line], samples: collections.Counter[int]) -> list[Loop]:
    """Return the loops without a loop in them that hold samples, those with most first."""
    places, total = (
        {line.address: position for position, line in enumerate(lines)},
        sum(samples.values()),
    )
    spans = []
    for position, line in enumerate(lines):
        jump = JUMP.match(line.text)
        start = places.get(int(jump[1], 16)) if jump else None
        if start is not None and start < position:
            spans.append((start, position))
    inner = [
        one
        for one in spans
        if not any(other != one and one[0] <= other[0] and other[1] <= one[1] for other in spans)
    ]
    loops = [
        Loop(
            lines[start : stop + 1],
            sum(samples[line.address] for line in lines[start : stop + 1]) / total,
        )
        for start, stop in inner
    ]
    return sorted(
        (loop for loop in loops if loop.share >= LEAST_SHARE), key=lambda loop: -loop.share
    )


def analysed(loop: Loop, cpu: str, folder: Path) -> tuple[float, str]:
    """Return the cycles of one iteration of a loop, and its three busiest resources."""
    body = [line.text for line in loop.lines if not JUMP.match(line.text)]
    (folder / "loop.s").write_text("\n".join(body) + "\n", encoding="utf-8")
    command = ["llvm-mca", f"-mcpu={cpu}", f"-iterations={ROUNDS}", str(folder / "loop.s")]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    cycles = int(report.split("Total Cycles:")[1].split()[0]) / ROUNDS
    names = dict(re.findall(r"\[([\d.]+)\]\s+- (\S+)", report))
    heads, values = report.split("Resource pressure per iteration:\n")[1].splitlines()[:2]
    columns = zip(re.findall(r"\[([\d.]+)\]", heads), values.split(), strict=True)
    taken = sorted(
        ((float(value), names[column]) for column, value in columns if value != "-"), reverse=True
    )
    return cycles, ", ".join(f"{name} {value:g}" for value, name in taken[:3])


def main() -> None:
    """Measure a case and print its loops as a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", help="words that the name of a case has, as operators.py prints it")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--cpu", default="native", help="processor that the analyser reckons for")
    options = parser.parse_args()
    case, *_ = select(options.case.split())
    numba.set_num_threads(1)
    problem = build(case)
    problem.run(out=problem.outs)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        samples, milliseconds = sampled(
            lambda: problem.run(out=problem.outs), options.seconds, folder
        )
        hottest, _ = samples.most_common(1)[0]
        print(
            f"{case.name}, one thread: {milliseconds:.1f} ms, "
            f"{problem.array_bytes / milliseconds / 1e6:.1f} GB/s\n"
        )
        print(
            "| loop at | samples | instructions | cycles | busiest |\n"
            "| --- | --- | --- | --- | --- |"
        )
        for loop in innermost_loops(disassembled(hottest, folder), samples):
            cycles, fullest = analysed(loop, options.cpu, folder)
            first = loop.lines[0].address - hottest
            print(
                f"| {first:+#x} | {loop.share:.0%} | {len(loop.lines)} | {cycles:.1f} | {fullest} |"
            )


if __name__ == "__main__":
    main()
