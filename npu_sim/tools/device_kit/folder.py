"""Writing of a kit: a folder with the calls and the script that runs them on a device."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from npu_sim.cores import Profile, load_profile
from npu_sim.files.writing import write_text
from npu_sim.language import Text, calls_text, translated
from npu_sim.numbers.formats import TensorSpec
from npu_sim.plans.answers import Progress
from npu_sim.status import UsageError, without_internal_frames
from npu_sim.tools.device_kit import run_on_device
from npu_sim.tools.device_kit.answers import Kit
from npu_sim.tools.device_kit.choice import chosen_calls
from npu_sim.tools.device_kit.lines import (
    CALLS_FILE,
    MIB,
    README,
    given_calls,
    line_of,
    new_folder,
    no_calls,
)
from npu_sim.tools.device_kit.run_on_device import CALLS, RUNS, SCHEMA, digest_of, runs_of_a_call
from npu_sim.tools.device_kit.ttk.folder import write_cases

SCRIPT = "run_on_device.py"
OUT = "kit"
"""Folder that is written when none is named."""
OTHER_CALL = "torch_npu does not call {operator}"


@without_internal_frames
def kit(
    calls: str | Path | None = None,
    *,
    soc: str | None = None,
    release: str | None = None,
    out: str | Path = OUT,
    ttk: str | Path | None = None,
    progress: Progress | None = None,
) -> Kit:
    """Write a folder of calls, and a script that computes them on a device with torch_npu.

    :func:`npu_sim.check_kit` judges the results that the script writes into the folder,
    :func:`npu_sim.rehearse_kit` those of a device that npu_sim plays. With ``ttk`` the folder is
    for the vendor's operator test kit, which needs a toolkit and no device.

    Parameters
    ----------
    calls
        File of calls, such as ``npu-sim record`` writes; None for a choice of small calls that take
        every path of every operator that the SoC has and torch_npu reaches.
    soc
        SoC of the device, such as Ascend910B3 or 910B3; when left out Ascend910B1, with ttk
        Ascend950PR_9589.
    release
        Release of the product's software on it; the default when left out.
    out
        Folder to write; new, or empty.
    ttk
        Folder to write in place of out: at most 100 cases of Ascend 950 for the vendor's operator
        test kit, which runs the vendor's kernels in its simulator and compares their bits.
    progress
        Called with the stage and the fraction done.

    Raises
    ------
    UsageError
        For unknown names, a file that cannot be read, a folder that is not empty, and when no call
        can be run by torch_npu, or by the operator test kit.
    """
    report = progress or (lambda stage, fraction: None)
    file = None if calls is None else Path(calls)
    if ttk is None:
        return write_calls(file, load_profile(None, soc, release), out, report)
    if str(out) != OUT:
        raise UsageError(
            "ttk",
            "{first} and {second} exclude each other",
            "leave one of them out",
            first="out",
            second="ttk",
        )
    return write_cases(file, soc, release, Path(ttk), report)


def write_calls(file: Path | None, profile: Profile, out: str | Path, report: Progress) -> Kit:
    """Write a kit for torch_npu: the calls of a file, or a choice of small ones."""
    folder = new_folder(Path(out))
    left_out: list[str] = []
    if file is None:
        chosen = chosen_calls(profile, report)
    else:
        chosen = list(given_calls(file, CALLS, OTHER_CALL, left_out))
    if not chosen:
        problem = Text("{soc}: no call that torch_npu reaches", soc=profile.soc)
        raise no_calls(problem, CALLS, left_out)
    lines = [line_of(number, call, profile) for number, call in enumerate(chosen, 1)]
    folder.mkdir(exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    identity = digest_of(f"{profile.soc} {profile.release}\n{text}".encode())
    head = {"schema": SCHEMA, "soc": profile.soc, "release": profile.release, "kit": identity}
    write_text(folder / "kit.json", json.dumps(head, indent=1) + "\n")
    write_text(folder / CALLS_FILE, text)
    write_text(folder / SCRIPT, Path(run_on_device.__file__).read_text("utf-8"))
    write_text(folder / README, readme(profile, lines))
    return Kit(
        folder=str(out),
        soc=profile.soc,
        release=profile.release,
        calls=Counter(call.operator.name for call in chosen),
        bytes=sum(
            TensorSpec(tuple(tensor["shape"]), tensor["dtype"]).nbytes
            for line in lines
            for tensor in line["inputs"].values()
        ),
        left_out=tuple(left_out),
    )


def readme(profile: Profile, lines: Sequence[Mapping[str, Any]]) -> str:
    """Return what whoever runs the kit on a device has to know, in the user's language."""
    inputs = (tensor for line in lines for tensor in line["inputs"].values())
    sizes = (TensorSpec(tuple(tensor["shape"]), tensor["dtype"]).nbytes for tensor in inputs)
    text = Text(
        "# Calls for an {soc}\n"
        "\n"
        "This folder checks a simulator of Ascend NPU operators against a device. {script} "
        "computes the {calls} of calls.jsonl, and the simulator judges the results "
        "elsewhere.\n"
        "\n"
        "Run it on a machine with an {soc}, release {release} of its software, Python 3.8 or "
        "newer, numpy, torch and torch_npu:\n"
        "\n"
        "    python {script}\n"
        "\n"
        "- Every call runs three times with deterministic computation off, twice with it on, and "
        "once in each mode under the profiler: {runs} runs in all. How long they take depends on "
        "the machine: the script prints about how much time is left after each call. The largest "
        "input has {mib} MiB.\n"
        "- Stopped and started again, it goes on where it was. A call that fails is written down, "
        "and the next one runs. `--only OPERATOR` runs the calls of one operator, `--no-profile` "
        "leaves the profiler out.\n"
        "- It writes results/ and device.json into this folder and nothing elsewhere, needs no "
        "network, and records no names of hosts, users or paths; error texts of the device are "
        "recorded as they are.\n"
        "\n"
        "Then send the whole folder back, for instance as a .tar.gz file. There, "
        "`npu-sim kit --check FOLDER` judges it.\n",
        soc=profile.soc,
        release=profile.release,
        script=SCRIPT,
        calls=calls_text(len(lines)),
        runs=runs_of_a_call(RUNS, True) * len(lines),
        mib=-(-max(sizes, default=0) // MIB),
    )
    return translated(text)
