"""Judging what a device computed: bits by ``verify``, status and cores by plans, time by bounds."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from npu_sim.cores import Profile, all_socs, load_profile
from npu_sim.files.reading import read_limited
from npu_sim.files.tensors import read_tensor
from npu_sim.files.writing import schema, write_into
from npu_sim.framework.operator import Operator
from npu_sim.language import Text
from npu_sim.numbers.formats import numpy_dtype
from npu_sim.operators import plan
from npu_sim.operators.loading import load_operator
from npu_sim.operators.timelines import is_timed, timeline
from npu_sim.plans.answers import Printed, Progress
from npu_sim.plans.model import Plan
from npu_sim.status import AclnnError, UsageError, without_internal_frames
from npu_sim.timelines.model import VectorEstimate
from npu_sim.tools.device_kit.folder import CALLS_FILE
from npu_sim.tools.device_kit.run_on_device import SCHEMA, checksum, make_input
from npu_sim.tools.profiles.device_profile import MeasuredLaunch, read_device_profile
from npu_sim.verdicts.verify import verify

MOST_BYTES = 64 << 20
"""Largest JSON file that is read."""
STATUS = re.compile(r"\b([135]6[0-9]{4})\b")
"""A status of ``aclnn`` in an error text."""
CONFIRMED = ("equal", "reachable")
EVIDENCE_FILE = "evidence.jsonl"
HINT = "the folder that npu-sim kit wrote, with results/ and device.json from the device"


@dataclass(frozen=True)
class ModeCheck:
    """One call in one mode.

    Attributes
    ----------
    number, operator, deterministic
        The call.
    arguments
        The call as text.
    path, kernel, tiling_key
        What was planned; empty for a refused call.
    verdict
        ``equal``, ``reachable``, ``undecided`` or ``unreachable``: the worst of all runs;
        ``not run`` for an error, ``not judged`` where nothing can be said.
    status, planned_status
        Status of the device, None for an error without one; and of the plan.
    impossible
        Number of impossible elements by output.
    cores, planned_cores
        Cores of the planned kernel, None if not measured.
    us, bound_us, estimate_error
        Measured time of the planned kernel, its lower bound, and the relative error of the estimate
        of its vector pipe; None without.
    findings
        Sentences on what is not as planned.
    results
        SHA-256 of the outputs by name, of the first run.
    """

    number: int
    operator: str
    deterministic: bool
    arguments: str
    path: str = ""
    kernel: str = ""
    tiling_key: int | None = None
    verdict: str = "not judged"
    status: int | None = 0
    planned_status: int = 0
    impossible: Mapping[str, int] | None = None
    cores: int | None = None
    planned_cores: int | None = None
    us: float | None = None
    bound_us: float | None = None
    estimate_error: float | None = None
    findings: tuple[str, ...] = ()
    results: Mapping[str, str] | None = None

    @property
    def outcome(self) -> str:
        """``confirmed``, ``contradicted``, or ``open`` where the device decides neither."""
        is_faster = self.us is not None and self.bound_us is not None and self.us < self.bound_us
        if self.verdict == "not judged" or self.status is None:
            return "open"
        if (
            self.status != self.planned_status
            or self.cores not in (None, self.planned_cores)
            or self.verdict == "unreachable"
            or is_faster
        ):
            return "contradicted"
        return "open" if self.verdict == "undecided" else "confirmed"

    def as_dict(self) -> dict[str, Any]:
        """Return the check as plain data."""
        return {**vars(self), "findings": list(self.findings)}


@dataclass(frozen=True, repr=False)
class KitCheck(Printed):
    """What the results of a device show.

    Attributes
    ----------
    folder
        Folder of the kit.
    soc, release
        Device that the kit was made for.
    device
        SoC and versions that the script recorded.
    modes
        Every call in every mode.
    missing
        Numbers of the calls without results.
    findings
        Sentences that concern the whole device.
    """

    folder: str
    soc: str
    release: str
    device: Mapping[str, str]
    modes: tuple[ModeCheck, ...]
    missing: tuple[int, ...] = ()
    findings: tuple[str, ...] = ()

    @cached_property
    def counts(self) -> dict[str, int]:
        """Number of calls and modes by verdict."""
        names = ("equal", "reachable", "undecided", "unreachable", "not run", "not judged")
        return {name: sum(mode.verdict == name for mode in self.modes) for name in names}

    @property
    def contradicted(self) -> bool:
        """Whether anything is not as planned."""
        return bool(self.findings or self.missing) or any(mode.findings for mode in self.modes)

    def as_dict(self) -> dict[str, Any]:
        """Return the answer as plain data, the form ``--json`` prints."""
        return {
            "folder": self.folder,
            "soc": self.soc,
            "release": self.release,
            "device": dict(self.device),
            "counts": self.counts,
            "contradicted": self.contradicted,
            "findings": list(self.findings),
            "missing": list(self.missing),
            "calls": [mode.as_dict() for mode in self.modes],
        }


@without_internal_frames
def check_kit(folder: str | Path, *, progress: Progress | None = None) -> KitCheck:
    """Judge what ``run_on_device.py`` wrote into the folder of a kit, and write ``evidence.jsonl``.

    Bits are judged as by :func:`npu_sim.verify`, status and cores by the plans, time by the bounds.

    Parameters
    ----------
    folder
        Folder of the kit.
    progress
        Called with the stage and the fraction done.

    Raises
    ------
    UsageError
        When the folder is not a kit, or has no results.
    """
    place = Path(folder)
    kit, device = _json(place / "kit.json"), _json(place / "device.json")
    if kit.get("schema") != SCHEMA or device.get("schema") != SCHEMA:
        raise UsageError(
            "folder",
            "{folder}: not a kit of this version, {schema}",
            "make a new kit with npu-sim kit",
            folder=folder,
            schema=SCHEMA,
        )
    profile = load_profile(None, str(kit["soc"]), str(kit["release"]))
    lines = _lines(place / CALLS_FILE)
    modes: list[ModeCheck] = []
    missing = []
    for done, line in enumerate(lines):
        if progress is not None:
            progress("judging results", done / len(lines))
        results = place / "results" / f"{line['number']:03d}"
        if not (results / "done.json").is_file():
            missing.append(line["number"])
            continue
        modes += JudgedCall(line, results, profile).modes()
    if not modes:
        raise UsageError(
            "folder",
            "{folder}: no results of a device",
            "run run_on_device.py of the folder on a device",
            folder=folder,
        )
    answer = KitCheck(
        folder=str(folder),
        soc=profile.soc,
        release=profile.release,
        device={name: str(value) for name, value in device.items() if name != "schema"},
        modes=tuple(modes),
        missing=tuple(missing),
        findings=tuple(_device_findings(profile, device, lines, modes)),
    )
    text = "".join(json.dumps(record) + "\n" for record in evidence_records(answer, lines))
    write_into(place, EVIDENCE_FILE, text, "check")
    return answer


def _json(path: Path) -> dict[str, Any]:
    """Return the object of a JSON file; raises UsageError for anything else."""
    try:
        value = json.loads(read_limited("folder", path, MOST_BYTES, HINT))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UsageError("folder", "{path}: not a JSON object", HINT, path=path)
    return value


def _lines(path: Path) -> list[dict[str, Any]]:
    text = read_limited("folder", path, MOST_BYTES, HINT)
    try:
        return [json.loads(line) for line in text.splitlines()]
    except (ValueError, RecursionError):
        raise UsageError("folder", "{path}: a line is not JSON", HINT, path=path) from None


def _device_findings(
    profile: Profile, device: Mapping[str, Any], lines: list[dict[str, Any]], modes: list[ModeCheck]
) -> Iterator[str]:
    """Yield what is wrong with the device as a whole: another SoC, by its name or by its cores."""
    if profile.product.soc_named(str(device.get("soc"))) != profile.soc:
        yield Text(
            "the results are of {soc}, the kit was made for {wanted}",
            soc=device.get("soc"),
            wanted=profile.soc,
        )
    measured = {
        (mode.number, mode.deterministic): mode.cores for mode in modes if mode.cores is not None
    }
    if all(mode.cores == mode.planned_cores for mode in modes if mode.cores is not None):
        return
    fitting = [
        other.soc
        for other in all_socs(profile.name)
        if other.soc != profile.soc
        and _cores(lines, other.with_release(profile.release), measured) == measured
    ]
    if fitting:
        yield Text("the cores of all kernels are those of {socs}", socs=", ".join(fitting))


def _cores(
    lines: list[dict[str, Any]], profile: Profile, wanted: Mapping[tuple[int, bool], int | None]
) -> dict[tuple[int, bool], int | None]:
    """Return the cores that calls and modes have on a SoC."""
    calls = {line["number"]: line for line in lines}
    plans = {mode: plan_or_error(calls[mode[0]], profile, mode[1]) for mode in wanted}
    return {
        mode: made.block_dim if isinstance(made, Plan) else None for mode, made in plans.items()
    }


def _arguments(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call without data."""
    operator: Operator = load_operator(line["operator"])
    return {
        **line.get("derived", {}),
        **{
            name: f"{'x'.join(map(str, tensor['shape'])) or 'scalar'}:{tensor['dtype']}"
            for name, tensor in line["inputs"].items()
            if name in operator.input_names
        },
        **line["attributes"],
    }


