"""Computing a checked call: outputs are laid out, the operator's kernels fill them, and the result knows what depends on timing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import prod
from typing import Any

import numpy as np

from npu_sim.cores import Profile
from npu_sim.framework.arguments import Arguments, Output
from npu_sim.framework.case import Case
from npu_sim.framework.flips import plan_with_results
from npu_sim.framework.inputs import own_copies
from npu_sim.framework.operator import Operator
from npu_sim.framework.results import (
    UNTIMED,
    OrderMask,
    OutputArray,
    Result,
    Stopwatch,
    output_array,
)
from npu_sim.framework.target import Limits, Order
from npu_sim.numbers.arrays import have_own_memory
from npu_sim.numbers.formats import TensorSpec
from npu_sim.numbers.storage import kernel_input, storage_view
from npu_sim.plans.areas import Areas, contiguous
from npu_sim.plans.model import Caveat
from npu_sim.status import UsageError

Array = np.ndarray[Any, Any]


@dataclass
class Run:
    """A call with its data, as an operator computes it.

    Attributes
    ----------
    case
        The checked call.
    tensors
        The inputs by name, as they were given; those that address memory are copies, see ``Tensor.addresses``.
    outputs
        The results by name: contiguous arrays to write to.
    order
        Order in which the atomic additions of different cores arrive.
    areas
        The workspace, when the call has one in memory; None otherwise.
    watch
        Collects time by stage.
    masks
        To fill in: which parts of an output depend on the order; outputs that are not named do not.
    caveats
        To fill in: warnings that only the data could tell.
    """

    case: Case
    tensors: Mapping[str, Array]
    outputs: dict[str, Array]
    order: Order
    areas: Areas | None
    watch: Stopwatch
    masks: dict[str, Array | Callable[[], Array]] = field(default_factory=dict)
    caveats: tuple[Caveat, ...] = ()

    def stored(self, name: str) -> Array:
        """Return an input as kernels read it: contiguous, in native order, 16-bit values as they are stored.

        The workspace belongs to the caller as well: what addresses memory is put there, and not read from there.
        """
        given = self.tensors[name]
        if self.areas is None:
            return kernel_input(given)
        placed = contiguous(name, given, self.areas)
        return kernel_input(given if name in self.case.operator.addressing else placed)

    def written(self, name: str) -> Array:
        """Return a result as kernels write it; whole numbers as they are."""
        array = self.outputs[name]
        return array if array.dtype.kind in "iu" else storage_view(array)

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the results."""
        return {name: array.shape for name, array in self.outputs.items()}


def execute(
    operator: Operator,
    arguments: Arguments,
    tensors: Mapping[str, Array],
    profile: Profile,
    *,
    deterministic: bool,
    order: Order,
    limits: Limits,
    outs: tuple[Any, ...] = (),
    areas: Areas | None = None,
) -> Result:
    """Check, plan and compute one call; see :func:`npu_sim.run`.

    Parameters
    ----------
    outs
        Arrays to write the results to, one for every output in order; new ones where None.
    areas
        The workspace in memory: what the plan keeps there then passes through it.

    Raises
    ------
    AclnnError
        With the product's status when the call is refused, 361001 when the data is out of bounds; no output is written then.
    """
    watch = Stopwatch()
    with watch.stage("plan"):
        case = operator.check(arguments, profile, deterministic, limits)
    return compute_case(case, tensors, order, outs, areas, watch)


def compute_case(
    case: Case,
    tensors: Mapping[str, Array],
    order: Order,
    outs: tuple[Any, ...] = (),
    areas: Areas | None = None,
    watch: Stopwatch | None = None,
) -> Result:
    """Compute a checked call; arguments as for :func:`execute`."""
    watch = watch or Stopwatch()
    run, given = computed(case, tensors, order, outs, areas, watch)
    return Result(
        given, partial(plan_with_results, case), _order_masks(run), watch.seconds, run.caveats
    )


