"""The calls of our operators in a dump, rebuilt from its entries, and what their statistics show.

What concerns one operator is its hook ``in_dumps``. msprobe hooks the autograd node of a call:
``input`` of a backward entry has the gradients of the node's outputs, ``output`` those of its
differentiable inputs, in the order of the derivative formula. A Python ``autograd.Function`` has
one place per tensor argument instead. Modules have gradients of their parameters in an entry of
their own, after accumulation.

Source: specification page ``msprobe_dump``, sections "Names", "Backward entries" and "Modes without
tensors".
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import isfinite
from typing import Any, NamedTuple

from npu_sim.framework.operator import IN_DUMPS, find_hook
from npu_sim.language import Text, grouped
from npu_sim.operators.loading import load_operator
from npu_sim.operators.shared.dumped import Function, InDumps, WrappedCall
from npu_sim.registry import OPERATOR_NAMES
from npu_sim.tools.dumps.msprobe import MODULE, NAME, Dump, Entry, StoredTensor

PYTHON_FUNCTIONS = "MindSpeed."
"""Prefix of entries whose function is a Python ``autograd.Function``."""

COPYING = frozenset(
    {
        "embedding",
        "index_select",
        "gather",
        "take",
        "take_along_dim",
        "masked_select",
        "index",
        "getitem",
        "select",
        "narrow",
        "slice",
        "split",
        "chunk",
        "tensor_split",
        "unbind",
        "diagonal",
        "diag",
        "unfold",
        "cat",
        "concat",
        "concatenate",
        "stack",
        "hstack",
        "vstack",
        "dstack",
        "view",
        "view_as",
        "reshape",
        "flatten",
        "unflatten",
        "ravel",
        "transpose",
        "permute",
        "t",
        "swapaxes",
        "swapdims",
        "movedim",
        "squeeze",
        "unsqueeze",
        "expand",
        "expand_as",
        "broadcast_to",
        "repeat",
        "repeat_interleave",
        "tile",
        "roll",
        "flip",
        "fliplr",
        "flipud",
        "rot90",
        "contiguous",
        "clone",
        "detach",
        "pixel_shuffle",
        "pixel_unshuffle",
    }
)
"""Functions of PyTorch whose results are copies of elements of their inputs."""


@dataclass(frozen=True)
class DumpedCall:
    """A call of one of our operators.

    Attributes
    ----------
    operator
        Name in npu_sim.
    entry
        Entry that has the results.
    arguments
        Arguments of :func:`npu_sim.run`; StoredTensor in place of tensors.
    results
        Results by name. A gradient that autograd cast to the dtype of the input has that dtype.
    hook
        What can be checked of the operator's calls in dumps.
    accumulated
        Whether other uses of a parameter may have added to the result.
    """

    operator: str
    entry: str
    arguments: Mapping[str, Any]
    results: Mapping[str, StoredTensor]
    hook: InDumps
    accumulated: bool = False


class _Wrapping(NamedTuple):
    """A wrapped function with one of the operators that it calls."""

    function: Function
    operator: str
    hook: InDumps


@cache
def _wrapped_functions() -> Mapping[str, tuple[_Wrapping, ...]]:
    """Return the operators that functions call, by name of the function."""
    hooks = {name: find_hook(load_operator(name), IN_DUMPS) for name in OPERATOR_NAMES}
    found = grouped(
        (name, _Wrapping(function, operator, hook))
        for operator, hook in hooks.items()
        for function in (hook.functions if hook else ())
        for name in function.names
    )
    return {name: tuple(wrappings) for name, wrappings in found.items()}


def function_of(name: str) -> str:
    """Return the function of an entry as operators name it, or with its prefix."""
    if match := MODULE.fullmatch(name):
        return f"{match['prefix']}.{match['class']}"
    match = NAME.fullmatch(name)
    if match is None:
        return name
    prefix, last = match["prefix"], match["api"].rpartition(".")[2]
    known = (key for key in (f"{prefix}.{last}", last) if key in _wrapped_functions())
    return next(known, f"{prefix}.{match['api']}")


def moves_data(name: str) -> bool:
    """Return whether an entry is of a forward call that copies elements and computes nothing."""
    match = NAME.fullmatch(name)
    if match is None or match["direction"] != "forward":
        return False
    return match["api"].rpartition(".")[2].strip("_") in COPYING


def is_modelled(name: str) -> bool:
    """Return whether an entry is of a function that calls one of our operators."""
    return function_of(name) in _wrapped_functions()


def calls_of(dump: Dump) -> tuple[tuple[DumpedCall, ...], Mapping[str, str]]:
    """Return the calls of our operators in a dump, and entries that are no call of their function.

    The calls are in the order of the entries with their results; the others have a reason. Calls
    without any result in the dump are left out.
    """
    found: list[DumpedCall] = []
    unreadable: dict[str, str] = {}
    for name, entry in dump.entries.items():
        match = MODULE.fullmatch(name) or NAME.fullmatch(name)
        if match is None or match["direction"] != "forward":
            continue
        for wrapping in _wrapped_functions().get(function_of(name), ()):
            rebuild = _module_call if MODULE.fullmatch(name) else _function_call
            try:
                found += rebuild(dump, entry, wrapping)
            except ValueError as error:
                unreadable[name] = error.args[0]
    places = {name: position for position, name in enumerate(dump.entries)}
    return tuple(sorted(found, key=lambda call: places[call.entry])), unreadable


def arguments_of(entry: Entry) -> dict[str, Any]:
    """Return the arguments of a forward entry by name, ``input 0`` for instance if unknown."""
    wrappings = _wrapped_functions().get(function_of(entry.name))
    names = wrappings[0].function.arguments if wrappings else ()
    return {
        **entry.keywords,
        **entry.parameters,
        **{
            names[place] if place < len(names) else f"input {place}": value
            for place, value in enumerate(entry.inputs)
        },
    }


def _function_call(dump: Dump, forward: Entry, wrapping: _Wrapping) -> Iterator[DumpedCall]:
    backward = dump.partner(forward.name, "backward")
    arguments, gradients = arguments_of(forward), wrapping.function.gradients
    if forward.name.startswith(PYTHON_FUNCTIONS):
        gradients = tuple(
            name
            for name in wrapping.function.arguments
            if isinstance(arguments.get(name), StoredTensor)
        )
    returned = backward.returned if backward is not None else ()
    yield from _rebuilt(
        WrappedCall(
            name=forward.name,
            arguments=arguments,
            outputs=forward.returned,
            output_gradients=backward.inputs if backward is not None else None,
            gradients=dict(zip(gradients, returned, strict=False)),
        ),
        wrapping,
        forward,
        backward,
    )


def _module_call(dump: Dump, forward: Entry, wrapping: _Wrapping) -> Iterator[DumpedCall]:
    """Rebuild a call from a module that is called once, and whose parameters no other one has."""
    match = MODULE.fullmatch(forward.name)
    assert match is not None
    entries = [dump.entries[name] for name in dump.modules[match["module"]]]
    forwards = [entry for entry in entries if entry.parameters]
    gradients = [entry for entry in entries if ".parameters_grad" in entry.name]
    backward = dump.partner(forward.name, "backward")
    if len(forwards) != 1 or len(gradients) != 1 or backward is None:
        return
    if any(_shares_parameter(forward, entry) for entry in dump.entries.values()):
        return
    yield from _rebuilt(
        WrappedCall(
            name=forward.name,
            arguments=arguments_of(forward),
            outputs=forward.returned,
            output_gradients=backward.inputs,
            gradients=gradients[0].outputs,
        ),
        wrapping,
        forward,
        gradients[0],
    )


def _shares_parameter(module: Entry, other: Entry) -> bool:
    """Return whether another module may have the same parameter: equal as far as is recorded."""
    return other is not module and any(
        (parameter.shape, parameter.dtype, parameter.statistics, parameter.checksum)
        == (another.shape, another.dtype, another.statistics, another.checksum)
        for parameter in module.parameters.values()
        for another in other.parameters.values()
        if isinstance(parameter, StoredTensor) and isinstance(another, StoredTensor)
    )


def _rebuilt(
    wrapped: WrappedCall, wrapping: _Wrapping, forward: Entry, last: Entry | None
) -> Iterator[DumpedCall]:
    """Yield the call of an operator, if the dump has one of its results.

    - ``last``: the entry with the gradients.
    """
    rebuilt = wrapping.hook.call(wrapped)
    if rebuilt is None:
        return
    arguments, values = rebuilt
    results = {name: value for name, value in values.items() if isinstance(value, StoredTensor)}
    is_forward = any(result is output for result in results.values() for output in forward.returned)
    entry = forward if is_forward else last
    if results and entry is not None:
        accumulated = ".parameters_grad" in entry.name
        yield DumpedCall(
            wrapping.operator, entry.name, arguments, results, wrapping.hook, accumulated
        )


def contradictions(call: DumpedCall) -> tuple[str, ...]:
    """Return what cannot be in a call whose inputs and results have statistics."""
    arguments, results = (
        {
            name: value
            for name, value in values.items()
            if not isinstance(value, StoredTensor) or value.extremes is not None
        }
        for values in (call.arguments, call.results)
    )
    outside = (
        _outside(name, arguments[name], *legal)
        for name, legal in call.hook.index_ranges(call.arguments).items()
        if isinstance(arguments.get(name), StoredTensor)
    )
    found = tuple(text for text in outside if text)
    try:
        return (*found, *call.hook.contradictions(arguments, results))
    except (AttributeError, KeyError, TypeError, ValueError):
        return found  # arguments of another kind, which statistics contradict in nothing


def _outside(name: str, indices: StoredTensor, size: int, others: tuple[int, ...]) -> str:
    """Return the text of indices beyond their range; empty when all are legal."""
    least, most = indices.extremes or (0.0, 0.0)
    if all(0 <= index < size or index in others for index in (least, most)):
        return ""
    return Text(
        "{name} goes from {least} to {most}; legal: 0 to {last}",
        name=name,
        least=f"{least:.17g}",
        most=f"{most:.17g}",
        last=size - 1,
    )


def remarks(call: DumpedCall) -> Iterator[str]:
    """Yield what is possible but deserves a look: inf or nan that arose here, results of zeros."""
    inputs = [value for value in call.arguments.values() if isinstance(value, StoredTensor)]
    for name, result in call.results.items():
        if not _is_finite(result) and all(map(_is_finite, inputs)):
            yield Text("{output} has inf or nan, the inputs have none", output=name)
        if _is_zero(result) and not any(map(_is_zero, inputs)):
            yield Text("{output} is 0 everywhere, no input is", output=name)


def _is_finite(tensor: StoredTensor) -> bool:
    return all(map(isfinite, tensor.extremes or ()))  # norms of fp16 values may overflow


def _is_zero(tensor: StoredTensor) -> bool:
    return tensor.extremes == (0, 0)
