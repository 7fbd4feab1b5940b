"""Judging what a device computed: bits by ``verify``, status and cores by plans, time by bounds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from npu_sim.cores import Profile, all_socs, load_profile
from npu_sim.language import Text
from npu_sim.numbers.arrays import Arrays
from npu_sim.numbers.formats import numpy_dtype
from npu_sim.operators.loading import load_operator
from npu_sim.operators.timelines import is_timed, timeline
from npu_sim.plans.answers import Progress
from npu_sim.plans.model import Plan
from npu_sim.status import AclnnError, Status, UsageError, without_internal_frames
from npu_sim.timelines.model import VectorEstimate
from npu_sim.tools.device_kit.answers import (
    DAMAGED,
    NOT_RUN,
    KitCheck,
    ModeCheck,
    mode_of,
    unreadable_mode,
    write_evidence,
)
from npu_sim.tools.device_kit.bits import ORDER, judged_bits
from npu_sim.tools.device_kit.lines import CALLS_FILE, plan_or_error
from npu_sim.tools.device_kit.results import (
    Device,
    Done,
    Head,
    Line,
    Mode,
    read_head,
    read_lines,
    read_record,
    read_results,
)
from npu_sim.tools.device_kit.run_on_device import checksum, make_input
from npu_sim.tools.device_kit.ttk.check import check_cases
from npu_sim.tools.device_kit.ttk.folder import CASES_FILE
from npu_sim.tools.failures.reader import read_lines as lines_read
from npu_sim.tools.profiles.reader import MeasuredLaunch, read_device_profile


@without_internal_frames
def check_kit(folder: str | Path, *, progress: Progress | None = None) -> KitCheck:
    """Judge the results in the folder of a kit, and write ``evidence.jsonl`` there.

    Those that ``run_on_device.py`` wrote: bits are judged as by :func:`npu_sim.verify`, status and
    cores by the plans, time by the bounds. Those of the vendor's operator test kit,
    ``result.csv``: bits alone, from PASS, FAIL and dumped outputs. A damaged result, or one of
    another kit, is not judged, and the others are.

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
    if (place / CASES_FILE).exists():
        return check_cases(folder, progress)
    head, device = read_head(Head, place / "kit.json"), read_head(Device, place / "device.json")
    profile = load_profile(None, head.soc, head.release)
    lines, unreadable = read_lines(place / CALLS_FILE)
    modes: list[ModeCheck] = []
    missing = []
    for done, line in enumerate(lines):
        if progress is not None:
            progress("judging results", done / len(lines))
        results = place / "results" / f"{line.number:03d}"
        if not (results / "done.json").exists():
            missing.append(line.number)
            continue
        modes += JudgedCall(line, results, profile).modes()
    if not modes:
        raise UsageError(
            "folder",
            "{folder}: no results of a device",
            "run run_on_device.py of the folder on a device",
            folder=folder,
        )
    findings = [*_device_findings(profile, device, lines, modes)]
    if device.kit != head.kit:
        findings.append("device.json is of another kit")
    answer = KitCheck(
        folder=str(folder),
        soc=profile.soc,
        release=profile.release,
        device=device.versions(),
        modes=tuple(modes),
        missing=tuple(missing),
        unreadable=tuple(Text("calls.jsonl, {line}", line=line) for line in unreadable),
        findings=tuple(findings),
    )
    write_evidence(place, answer, lines)
    return answer


def _device_findings(
    profile: Profile, device: Device, lines: Sequence[Line], modes: Sequence[ModeCheck]
) -> Iterator[str]:
    """Yield what is wrong with the device as a whole: another SoC, by its name or by its cores."""
    if profile.product.soc_named(device.soc) != profile.soc:
        yield Text(
            "the results are of {soc}, the kit was made for {wanted}",
            soc=device.soc,
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
    lines: Sequence[Line], profile: Profile, wanted: Mapping[tuple[int, bool], int | None]
) -> dict[tuple[int, bool], int | None]:
    """Return the cores that calls and modes have on a SoC."""
    calls = {line.number: line for line in lines}
    plans = {mode: plan_or_error(calls[mode[0]], profile, mode[1]) for mode in wanted}
    return {
        mode: made.block_dim if isinstance(made, Plan) else None for mode, made in plans.items()
    }


def status_in(error: str) -> int | None:
    """Return the status of aclnn that the text of an error states; None without one."""
    known = {str(int(status)) for status in Status}
    codes = (finding.value for finding in lines_read(error.splitlines()).values("code"))
    return next((int(code) for code in codes if code in known), None)


