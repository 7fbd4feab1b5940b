"""Files of a kit that came back from a device, validated: nothing in them is trusted.

A line or a result that does not have the kit's form is refused with the place in it and the reason;
what is refused is one call, and the others are judged.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from npu_sim.files.reading import parse_json, read_limited
from npu_sim.files.tensors import read_tensor
from npu_sim.language import Text, Verbatim
from npu_sim.numbers.arrays import Arrays
from npu_sim.status import UsageError, shown
from npu_sim.tools.device_kit.run_on_device import CALLS, LAYOUTS, SCHEMA, checksum, digest_of

MOST_BYTES = 64 << 20
"""Largest JSON file that is read."""
MOST_ELEMENTS = 1 << 28
"""Most elements of all inputs of a call, which are made again to judge it."""
MOST_RESULT_BYTES = 1 << 32
"""Largest file of a result."""
HINT = "the folder that npu-sim kit wrote, with results/ and device.json from the device"
NAME = r"[A-Za-z_]\w{0,60}"
Name = Annotated[str, StringConstraints(pattern=f"^{NAME}$")]
ResultName = Annotated[str, StringConstraints(pattern=rf"^{NAME}(\.bfloat16)?$")]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Version = Annotated[str, StringConstraints(pattern=r"^[\w.+:()/ -]{0,100}$")]
"""Name or version of a device or of a program: what evidence repeats."""


class _Record(BaseModel):
    """Base of the records: types are not converted, what else stands in the file is ignored."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)


Read = TypeVar("Read", bound=_Record)


class Head(_Record):
    """What ``kit.json`` states: the device that the kit is for, and its own identity."""

    soc: Version
    release: Version
    kit: Digest


class Device(_Record):
    """What ``device.json`` states of the device, and of the kit whose calls it ran."""

    soc: Version
    kit: Digest
    cann: Version = "unknown"
    torch: Version = "unknown"
    torch_npu: Version = "unknown"
    numpy: Version = "unknown"
    python: Version = "unknown"

    def versions(self) -> dict[str, str]:
        """Return SoC and versions by name."""
        return {name: value for name, value in self if name != "kit"}


class Input(_Record):
    """How one input of a call is made."""

    shape: tuple[Annotated[int, Field(ge=0, le=MOST_ELEMENTS)], ...] = Field(max_length=8)
    dtype: Literal["float32", "float16", "bfloat16", "int32", "int64"]
    seed: int = Field(ge=0, lt=1 << 63)
    values: Literal["normal", "special", "positive", "negative", "permutation", "below"]
    below: int = Field(1, ge=0, lt=1 << 63)

    @model_validator(mode="after")
    def _has_values(self) -> "Input":
        is_drawn = self.values in ("permutation", "below")
        if self.dtype == "bfloat16" if is_drawn else self.dtype not in LAYOUTS:
            raise ValueError(
                Text("{dtype} has no values {values}", dtype=self.dtype, values=self.values)
            )
        return self

    @property
    def elements(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=object))


class Line(_Record):
    """One call of ``calls.jsonl``."""

    number: int = Field(ge=1, le=999_999)
    operator: Name
    inputs: dict[Name, Input] = Field(max_length=20)
    derived: dict[Name, str] = Field(default_factory=dict)
    attributes: dict[Name, bool | int | float | str | None]
    digest: str = ""
    """Identity of the line, which its result repeats."""

    @model_validator(mode="after")
    def _can_be_judged(self) -> "Line":
        if self.operator not in CALLS:
            raise ValueError(Text("operator {name} is none of a kit", name=shown(self.operator)))
        if sum(tensor.elements for tensor in self.inputs.values()) > MOST_ELEMENTS:
            raise ValueError(Text("the inputs have more than {most} elements", most=MOST_ELEMENTS))
        return self

    def as_dict(self) -> dict[str, Any]:
        """Return what evidence repeats of a call."""
        names = {"operator", "inputs", "derived", "attributes"}
        return {"derived": {}, **self.model_dump(mode="json", include=names, exclude_unset=True)}


class RunOfCall(_Record):
    """Equal runs of a call: the folder of their results, and the digest of each."""

    folder: Annotated[str, StringConstraints(pattern=r"^run\d{1,6}$")]
    results: dict[ResultName, Digest]


class Mode(_Record):
    """The runs of a call in one mode, or the error that ended them."""

    deterministic: bool
    runs: tuple[RunOfCall, ...] = Field(max_length=1000)
    error: str = ""


class Done(_Record):
    """What ``done.json`` states of a call."""

    call: Digest
    crashed: str = ""
    inputs: dict[Name, Digest] = Field(default_factory=dict)
    modes: tuple[Mode, ...] = ()


def read_record(kind: type[Read], path: Path) -> Read:
    """Return a JSON file as a record; raises UsageError with the place in it and the reason."""
    content = read_limited("folder", path, MOST_BYTES, HINT)
    return _record(kind, content, lambda why: Text("{path}: {why}", path=path, why=why))


def read_head(kind: type[Read], path: Path, schema: str = SCHEMA) -> Read:
    """Return ``kit.json`` or ``device.json``; raises UsageError also for another form."""

    class Schema(_Record):
        schema_: str = Field("", alias="schema")

    if read_record(Schema, path).schema_ != schema:
        raise UsageError(
            "folder",
            "{path}: not of a kit of this version, {schema}",
            "make a new kit with npu-sim kit",
            path=path,
            schema=schema,
        )
    return read_record(kind, path)


def read_lines(path: Path) -> tuple[list[Line], list[str]]:
    """Return the calls of a kit, and why lines are none; raises UsageError without a file."""
    lines: dict[int, Line] = {}
    reasons: list[str] = []
    for place, text in enumerate(read_limited("folder", path, MOST_BYTES, HINT).splitlines(), 1):
        if not text.strip():
            continue
        try:
            line = _record(Line, text, _at_line(place))
        except UsageError as error:
            reasons.append(error.message)
            continue
        if line.number in lines:
            reasons.append(
                Text("line {place}: repeats call {number}", place=place, number=line.number)
            )
            continue
        lines[line.number] = line.model_copy(update={"digest": digest_of(text)})
    return [*lines.values()], reasons


def _at_line(place: int) -> Callable[[str], str]:
    return lambda why: Text("line {place}: {why}", place=place, why=why)


def _record(kind: type[Read], content: bytes, message: Callable[[str], str]) -> Read:
    """Return a JSON text as a record; raises UsageError with ``message(why)``."""
    try:
        parse_json(content)
        return kind.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raised = first.get("ctx", {}).get("error")
        problem = raised.args[0] if isinstance(raised, ValueError) else first["msg"]
        key = ".".join(map(str, first["loc"]))[:200]
        why: str = Text("{key}: {problem}", key=Verbatim(key), problem=problem) if key else problem
    except ValueError as error:
        why = error.args[0]
    raise UsageError("folder", message(why), HINT)


def read_results(folder: Path, run: RunOfCall) -> Arrays:
    """Return the results of a run by name; raises UsageError for one that is damaged."""
    results = {}
    for name, digest in run.results.items():
        output, _, dtype = name.partition(".")
        path = folder / run.folder / f"{name}.npy"
        array = read_tensor("folder", f"{path}:{dtype}" if dtype else str(path), MOST_RESULT_BYTES)
        if checksum(array.view(np.uint16) if dtype else array) != digest:
            raise UsageError(
                "folder", "{path}: not what the script wrote", "copy the results again", path=path
            )
        results[output] = array
    return results
