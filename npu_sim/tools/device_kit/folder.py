"""Writing of a kit: a folder with the calls and the script that runs them on a device."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from npu_sim.cores import Profile, load_profile
from npu_sim.files.reading import lines_of, open_plain
from npu_sim.files.writing import write_text
from npu_sim.framework.arguments import Values
from npu_sim.framework.operator import Operator
from npu_sim.framework.planning import fixed_call
from npu_sim.language import Text, calls_text, translated
from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators import plan
from npu_sim.operators.loading import load_operator
from npu_sim.plans.answers import Printed, Progress
from npu_sim.questions.preflight_lines import MalformedLineError, call_of, operator_inputs, parse
from npu_sim.status import AclnnError, UsageError, without_internal_frames
from npu_sim.tools.device_kit import run_on_device
from npu_sim.tools.device_kit.choice import KitCall, chosen_calls
from npu_sim.tools.device_kit.results import MOST_ELEMENTS
from npu_sim.tools.device_kit.run_on_device import CALLS, SCHEMA, digest_of

SCRIPT = "run_on_device.py"
README = "README.md"
CALLS_FILE = "calls.jsonl"
MIB = 1 << 20


@dataclass(frozen=True, repr=False)
class Kit(Printed):
    """A written kit.

    Attributes
    ----------
    folder
        Folder with ``calls.jsonl``, ``run_on_device.py`` and ``README.md``.
    soc, release
        Device that it is made for.
    calls
        Number of calls by operator.
    bytes
        Bytes of all inputs, which the device makes.
    left_out
        Given calls that torch does not reach, and why.
    """

    folder: str
    soc: str
    release: str
    calls: Mapping[str, int]
    bytes: int
    left_out: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the answer as plain data, the form ``--json`` prints."""
        return {**vars(self), "calls": dict(self.calls), "left_out": list(self.left_out)}


@without_internal_frames
def kit(
    calls: str | Path | None = None,
    *,
    soc: str | None = None,
    release: str | None = None,
    out: str | Path = "kit",
    progress: Progress | None = None,
) -> Kit:
    """Write a folder of calls, and a script that computes them on a device with torch_npu.

    :func:`npu_sim.check_kit` judges the results that the script writes into the folder,
    :func:`npu_sim.rehearse_kit` those of a device that npu_sim plays.

    Parameters
    ----------
    calls
        File of calls, such as ``npu-sim record`` writes; None for a choice of small calls that take
        every path of every operator that the SoC has and torch_npu reaches.
    soc
        SoC of the device, such as Ascend910B3 or 910B3; Ascend910B1 when left out.
    release
        Release of the product's software on it; the default when left out.
    out
        Folder to write; new, or empty.
    progress
        Called with the stage and the fraction done.

    Raises
    ------
    UsageError
        For unknown names, a file that cannot be read, a folder that is not empty, and when no call
        can be run by torch_npu.
    """
    report = progress or (lambda stage, fraction: None)
    profile = load_profile(None, soc, release)
    folder = _new_folder(Path(out))
    left_out: list[str] = []
    if calls is None:
        chosen = chosen_calls(profile, report)
    else:
        chosen = list(_given_calls(Path(calls), left_out))
    if not chosen:
        raise UsageError(
            "calls",
            "{soc}: no call that torch_npu reaches",
            "operators: {names}",
            soc=profile.soc,
            names=", ".join(CALLS),
        )
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
        "once in each mode under the profiler. A line is printed after each call. The largest "
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
        mib=-(-max(sizes, default=0) // MIB),
    )
    return translated(text)


def _new_folder(folder: Path) -> Path:
    """Return a folder that can be written; raises UsageError for one that is in use."""
    try:
        is_free = not folder.exists() or not any(folder.iterdir())
        if is_free and folder.parent.is_dir():
            return folder
    except OSError as error:
        raise UsageError("out", "{folder}: {error}", "", folder=folder, error=error) from None
    raise UsageError(
        "out",
        "{folder} is not an empty folder",
        "name a new folder, in a folder that exists",
        folder=folder,
    )