def plan_or_error(
    line: Mapping[str, Any], profile: Profile, deterministic: bool
) -> Plan | AclnnError:
    """Return the plan of a call, or the error with which the product refuses it."""
    try:
        return plan(
            line["operator"], product=profile, deterministic=deterministic, **_arguments(line)
        )
    except AclnnError as error:
        return error


def _status_in(error: str) -> int | None:
    """Return the status that the text of an error states; None without one."""
    found = STATUS.search(error)
    return int(found[1]) if found else None


@dataclass(frozen=True)
class JudgedCall:
    """One call of a kit with the results of a device."""

    line: Mapping[str, Any]
    folder: Path
    profile: Profile

    @cached_property
    def inputs(self) -> dict[str, np.ndarray]:
        """The inputs that the device made, and those alone."""
        return {name: make_input(tensor) for name, tensor in self.line["inputs"].items()}

    def modes(self) -> Iterator[ModeCheck]:
        """Yield the check of each mode."""
        done = _json(self.folder / "done.json")
        if "crashed" in done:
            yield self._mode(False, verdict="not run", status=None, findings=(done["crashed"],))
            return
        made = {name: checksum(array) for name, array in self.inputs.items()}
        if done.get("inputs") != made:
            finding = Text(
                "the results are of other inputs: {names}",
                names=", ".join(
                    name for name in made if done.get("inputs", {}).get(name) != made[name]
                ),
            )
            yield self._mode(False, findings=(finding,))
            return
        for mode, deterministic in zip(done["modes"], (False, True), strict=False):
            if mode.get("deterministic") is not deterministic:
                yield self._mode(
                    deterministic, findings=("the determinism switch was not set as planned",)
                )
            else:
                yield self._judged(mode, deterministic)

    def _mode(self, deterministic: bool, **fields: Any) -> ModeCheck:
        arguments = ", ".join(f"{name} {value}" for name, value in _arguments(self.line).items())
        return ModeCheck(
            self.line["number"], self.line["operator"], deterministic, arguments, **fields
        )

    def _judged(self, mode: Mapping[str, Any], deterministic: bool) -> ModeCheck:
        planned = plan_or_error(self.line, self.profile, deterministic)
        if isinstance(planned, AclnnError):
            return self._refused(mode, deterministic, int(planned.status))
        place = self.folder / ("on" if deterministic else "off")
        fields: dict[str, Any] = {
            "path": str(planned.path),
            "kernel": planned.kernel,
            "tiling_key": planned.tiling_key,
            "planned_cores": planned.block_dim,
        }
        findings: list[str] = []
        if "error" in mode:
            fields |= {"verdict": "not run", "status": _status_in(mode["error"])}
            findings.append(
                Text("expected success, the device refused it: {error}", error=mode["error"])
            )
        elif self._measure(place, planned, fields, findings):
            self._judge_bits(mode, place, deterministic, fields, findings)
        return self._mode(deterministic, findings=tuple(findings), **fields)

    def _refused(self, mode: Mapping[str, Any], deterministic: bool, status: int) -> ModeCheck:
        """Return the check of a call that is planned to be refused."""
        measured = _status_in(mode.get("error", ""))
        finding = ""
        if "error" not in mode:
            measured = 0
            finding = Text("expected a refusal with {status}, the device ran it", status=status)
        elif measured not in (None, status):
            finding = Text(
                "expected a refusal with {status}, the device gave {measured}",
                status=status,
                measured=measured,
            )
        return self._mode(
            deterministic,
            verdict="not run",
            planned_status=status,
            status=measured,
            findings=(finding,) if finding else (),
        )

    def _measure(
        self, place: Path, planned: Plan, fields: dict[str, Any], findings: list[str]
    ) -> bool:
        """Read cores and time of the planned kernel; return whether the call may be judged."""
        profile_file = place / "kernel_details.csv"
        if not profile_file.is_file() or not planned.kernel:
            return True
        launches = read_device_profile(profile_file)
        planned_kernel = [launch for launch in launches if launch.kernel == planned.kernel]
        if not planned_kernel:
            kernels = ", ".join(dict.fromkeys(launch.kernel for launch in launches))
            findings.append(
                Text(
                    "torch chose {kernels}, not {planned}: nothing is judged",
                    kernels=kernels or "no kernel",
                    planned=planned.kernel,
                )
            )
            return False
        launch = planned_kernel[-1]
        fields |= {"cores": launch.block_dim, "us": launch.duration_us}
        if launch.block_dim not in (None, planned.block_dim):
            findings.append(
                Text(
                    "{cores} cores, planned {planned}",
                    cores=launch.block_dim,
                    planned=planned.block_dim,
                )
            )
        if is_timed(planned):
            self._time(planned, launch, fields, findings)
        return True

    def _time(
        self, planned: Plan, launch: MeasuredLaunch, fields: dict[str, Any], findings: list[str]
    ) -> None:
        for bound in timeline(planned, self.profile).launches:
            if bound.kernel != launch.kernel:
                continue
            fields["bound_us"] = bound.us
            if launch.duration_us < bound.us:
                findings.append(
                    Text(
                        "{measured:.3g} us are below the bound of {bound:.3g} us",
                        measured=launch.duration_us,
                        bound=bound.us,
                    )
                )
            vector_us = launch.counter("aiv_vec_time")
            if isinstance(bound.estimate, VectorEstimate) and vector_us:
                fields["estimate_error"] = bound.estimate.vector_us / vector_us - 1

    def _judge_bits(
        self,
        mode: Mapping[str, Any],
        place: Path,
        deterministic: bool,
        fields: dict[str, Any],
        findings: list[str],
    ) -> None:
        """Verify the results of every different run, and keep the worst verdict."""
        order = (*CONFIRMED, "undecided", "unreachable")
        for run in mode["runs"]:
            results = self._results(place / run["folder"], run)
            arguments: dict[str, Any] = {**self.tensors(results), **self.line["attributes"]}
            answer = verify(
                self.line["operator"],
                product=self.profile,
                deterministic=deterministic,
                explain=False,
                **arguments,
            )
            fields["verdict"] = max(fields.get("verdict", "equal"), answer.status, key=order.index)
            fields.setdefault("results", dict(run["results"]))
            impossible = {
                name: output.counts["unreachable"]
                for name, output in answer.outputs.items()
                if output.counts["unreachable"]
            }
            if impossible:
                fields["impossible"] = impossible
            findings += [
                Text(
                    "{output}: {count} of {of} elements are impossible",
                    output=name,
                    count=count,
                    of=answer.outputs[name].elements.size,
                )
                for name, count in impossible.items()
            ]
        if deterministic and len(mode["runs"]) > 1:
            findings.append("runs with deterministic computation on differ")

    def _results(self, folder: Path, run: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Read the results of a run; raises UsageError for one that is damaged."""
        results = {}
        for name, digest in run["results"].items():
            output, _, dtype = name.partition(".")
            array = read_tensor(
                "folder", str(folder / f"{name}.npy") + (f":{dtype}" if dtype else "")
            )
            stored = array.view(np.uint16) if dtype else array
            if checksum(stored) != digest:
                raise UsageError(
                    "folder",
                    "{path}: not what the script wrote",
                    "copy the results again",
                    path=folder / f"{name}.npy",
                )
            results[output] = array
        return results

    def tensors(self, results: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return inputs and outputs of the operator, in their dtypes."""
        operator: Operator = load_operator(self.line["operator"])
        given = {
            name: array.view(numpy_dtype(self.line["inputs"][name]["dtype"]))
            for name, array in self.inputs.items()
        }
        known = (*operator.input_names, *operator.result_names)
        return {name: array for name, array in {**given, **results}.items() if name in known}


def evidence_records(answer: KitCheck, lines: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the records of ``evidence.jsonl``: a line for every call and mode.

    Findings are left out, because error texts of a device may name files and hosts.
    """
    calls = {line["number"]: line for line in lines}
    for mode in answer.modes:
        line = calls[mode.number]
        yield {
            "schema": schema("evidence"),
            "product": load_profile(None, answer.soc).name,
            "soc": answer.soc,
            "release": answer.release,
            "device": dict(answer.device),
            "outcome": "open" if answer.findings else mode.outcome,
            **{name: line[name] for name in ("operator", "inputs", "derived", "attributes")},
            **{
                name: value
                for name, value in mode.as_dict().items()
                if name not in ("arguments", "number", "operator", "findings")
            },
        }
