"""A kit whose device npu_sim plays: its owner sees the judged result before touching a machine."""

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import npu_sim
from npu_sim.files.reading import read_limited
from npu_sim.files.writing import write_text
from npu_sim.plans.answers import Progress, required
from npu_sim.status import UsageError, without_internal_frames
from npu_sim.tools.device_kit import run_on_device
from npu_sim.tools.device_kit.answers import KitCheck
from npu_sim.tools.device_kit.check import check_kit
from npu_sim.tools.device_kit.folder import SCRIPT
from npu_sim.tools.device_kit.lines import CALLS_FILE
from npu_sim.tools.device_kit.results import HINT, MOST_BYTES, Head, read_head
from npu_sim.tools.device_kit.ttk.folder import CASES_FILE

DONE = re.compile(r"(\d+) of (\d+) ")
"""Beginning of the line that the script prints after a call."""


@without_internal_frames
def rehearse_kit(folder: str | Path, *, progress: Progress | None = None) -> KitCheck:
    """Run the script of a kit on a device that npu_sim plays, and judge the results.

    Nothing is written into the folder: what npu_sim computes is no evidence. Times are the lower
    bounds. The script is that of this version of npu_sim, and needs PyTorch.

    Parameters
    ----------
    folder
        Folder of the kit.
    progress
        Called with the stage and the fraction done.

    Raises
    ------
    UsageError
        When the folder is not a kit, PyTorch is not installed, or the script fails.
    """
    place, report = Path(folder), progress or (lambda stage, fraction: None)
    if (place / CASES_FILE).exists():
        raise UsageError(
            "folder",
            "{folder} is for the operator test kit, which npu_sim does not play",
            "npu-sim kit without --ttk writes a folder that can be rehearsed",
            folder=folder,
        )
    read_head(Head, place / "kit.json")
    required("torch")
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary)
        for name in ("kit.json", CALLS_FILE):
            content = read_limited("folder", place / name, MOST_BYTES, HINT)
            write_text(copy / name, content.decode("utf-8", "replace"))
        write_text(copy / SCRIPT, Path(run_on_device.__file__).read_text(encoding="utf-8"))
        _play(copy, report)
        answer = check_kit(copy, progress=progress)
    return replace(answer, folder=str(folder), is_rehearsal=True)


def _play(folder: Path, report: Progress) -> None:
    """Run the script of a kit on the simulated device; raises UsageError where it fails."""
    paths = (str(Path(npu_sim.__file__).parents[1]), os.environ.get("PYTHONPATH", ""))
    module = "npu_sim.tools.device_kit.simulated_device"
    with subprocess.Popen(
        [sys.executable, "-m", module, "--runs", "1"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        line = ""
        for line in process.stdout or ():
            if found := DONE.match(line):
                report("playing the device", int(found[1]) / max(int(found[2]), 1) * 0.99)
    if process.returncode:
        raise UsageError(
            "folder", "the script of the kit failed: {line}", HINT, line=line.strip() or "no output"
        )
