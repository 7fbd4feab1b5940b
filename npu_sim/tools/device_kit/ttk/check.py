"""Judging what the vendor's operator test kit wrote of the cases of a folder.

PASS means that the kernel gives the expected outputs bit for bit; they are then the measured ones.
For FAIL the measured outputs are those that the kit dumped, moved into ``dump/`` of the folder.

Source: specification page ``ttk``, "result.csv"; the documents of the kit name dumped files
``<testcase_name>_<phase>output_<index>.npy``.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from npu_sim.cores import Profile, load_profile
from npu_sim.files.reading import read_limited
from npu_sim.files.tensors import read_tensor
from npu_sim.language import Text, Verbatim
from npu_sim.numbers.arrays import Arrays
from npu_sim.plans.answers import Progress
from npu_sim.status import UsageError, shown
from npu_sim.tools.device_kit.answers import (
    CONFIRMED,
    DAMAGED,
    NOT_JUDGED,
    NOT_RUN,
    KitCheck,
    ModeCheck,
    mode_of,
    unreadable_mode,
    write_evidence,
)
from npu_sim.tools.device_kit.bits import judged_bits
from npu_sim.tools.device_kit.lines import CALLS_FILE
from npu_sim.tools.device_kit.results import MOST_BYTES, Head, read_head, read_lines
from npu_sim.tools.device_kit.run_on_device import checksum
from npu_sim.tools.device_kit.ttk.cases import KERNELS, Case
from npu_sim.tools.device_kit.ttk.folder import (
    DATA,
    RESULT_FILE,
    SCHEMA,
    command_parts,
    files_of,
    name_of,
)

DUMP = "dump"
PASS, FAIL = "PASS", "FAIL"
NAME, STATUS = "testcase_name", "precision_status"
SIMULATOR, DEVICE = "npusim", "npu"
VERSIONS = ("cann_version", "toolkit_version")
"""Columns that may state the version of the toolkit."""
HINT = "the file that the operator test kit writes with -o"
Row = Mapping[str, str]


def check_cases(folder: str | Path, progress: Progress | None) -> KitCheck:
    """Judge ``result.csv`` in a folder of cases; see :func:`npu_sim.check_kit`."""
    place = Path(folder)
    head = read_head(Head, place / "kit.json", SCHEMA)
    profile = load_profile(None, head.soc, head.release)
    if not (place / RESULT_FILE).exists():
        raise UsageError(
            "folder",
            "{folder}: no results of the operator test kit",
            "in its folder: {command}",
            folder=folder,
            command=" ".join(command_parts(place.resolve())),
        )
    lines, unreadable = read_lines(place / CALLS_FILE)
    cases = {
        name_of(case, head.kit): case
        for case in (Case(line, profile) for line in lines if line.operator in KERNELS)
    }
    rows, foreign = _rows(place / RESULT_FILE, cases)
    modes = []
    for done, (name, row) in enumerate(rows.items()):
        if progress is not None:
            progress("judging results", done / len(rows))
        modes.append(JudgedCase(cases[name], name, row, place).mode())
    device = _device(rows)
    answer = KitCheck(
        folder=str(folder),
        soc=profile.soc,
        release=profile.release,
        device=device,
        modes=tuple(sorted(modes, key=lambda mode: mode.number)),
        missing=tuple(case.line.number for name, case in cases.items() if name not in rows),
        unreadable=(*(Text("calls.jsonl, {line}", line=line) for line in unreadable), *foreign),
        findings=tuple(_findings(profile, device)),
    )
    write_evidence(place, answer, lines)
    return answer


def _rows(path: Path, names: Mapping[str, Any]) -> tuple[dict[str, Row], list[str]]:
    """Return the results of these cases by name, and why other lines are none.

    Raises UsageError for a file that is no table of results, or has none of these cases.
    """
    text = read_limited("folder", path, MOST_BYTES, HINT).decode("utf-8-sig", "replace")
    rows: dict[str, Row] = {}
    foreign: list[str] = []
    try:
        table = csv.DictReader(text.splitlines(keepends=True), restval="")
        if not {NAME, STATUS} <= {*(table.fieldnames or ())}:
            raise UsageError(
                "folder",
                "{path}: no columns {name} and {status}",
                HINT,
                path=path,
                name=NAME,
                status=STATUS,
            )
        for row in table:
            name, line = row[NAME].strip(), table.line_num
            if name not in names:
                text = "result.csv, line {line}: case {name} is not of this kit"
                foreign.append(Text(text, line=line, name=shown(name)))
            elif name in rows:
                text = "result.csv, line {line}: case {name} a second time"
                foreign.append(Text(text, line=line, name=name))
            else:
                rows[name] = {key: value for key, value in row.items() if isinstance(key, str)}
    except csv.Error as error:
        raise UsageError("folder", "{path}: {error}", HINT, path=path, error=error) from None
    if not rows:
        raise UsageError("folder", "{path}: no case of this kit", HINT, path=path)
    return rows, foreign


def _device(rows: Mapping[str, Row]) -> dict[str, str]:
    """Return where the cases ran, as far as the results state it.

    The simulator measures no time: its results have no number in the columns of times.
    """
    first = next(iter(rows.values()))
    times = [value for row in rows.values() for key, value in row.items() if key.endswith("_us")]
    timed = any(value.strip()[:1].isdecimal() for value in times)
    versions = (first.get(column, "") for column in VERSIONS)
    return {
        "soc": _word(first.get("soc", "")),
        "cann": _word(next(filter(None, versions), "")),
        "backend": _word(first.get("backend", "") or (DEVICE if timed else SIMULATOR)),
    }


def _word(text: str) -> str:
    """Return a name or version as evidence repeats it."""
    return "".join(re.findall(r"[\w.+:()/ -]", text[:100])) or "unknown"


def _findings(profile: Profile, device: Mapping[str, str]) -> Iterator[str]:
    """Yield that another SoC computed the cases, where the results name one."""
    soc = profile.product.soc_named(device["soc"])
    if soc not in (None, profile.soc):
        yield Text(
            "the results are of {soc}, the kit was made for {wanted}", soc=soc, wanted=profile.soc
        )


@dataclass(frozen=True)
class JudgedCase:
    """One case with its result."""

    case: Case
    name: str
    row: Row
    folder: Path

    @property
    def data(self) -> Path:
        """Folder of the inputs and expected outputs."""
        return self.folder / DATA / self.name

    def mode(self) -> ModeCheck:
        """Return the check of the case."""
        try:
            return self._judged()
        except DAMAGED as error:
            return unreadable_mode(self.case.line, False, error)

    def _judged(self) -> ModeCheck:
        plan, status = self.case.plan, self.row[STATUS].strip()
        if status not in (PASS, FAIL):
            finding = Text("not run: {status}", status=Verbatim(status[:200] or "no status"))
            return self._mode(verdict=NOT_RUN, findings=(finding,))
        if plan is None:
            return self._mode(findings=(self.case.left_out(),))
        fields = {
            "status": 0,
            "path": str(plan.path),
            "kernel": plan.kernel,
            "tiling_key": plan.tiling_key,
            "planned_cores": plan.block_dim,
        }
        if other := [*self._other_files()]:
            finding = Text("{files}: not what npu_sim wrote", files=", ".join(other))
            return self._mode(**fields, findings=(finding,))
        return self._passed(fields) if status == PASS else self._failed(fields)

    def _mode(self, **fields: Any) -> ModeCheck:
        return mode_of(self.case.line, False, **fields)

    def _other_files(self) -> Iterator[str]:
        """Yield the files of data that this version of npu_sim would not write."""
        for name, array in files_of(self.case).items():
            content = b"" if array is None else array.tobytes()
            path = self.data / name
            if not path.is_file() or read_limited("folder", path, MOST_BYTES, HINT) != content:
                yield name

    def _passed(self, fields: Mapping[str, Any]) -> ModeCheck:
        """Return the check of a case whose kernel gave the expected outputs."""
        return self._mode(**fields, verdict=CONFIRMED[0], results=_digests(self.case.compared))

    def _failed(self, fields: Mapping[str, Any]) -> ModeCheck:
        """Return the check of a case whose kernel gave others: by what was dumped of them."""
        measured = self._dumped()
        models = self.case.models
        if not measured and not models:
            finding = Text("other bits; to see them, {how}", how=self._how_to_dump())
            return self._mode(**fields, verdict="unreachable", findings=(finding,))
        if not measured:
            text = "differs, not judged, as the last bits of {outputs} are a model: {how}"
            finding = Text(text, outputs=", ".join(models), how=self._how_to_dump())
            return self._mode(**fields, verdict=NOT_JUDGED, findings=(finding,))
        tensors = {**self.case.tensors, **measured}
        bits = judged_bits(self.case.line, self.case.profile, False, tensors)
        results = _digests(measured)
        if bits.verdict in CONFIRMED:
            finding = Text(
                "reported as FAIL, but the dumped {names} are as computed",
                names=", ".join(measured),
            )
            return self._mode(**fields, verdict=NOT_JUDGED, findings=(finding,), results=results)
        return self._mode(
            **fields,
            verdict=bits.verdict,
            impossible=bits.impossible or None,
            findings=bits.findings,
            results=results,
        )

    def _how_to_dump(self) -> str:
        return Text(
            "run it again with -t {name} --dump-on-fail --dump-format npy, and move the files "
            "{name}_*output_*.npy into {folder}",
            name=self.name,
            folder=self.folder / DUMP,
        )

    def _dumped(self) -> Arrays:
        """Return the dumped outputs of those that the kit compared, by name."""
        found = {}
        for place, name in enumerate(self.case.outputs):
            expected = self.case.compared.get(name)
            files = sorted((self.folder / DUMP).glob(f"{self.name}_*output_{place}.npy"))
            if expected is None or not files:
                continue
            if len(files) > 1:
                raise UsageError(
                    "folder",
                    "{name} was dumped several times: {files}",
                    "leave only the dump of the run that result.csv states in {dump}",
                    name=name,
                    files=", ".join(file.name for file in files),
                    dump=self.folder / DUMP,
                )
            form = ":bf16" if str(expected.dtype) == "bfloat16" else ""
            array = read_tensor("folder", f"{files[0]}{form}", MOST_BYTES)
            if array.shape != expected.shape or array.dtype != expected.dtype:
                raise UsageError(
                    "folder",
                    "{path}: {found}, not {wanted}",
                    HINT,
                    path=files[0],
                    found=f"{array.shape} {array.dtype}",
                    wanted=f"{expected.shape} {expected.dtype}",
                )
            found[name] = array
        return found


def _digests(outputs: Arrays) -> dict[str, str]:
    """Return the checksums of outputs under the names that evidence has for them."""
    return {
        f"{name}.bfloat16" if str(array.dtype) == "bfloat16" else name: checksum(
            array.view(np.uint16) if str(array.dtype) == "bfloat16" else array
        )
        for name, array in outputs.items()
    }