def computed(
    case: Case,
    tensors: Mapping[str, Array],
    order: Order,
    outs: tuple[Any, ...] = (),
    areas: Areas | None = None,
    watch: Stopwatch = UNTIMED,
) -> tuple[Run, dict[str, Array]]:
    """Compute a checked call, arguments as for :func:`execute`; return the run, and by name the arrays that the caller gets."""
    operator = case.operator
    arrays = _output_arrays(case, tensors, outs)
    written = {name: one.written for name, one in arrays.items()}
    with watch.stage("check"):
        own = own_copies(operator.addressing, tensors)
    run = Run(case, own, written, order, areas, watch)
    if case.empty and operator.fill is None:
        for array in written.values():
            array.fill(0)
    else:
        with watch.stage("load"):
            compute = operator.hook("fill" if case.empty else "compute")
        compute(run)
    with watch.stage("compute"):
        _finish(run, arrays)
    return run, {name: one.returned for name, one in arrays.items()}


def outputs_of(case: Case, tensors: Mapping[str, Array], order: Order, out: Any) -> Any:
    """Compute a checked call; return its result, or a tuple of all results with None for one that is not written.

    Parameters
    ----------
    out
        As for :func:`npu_sim.run`.
    """
    _, given = computed(case, tensors, order, arrays_of(out))
    names = case.operator.result_names
    return given[names[0]] if len(names) == 1 else tuple(given.get(name) for name in names)


def arrays_of(out: Any) -> tuple[Any, ...]:
    """Return what a caller gave as ``out``: nothing, an array, or one for every output."""
    return () if out is None else tuple(out) if isinstance(out, tuple | list) else (out,)


def _output_arrays(
    case: Case, tensors: Mapping[str, Array], outs: tuple[Any, ...]
) -> dict[str, OutputArray]:
    """Return the memory of every result that is written, by name."""
    outputs = case.operator.outputs
    if len(outs) > len(outputs):
        names = ", ".join(one.output for one in outputs)
        raise UsageError("out", f"out has {len(outs)} arrays", f"one for every output: {names}")
    others = [out for out in outs if out is not None]
    taken = (
        None
        if not others or have_own_memory((*tensors.values(), *others))
        else list(tensors.items())
    )
    arrays = {}
    for place, one, spec in case.once(_written_specs):
        arrays[one.output] = output_array(
            one.name, outs[place] if place < len(outs) else None, spec, taken
        )
    return arrays


def _written_specs(case: Case) -> tuple[tuple[int, Output, TensorSpec], ...]:
    """Return every output that is written, its place among all outputs, and what a new array for it looks like."""
    specs = [
        (place, one, case.specs.get(one.name)) for place, one in enumerate(case.operator.outputs)
    ]
    return tuple((place, one, spec.plain()) for place, one, spec in specs if spec is not None)


def _finish(run: Run, arrays: Mapping[str, OutputArray]) -> None:
    """Apply what the product does to results that leave its range, and hand results over."""
    case = run.case
    saturates = case.profile.saturates and not case.empty
    for name, array in run.outputs.items():
        if saturates:
            from npu_sim.kernels.elementwise import saturate

            saturate(array)
        if array is not arrays[name].target:
            np.copyto(arrays[name].target, array)


def _order_masks(run: Run) -> dict[str, OrderMask]:
    masks = {}
    for one in run.case.outputs:
        found = run.masks.get(one.output)
        masks[one.output] = OrderMask(
            one.parts, _fixed(run.outputs[one.output], one.parts) if found is None else found
        )
    return masks


def _fixed(array: Array, parts: str) -> Array:
    """Return a mask that says no part depends on timing."""
    if parts == "element":
        return np.broadcast_to(np.False_, array.shape)
    return np.zeros(
        prod(array.shape[:-1]) if array.ndim > 1 and parts == "row" else array.size, np.bool_
    )