@dataclass(frozen=True)
class JudgedCall:
    """One call of a kit with the results of a device."""

    line: Line
    folder: Path
    profile: Profile

    @cached_property
    def inputs(self) -> Arrays:
        """The inputs that the device made, and those alone."""
        return {name: make_input(tensor.model_dump()) for name, tensor in self.line.inputs.items()}

    def modes(self) -> Iterator[ModeCheck]:
        """Yield the check of each mode, or one of a call that is not judged."""
        try:
            done = read_record(Done, self.folder / "done.json")
            if done.call != self.line.digest:
                yield mode_of(self.line, False, findings=("the results are of another call",))
            elif done.crashed:
                yield mode_of(self.line, False, verdict=NOT_RUN, findings=(done.crashed,))
            elif other := self._other_inputs(done):
                finding = Text("the results are of other inputs: {names}", names=", ".join(other))
                yield mode_of(self.line, False, findings=(finding,))
            else:
                yield from (self._mode_of(done, mode) for mode in (False, True))
        except DAMAGED as error:
            yield unreadable_mode(self.line, False, error)

    def _other_inputs(self, done: Done) -> list[str]:
        made = {name: checksum(array) for name, array in self.inputs.items()}
        return [name for name in made if done.inputs.get(name) != made[name]]

    def _mode_of(self, done: Done, deterministic: bool) -> ModeCheck:
        """Return the check of a mode; of a damaged one, that it cannot be read."""
        if len(done.modes) <= deterministic:
            return unreadable_mode(
                self.line, deterministic, ValueError("done.json has no such mode")
            )
        mode = done.modes[deterministic]
        if mode.deterministic is not deterministic:
            return mode_of(
                self.line,
                deterministic,
                findings=("the determinism switch was not set as planned",),
            )
        try:
            return self._judged(mode, deterministic)
        except DAMAGED as error:
            return unreadable_mode(self.line, deterministic, error)

    def _judged(self, mode: Mode, deterministic: bool) -> ModeCheck:
        planned = plan_or_error(self.line, self.profile, deterministic)
        if isinstance(planned, AclnnError):
            return self._refused(mode, deterministic, int(planned.status))
        if not isinstance(planned, Plan):
            return mode_of(self.line, deterministic, findings=(planned.message,))
        if not mode.runs and not mode.error:
            raise ValueError("done.json has neither runs nor an error")
        place = self.folder / ("on" if deterministic else "off")
        fields: dict[str, Any] = {
            "status": 0,
            "path": str(planned.path),
            "kernel": planned.kernel,
            "tiling_key": planned.tiling_key,
            "planned_cores": planned.block_dim,
        }
        findings: list[str] = []
        if mode.error:
            fields |= {"verdict": NOT_RUN, "status": status_in(mode.error)}
            findings.append(
                Text("expected success, the device refused it: {error}", error=mode.error)
            )
        elif self._measure(place, planned, fields, findings):
            self._judge_bits(mode, place, deterministic, fields, findings)
        return mode_of(self.line, deterministic, findings=tuple(findings), **fields)

    def _refused(self, mode: Mode, deterministic: bool, status: int) -> ModeCheck:
        """Return the check of a call that is planned to be refused."""
        measured = status_in(mode.error)
        finding = ""
        if not mode.error:
            measured = 0
            finding = Text("expected a refusal with {status}, the device ran it", status=status)
        elif measured not in (None, status):
            finding = Text(
                "expected a refusal with {status}, the device gave {measured}",
                status=status,
                measured=measured,
            )
        return mode_of(
            self.line,
            deterministic,
            verdict=NOT_RUN,
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
        mode: Mode,
        place: Path,
        deterministic: bool,
        fields: dict[str, Any],
        findings: list[str],
    ) -> None:
        """Verify the results of every different run, and keep the worst verdict."""
        for run in mode.runs:
            results = read_results(place, run)
            bits = judged_bits(self.line, self.profile, deterministic, self.tensors(results))
            fields["verdict"] = max(fields.get("verdict", "equal"), bits.verdict, key=ORDER.index)
            fields.setdefault("results", dict(run.results))
            if bits.impossible:
                fields["impossible"] = bits.impossible
            findings += bits.findings
        if deterministic and len(mode.runs) > 1:
            findings.append("runs with deterministic computation on differ")

    def tensors(self, results: Arrays) -> Arrays:
        """Return inputs and outputs of the operator, in their dtypes."""
        operator = load_operator(self.line.operator)
        given = {
            name: array.view(numpy_dtype(self.line.inputs[name].dtype))
            for name, array in self.inputs.items()
        }
        known = (*operator.input_names, *operator.result_names)
        return {name: array for name, array in {**given, **results}.items() if name in known}