def _given_calls(path: Path, left_out: list[str]) -> Iterator[KitCall]:
    """Yield the calls of a file that torch_npu reaches; equal ones once."""
    seen = set()
    with open_plain("calls", path, "a file of calls, one JSON object a line") as file:
        for number, line in enumerate(lines_of(file), 1):
            try:
                values = parse(line)
                if "op" not in values and "schema" in values:  # the head of a recording
                    continue
                call = call_of(values)
                operator: Operator = load_operator(values["op"])
                if operator.name not in CALLS or call.kernel:
                    raise MalformedLineError(
                        Text("torch_npu does not call {operator}", operator=values["op"])
                    )
                arguments = operator_inputs(operator, values["inputs"])
                fixed = fixed_call(operator, arguments)
            except (MalformedLineError, UsageError) as error:
                left_out.append(Text("line {number}: {error}", number=number, error=error))
                continue
            specs = {name: fixed.arguments().get(name) for name in operator.input_names}
            given = {
                **arguments,
                **{name: spec for name, spec in specs.items() if spec is not None},
            }
            found = KitCall(operator, fixed.values, given, frozenset())
            elements = sum(prod(tensor["shape"]) for tensor in inputs_of(number, found).values())
            if elements > MOST_ELEMENTS:
                left_out.append(
                    Text(
                        "line {number}: its inputs have {elements} elements, more than {most}",
                        number=number,
                        elements=elements,
                        most=MOST_ELEMENTS,
                    )
                )
            elif str(given) not in seen:
                seen.add(str(given))
                yield found


def line_of(number: int, call: KitCall, profile: Profile) -> dict[str, Any]:
    """Return the line of a call in ``calls.jsonl``."""
    operator = call.operator
    return {
        "number": number,
        "operator": operator.name,
        "inputs": inputs_of(number, call),
        "derived": {
            name: str(call.arguments[name])
            for name in CALLS[operator.name].derived
            if call.arguments.get(name) is not None
        },
        "attributes": {
            attribute.name: call.arguments.get(attribute.name, attribute.default)
            for attribute in operator.attributes
        },
        "planned": [planned(call, profile, mode) for mode in (False, True)],
    }


def inputs_of(number: int, call: KitCall) -> dict[str, Any]:
    """Return how the device makes the inputs of a call: shape, dtype, seed and kind of values."""
    how, sizes = CALLS[call.operator.name], call.values
    tensors: list[tuple[str, TensorSpec, Any]] = [
        (name, spec, how.values.get(name))
        for name in call.operator.input_names
        if name not in how.derived and (spec := call.arguments.get(name)) is not None
    ]
    for name, (axes, dtype, values) in how.given.items():
        shape = tuple(int(sizes[axis]) for axis in axes.split())
        tensors.append((name, TensorSpec(shape, str(sizes.get(dtype, dtype))), values))
    return {
        name: {
            "shape": list(spec.shape),
            "dtype": spec.dtype,
            "seed": number << 8 | place,
            **_kind(values, sizes, call.special),
        }
        for place, (name, spec, values) in enumerate(tensors)
    }


def _kind(values: str | int | None, sizes: Values, special: bool) -> dict[str, Any]:
    """Return the kind of values of an input, see ``run_on_device.Call``."""
    if values is None:
        return {"values": "special" if special else "normal"}
    if values in ("permutation", "positive"):
        return {"values": values}
    return {"values": "below", "below": values if isinstance(values, int) else int(sizes[values])}


def planned(call: KitCall, profile: Profile, deterministic: bool) -> dict[str, Any]:
    """Return what is planned for a call in one mode: status, path and the cores of its kernel."""
    try:
        made = plan(
            call.operator.name, product=profile, deterministic=deterministic, **call.arguments
        )
    except AclnnError as error:
        return {"deterministic": deterministic, "status": int(error.status)}
    return {
        "deterministic": deterministic,
        "status": 0,
        "kernel": made.kernel,
        "path": str(made.path),
        "tiling_key": made.tiling_key,
        "block_dim": made.block_dim,
    }
