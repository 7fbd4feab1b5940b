"""Parsing of a file of calls, and the columns that calls are checked on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npu_sim.cores import Profile, chosen_releases, default_release, load_profile
from npu_sim.files.reading import LINE_BYTES, parse_json
from npu_sim.framework.operator import Operator
from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators.loading import load_operator
from npu_sim.questions.varied_calls import chosen_profiles, items_of, require_devices
from npu_sim.registry import OPERATORS, all_operators, called_operator, find_kernel
from npu_sim.status import closest

Names = str | Sequence[str] | None
"""Names, also as one text separated by commas."""


@dataclass(frozen=True)
class Column:
    """One column of the matrix."""

    profile: Profile
    """Product, SoC and release."""
    label: str
    """Distinct name: the product, with SoC and release where there are several."""


def chosen_columns(
    products: Names = None, socs: Names = None, releases: Names = None
) -> tuple[Column, ...]:
    """Return the columns of the chosen products, SoCs and releases.

    - ``products``: names or product files separated by commas, or ``all``; None for those of the
      SoCs.
    - ``socs``: SoCs separated by commas, which imply their products, or ``all``; None for default
      SoCs.
    - ``releases``: releases separated by commas; None for the default.

    Raises UsageError for an unknown product, SoC or release.
    """
    if products is None and socs not in (None, "all"):
        named = chosen_releases(items_of(releases) if releases else None)
        profiles = [load_profile(None, soc, release) for soc in items_of(socs) for release in named]
    else:
        profiles = chosen_profiles(products, socs, releases or None, every_soc=False)
    profiles = require_devices(list(dict.fromkeys(profiles)))
    return tuple(Column(profile, _label(profile, profiles)) for profile in profiles)


def _label(profile: Profile, profiles: Sequence[Profile]) -> str:
    parts = (
        [profile.soc]
        if len({other.soc for other in profiles if other.name == profile.name}) > 1
        else [profile.name]
    )
    if len({other.release for other in profiles}) > 1:
        parts.append(profile.release)
    return " ".join(parts)


def profile_of_line(values: Mapping[str, Any], default: str, directory: Path | None) -> Profile:
    """Return the profile named by a line, or the default one.

    Raises UsageError for an unknown product, SoC or release.
    """
    product, soc, release = values.get("product"), values.get("soc"), values.get("release")
    if product is None and soc is not None:
        return load_profile(None, soc, release)
    name = product or default
    if directory is not None and name.endswith((".yaml", ".yml")) and not Path(name).is_absolute():
        name = str(directory / name)
    return load_profile(name, soc, release)


def column_of_line(profile: Profile, columns: Sequence[Column]) -> Column:
    """Return the column of a line that names its product: a chosen one, or a new one."""
    for column in columns:
        if column.profile == profile:
            return column
    label = (
        profile.name
        if profile.soc == profile.product.default_soc
        else f"{profile.name} {profile.soc}"
    )
    return Column(
        profile, label if profile.release == default_release() else f"{label} {profile.release}"
    )


def is_named(values: Mapping[str, Any]) -> bool:
    """Return whether a line names its product or SoC."""
    return values.get("product") is not None or values.get("soc") is not None


IDENTITY = (
    "op",
    "level",
    "product",
    "soc",
    "release",
    "inputs",
    "deterministic",
    "limits",
    "expect",
    "route",
)
"""Keys that determine the result of a call."""
RECORDED = "places"
"""Key that recorded calls have."""
REMARKS = ("name", "group", "note", "count", RECORDED)
"""Keys with the origin of a call and its count."""
KEYS = IDENTITY + REMARKS
HEAD = "schema"
"""Key that identifies the head of a recording."""
_PLANNED = ("status", "block_dim", "tiling_key", "workspace_bytes", "schedule_mode")
EXPECTED, EXPECTED_OF_KERNELS = (*_PLANNED, "path"), (*_PLANNED, "tiling")


class MalformedLineError(Exception):
    """Error for a line that is not a call."""


@dataclass(frozen=True)
class Call:
    """A parsed call."""

    values: Mapping[str, Any]
    """Content of the line."""
    kernel: bool
    """Whether it is for the raw planner of a vendor kernel."""

    @property
    def inputs_text(self) -> str:
        """The inputs as text."""
        return ", ".join(f"{name} {_shown(value)}" for name, value in self.values["inputs"].items())


def _shown(value: Any) -> str:
    if isinstance(value, dict) and "shape" in value and isinstance(value["shape"], list):
        return f"{'x'.join(map(str, value['shape'])) or 'scalar'}:{value.get('dtype', '?')}"
    return str(value)


def parse(line: str | bytes) -> dict[str, Any]:
    """Return the object of a line.

    Raises MalformedLineError when the line is not a JSON object.
    """
    if len(line) > LINE_BYTES:
        raise MalformedLineError(
            Text("not a call: a line longer than {line_bytes} bytes", line_bytes=LINE_BYTES)
        )
    try:
        values = parse_json(line)
    except ValueError as error:
        raise MalformedLineError(*error.args) from None
    if not isinstance(values, dict):
        raise MalformedLineError("not a call: a line is one JSON object")
    return values


def require_keys(values: Mapping[str, Any]) -> None:
    """Check that every key is one of a call; raise MalformedLineError for the first that is not."""
    for name in values:
        if name not in KEYS:
            raise MalformedLineError(
                Text(
                    "{name} is not a key of a call{hint}; keys: {keys}",
                    name=repr(name),
                    hint=closest(name, KEYS),
                    keys=", ".join(KEYS),
                )
            )


def call_of(values: Mapping[str, Any]) -> Call:
    """Return the call of a line's object.

    Raises MalformedLineError for an unknown key or an illegal value.
    """
    require_keys(values)
    if not isinstance(values.get("op"), str):
        raise MalformedLineError("op is missing: the name of an operator or of a kernel")
    if not isinstance(values.get("inputs"), dict):
        raise MalformedLineError("inputs is missing: an object with the arguments by name")
    if not isinstance(values.get("expect", {}), dict):
        raise MalformedLineError("expect is not an object")
    for name in ("product", "soc", "release", "name"):
        if not isinstance(values.get(name), str | None):
            raise MalformedLineError(
                Text(
                    "{name} = {values}: product, soc, release and name are names",
                    name=name,
                    values=repr(values[name]),
                )
            )
    count = values.get("count", 1)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise MalformedLineError(
            Text("count = {count}: how often the call is made, 1 or more", count=repr(count))
        )
    kernel = _is_kernel(values)
    known = EXPECTED_OF_KERNELS if kernel else EXPECTED
    for name in values.get("expect", {}):
        if name not in known:
            raise MalformedLineError(
                Text(
                    "expect: {name} cannot be expected{hint}; one of: {known}",
                    name=repr(name),
                    hint=closest(name, known),
                    known=", ".join(known),
                )
            )
    return Call(values, kernel)


def _is_kernel(values: Mapping[str, Any]) -> bool:
    """Return whether a line is for a raw planner; for a shared name the inputs decide."""
    op, level = values["op"], values.get("level")
    operator, kernel = called_operator(op), find_kernel(op)
    if operator is None and kernel is None:
        operators = [entry.name for entry in all_operators()]
        names = (
            *operators,
            *(kernel for entry in OPERATORS for kernel in entry.kernels if kernel not in operators),
        )
        raise MalformedLineError(
            Text(
                "op = {op} is neither operator nor kernel{hint}; known: {names}",
                op=repr(op),
                hint=closest(op, names),
                names=", ".join(names),
            )
        )
    if level not in (None, "operator", "kernel"):
        raise MalformedLineError(Text("level = {level}: operator or kernel", level=repr(level)))
    if (level == "kernel" and kernel is None) or (level == "operator" and operator is None):
        raise MalformedLineError(Text("op = {op} is no {level}", op=repr(op), level=level))
    if level is not None or operator is None or kernel is None:
        return level == "kernel" or operator is None
    declared = load_operator(operator.name)
    given = set(values["inputs"])
    # Raw planners have other input names; one tensor name of the operator is enough to select it.
    argument_names = {argument.name for argument in declared.arguments}
    return not given <= argument_names and not given & set(declared.tensor_names)


def operator_inputs(operator: Operator, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an operator's call.

    Raises MalformedLineError for an unknown argument, and for a malformed tensor.
    """
    names = [argument.name for argument in operator.arguments]
    for name in inputs:
        if name not in names:
            raise MalformedLineError(
                Text(
                    "inputs: {name} is not an argument of {operator}{hint}; arguments: {names}",
                    name=repr(name),
                    operator=operator.name,
                    hint=closest(name, names),
                    names=", ".join(names),
                )
            )
    return {
        name: _tensor(name, value) if name in operator.tensor_names else value
        for name, value in inputs.items()
    }


def _tensor(name: str, value: Any) -> Any:
    """Return a tensor given as text, or as an object with ``shape`` and ``dtype``."""
    if not isinstance(value, dict):
        return value
    try:
        return TensorSpec(
            tuple(value["shape"]),
            value["dtype"],
            value.get("contiguous", True),
            value.get("storage_format", "ND"),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedLineError(
            Text(
                "{name}: not a tensor: {error}; write '4096x512:bf16' or an object with shape and "
                "dtype",
                name=name,
                error=error,
            )
        ) from None
