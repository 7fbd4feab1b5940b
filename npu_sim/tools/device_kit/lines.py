"""Calls of a kit as lines of ``calls.jsonl``: given calls, how inputs are made, and plans."""

from collections.abc import Collection, Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

from npu_sim.cores import Profile
from npu_sim.files.reading import lines_of, open_plain
from npu_sim.framework.arguments import Values
from npu_sim.framework.planning import fixed_call
from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators import plan
from npu_sim.operators.loading import load_operator
from npu_sim.plans.model import Plan
from npu_sim.questions.preflight_lines import MalformedLineError, call_of, operator_inputs, parse
from npu_sim.status import NO_PLAN, AclnnError, Unplanned, UsageError
from npu_sim.tools.device_kit.choice import KitCall
from npu_sim.tools.device_kit.results import MOST_ELEMENTS, Line
from npu_sim.tools.device_kit.run_on_device import CALLS

CALLS_FILE = "calls.jsonl"
README = "README.md"
MIB = 1 << 20


def new_folder(folder: Path) -> Path:
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


def given_calls(
    path: Path, names: Collection[str], other: str, left_out: list[str]
) -> Iterator[KitCall]:
    """Yield the calls of a file to the operators of these names; equal ones once.

    - ``other``: template of the reason for another ``operator``.
    """
    seen = set()
    with open_plain("calls", path, "a file of calls, one JSON object a line") as file:
        for number, line in enumerate(lines_of(file), 1):
            try:
                values = parse(line)
                if "op" not in values and "schema" in values:  # the head of a recording
                    continue
                call = call_of(values)
                operator = load_operator(values["op"])
                if operator.name not in names or call.kernel:
                    raise MalformedLineError(Text(other, operator=values["op"]))
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


def no_calls(problem: Text, names: Collection[str], left_out: Sequence[str]) -> UsageError:
    """Return the error of a kit without calls; its hint is why the first line is left out."""
    hint = left_out[0] if left_out else Text("operators: {names}", names=", ".join(names))
    return UsageError("calls", "{problem}", "{hint}", problem=problem, hint=hint)


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
            **kind_of_values(values, sizes, call.special),
        }
        for place, (name, spec, values) in enumerate(tensors)
    }


def kind_of_values(values: str | int | None, sizes: Values, special: bool) -> dict[str, Any]:
    """Return the kind of values of an input, see ``run_on_device.Call``."""
    if values is None:
        return {"values": "special" if special else "normal"}
    if values in ("permutation", "positive", "negative"):
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


def arguments_of_line(line: Line) -> dict[str, Any]:
    """Return the arguments of a call without data."""
    operator = load_operator(line.operator)
    return {
        **line.derived,
        **{
            name: f"{'x'.join(map(str, tensor.shape)) or 'scalar'}:{tensor.dtype}"
            for name, tensor in line.inputs.items()
            if name in operator.input_names
        },
        **line.attributes,
    }


def plan_or_error(line: Line, profile: Profile, deterministic: bool) -> Plan | Unplanned:
    """Return the plan of a call, or the error with which the product refuses it."""
    try:
        return plan(
            line.operator, product=profile, deterministic=deterministic, **arguments_of_line(line)
        )
    except NO_PLAN as error:
        return error
