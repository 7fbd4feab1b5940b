"""Computation of a checked call, once or, prepared, as often as the caller likes.

Outputs are laid out, the operator's kernels fill them, and order masks mark what depends on timing.
"""

import os
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from itertools import zip_longest
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np

from npu_sim.framework.case import Case
from npu_sim.framework.operator import COMPUTE, FILL
from npu_sim.framework.target import Order
from npu_sim.language import Text
from npu_sim.numbers.arrays import (
    Array,
    Arrays,
    Shape,
    address_of,
    aligned,
    as_array,
    dtype_of_name,
    have_own_memory,
    mark_written,
    memory_of,
    overlaps_itself,
)
from npu_sim.numbers.formats import (
    FORMATS,
    UNSIGNED,
    TensorSpec,
    canonical_dtype,
    kernel_input,
    magnitude_patterns,
    storage_view,
)
from npu_sim.plans.answers import Printed
from npu_sim.plans.model import Caveat, Plan, caveat
from npu_sim.status import RUNTIME_FAILURE, AclnnError, UsageError, tip

LARGE_BYTES = 65536
"""Outputs of fewer bytes start wherever NumPy's allocator puts them: it costs less."""
SCAN_ELEMENTS = 1 << 18
"""Elements scanned at once for inf and nan."""


class OrderMask(Printed):
    """Which parts of an output depend on the order of atomic additions.

    A part depends on it when two cores or more add to it, three times or more in all (two additions
    to zero commute), when two cores or more write it, or when a race can overwrite it. All nan
    count as one value.

    Attributes
    ----------
    axis
        What one flag stands for: ``row``, ``column`` or ``element``.
    mask
        Boolean flags; computed when first read if that takes time.
    race
        Code of the plan's warning, where a race can overwrite these parts; else empty.
    """

    def __init__(
        self,
        axis: Literal["row", "column", "element"],
        mask: Array | Callable[[], Array],
        race: str = "",
    ) -> None:
        self.axis = axis
        self._mask = mask
        self.race = race

    @cached_property
    def mask(self) -> Array:
        """Return the flags."""
        return self._mask() if callable(self._mask) else self._mask

    @property
    def count(self) -> int:
        """Number of order-dependent rows, columns or elements."""
        return int(np.count_nonzero(self.mask))

    def as_dict(self) -> dict[str, Any]:
        """Return the counts as plain data."""
        size = int(self.mask.size)
        return {
            "axis": self.axis,
            "order_dependent": self.count,
            "of": size,
            "race": self.race or None,
        }


class Result(Printed):
    """What a run gives.

    Attributes
    ----------
    outputs
        Output arrays by name.
    plan
        The plan of the call; described when it is first read.
    order_dependent
        For every output, which parts can differ between runs.
    seconds
        Wall time by stage: ``plan`` (checks and tiling), ``check`` (of the data), ``compile``,
        ``compute`` ...
    caveats
        Warnings that only the data could tell, besides those of the plan.
    """

    def __init__(
        self,
        outputs: dict[str, Array],
        plan: Plan | Callable[[], Plan],
        order_dependent: dict[str, OrderMask],
        seconds: dict[str, float] | None = None,
        caveats: tuple[Caveat, ...] = (),
    ) -> None:
        self.outputs = outputs
        self._plan = plan
        self.order_dependent = order_dependent
        self.seconds = {} if seconds is None else seconds
        self.caveats = caveats

    @cached_property
    def plan(self) -> Plan:
        """Return the plan."""
        return self._plan() if callable(self._plan) else self._plan

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the arrays as plain data, the form ``--json`` prints."""
        outputs = {
            name: {"shape": list(array.shape), "dtype": str(array.dtype)}
            for name, array in self.outputs.items()
        }
        return {
            "plan": self.plan.as_dict(),
            "outputs": outputs,
            "order_dependent": {
                name: mask.as_dict() for name, mask in self.order_dependent.items()
            },
            "seconds": self.seconds,
            "caveats": [caveat.model_dump(mode="json") for caveat in self.caveats],
        }


class Stopwatch:
    """Wall time by stage.

    ``compile`` and ``load`` are the time for compiling kernels and for loading them from the cache.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def stage(self, name: str) -> "Stage":
        """Time a block of code under a name."""
        return Stage(self, name)

    def add(self, name: str, seconds: float) -> None:
        """Book time for a stage."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


class Untimed(Stopwatch):
    """A stopwatch that measures nothing, for calls whose time is not reported."""

    def stage(self, name: str) -> Any:
        """Do nothing."""
        return _UNTIMED_STAGE


_UNTIMED_STAGE = nullcontext()
UNTIMED = Untimed()


class Stage:
    """One timed block of code; one that ends with an error is not booked.

    A generator of ``contextlib`` would add a tenth to a small call, which has seven stages.
    """

    __slots__ = ("_kernels", "_name", "_passes", "_start", "_watch")

    def __init__(self, watch: Stopwatch, name: str) -> None:
        self._watch, self._name = watch, name

    def __enter__(self) -> None:
        self._start = time.perf_counter()
        self._kernels, self._passes = _kernel_seconds()

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if kind is not None:
            return
        kernels, passes = _kernel_seconds()
        made = kernels - self._kernels
        self._watch.add(self._name, time.perf_counter() - self._start - made)
        if made:
            self._watch.add("compile" if passes > self._passes else "load", made)


def _kernel_seconds() -> tuple[float, float]:
    """Return seconds spent on getting kernels so far, and on the compiler's passes alone."""
    if "numba" not in sys.modules:
        return 0.0, 0.0
    kernels, passes = _kernel_timers()
    return kernels.duration, passes.duration


@cache
def _kernel_timers() -> tuple[Any, Any]:
    """Return listeners to Numba's events, registered once: that takes longer than some stages."""
    from numba.core.event import TimingListener, register

    timers = TimingListener(), TimingListener()
    for kind, timer in zip(("numba:compile", "numba:run_pass"), timers, strict=True):
        # A first measurement, of nothing: a timer without one has no duration.
        timer.on_start(None)
        timer.on_end(None)
        register(kind, timer)
    return timers


class OutputArray(NamedTuple):
    """Memory of one result."""

    written: Array
    """Contiguous array in native byte order that the kernel writes."""
    target: Array
    """View of the memory that receives the result: ``written`` itself, unless the caller's array is
    strided, not aligned or in foreign byte order. Its shape and dtype were checked and cannot
    change, whatever happens to the caller's array."""
    returned: Array
    """The array that the caller gets: the one that was passed as ``out``, or the new one."""


def output_array(
    name: str, out: Any, spec: TensorSpec, taken: list[tuple[str, Array]] | None, in_place: str = ""
) -> OutputArray:
    """Return the memory of one result and add it to ``taken``, the call's other arrays.

    ``taken`` is None when all arrays of the call are known to have memory of their own. The result
    may have the memory of the tensor ``in_place``, element by element.

    Raises
    ------
    UsageError
        When ``out`` has another shape or dtype, gives no memory to write to, or shares memory with
        an input or itself.
    AclnnError
        361001 when there is no memory for a result.
    """
    if out is None:
        array = _new_array(name, spec)
        return OutputArray(array, array, array)
    target = _view_to_write(name, out, spec)
    if taken is not None:
        for other, taken_tensor in taken:
            if other == in_place and is_same_memory(target, taken_tensor):
                continue
            if np.may_share_memory(target, taken_tensor):
                raise UsageError(
                    name,
                    "{name} shares memory with {other}",
                    "pass a separate array",
                    name=name,
                    other=other,
                )
        taken.append((name, target))
    is_direct = target.flags.carray and target.dtype.isnative
    return OutputArray(
        target if is_direct else _new_array(name, spec),
        target,
        out if isinstance(out, np.ndarray) else target,
    )


def is_same_memory(first: Array, second: Array) -> bool:
    """Return whether every element of two arrays has the same place."""
    is_same_form = first.shape == second.shape and first.strides == second.strides
    return is_same_form and address_of(first) == address_of(second)


def _new_array(name: str, spec: TensorSpec) -> Array:
    """Return an array; a large one starts on a cache line, so that whole rows are whole lines."""
    dtype = dtype_of_name(spec.dtype)
    is_large = prod(spec.shape) * dtype.itemsize >= LARGE_BYTES
    try:
        return aligned(spec.shape, dtype) if is_large else np.empty(spec.shape, dtype)
    except (MemoryError, ValueError):
        raise AclnnError(
            RUNTIME_FAILURE,
            name,
            "{name} {spec} takes {nbytes} bytes, which this machine does not have",
            "a plan needs no memory for it",
            name=name,
            spec=spec,
            nbytes=spec.nbytes,
        ) from None


def _view_to_write(name: str, out: Any, spec: TensorSpec) -> Array:
    """Return a checked view of the caller's memory, unaffected by changes to the array's shape."""
    try:
        array = memory_of(out).view(np.ndarray)
        if (
            array.shape == spec.shape
            and array.dtype == dtype_of_name(spec.dtype)
            and array.flags.carray
        ):
            return array
        given = TensorSpec(array.shape, canonical_dtype(array.dtype.newbyteorder("=")))
    except (TypeError, ValueError) as error:
        raise UsageError(
            name,
            "{name} cannot be written in place: {error}",
            "pass an array of {spec}, or leave it out",
            name=name,
            error=error,
            spec=spec,
        ) from None
    if given.shape != spec.shape or given.dtype != spec.dtype:
        raise UsageError(
            name,
            "{name} is {given}, the result is {spec}",
            "pass an array of {spec}",
            name=name,
            given=given,
            spec=spec,
        )
    if not array.flags.writeable:
        raise UsageError(name, "{name} cannot be written", "pass a writable array", name=name)
    if overlaps_itself(array):
        raise UsageError(
            name,
            "{name} has elements that share memory: strides {strides}",
            "pass a separate array",
            name=name,
            strides=array.strides,
        )
    return array


def runtime_failure(argument: str, message: str, hint: str) -> AclnnError:
    """Return the error for data that is out of bounds on the device: 361001."""
    return AclnnError(RUNTIME_FAILURE, argument, message, hint)


def unsupported_values(tensors: Arrays) -> tuple[Caveat, ...]:
    """Return a caveat for every input with inf or nan.

    Saturating products do not support these values ("边界值场景说明").
    """
    caveats = []
    for name, array in tensors.items():
        stored = kernel_input(array).reshape(-1)
        mask, infinity = magnitude_patterns(FORMATS[canonical_dtype(array.dtype)])
        bits = stored.view(UNSIGNED[stored.itemsize])
        found = sum(
            int(np.count_nonzero((bits[start : start + SCAN_ELEMENTS] & mask) >= infinity))
            for start in range(0, bits.size, SCAN_ELEMENTS)
        )
        if found:
            caveats.append(
                caveat(
                    "inf_or_nan_input",
                    name,
                    "{name} has {found} elements that are inf or nan, which this product does not "
                    "support: results are a model",
                    name=name,
                    found=found,
                    not_modelled="*",
                )
            )
    return tuple(caveats)


@dataclass
class Run:
    """A call with its data, as an operator computes it."""

    case: Case
    """The checked call."""
    tensors: Mapping[str, Array]
    """The inputs by name, as they were given; those that address memory are copies, see
    ``Tensor.addresses``."""
    outputs: dict[str, Array]
    """The results by name: contiguous arrays to write to."""
    watch: Stopwatch
    """Collects time by stage."""
    masks: dict[str, Array | Callable[[], Array]] = field(default_factory=dict)
    """To fill in: which parts of an output depend on the order; outputs that are not named do
    not."""
    races: dict[str, str] = field(default_factory=dict)
    """To fill in: codes of the warnings on races, by the outputs whose masks state them."""
    caveats: tuple[Caveat, ...] = ()
    """To fill in: warnings that only the data could tell."""

    @property
    def order(self) -> Order:
        """Order in which the atomic additions of different cores arrive."""
        return self.case.target.order

    def stored(self, name: str) -> Array:
        """Return an input as kernels read it: contiguous, native order, 16-bit values as stored."""
        return kernel_input(self.tensors[name])

    def written(self, name: str) -> Array:
        """Return a result as kernels write it; integers as they are."""
        array = self.outputs[name]
        return array if array.dtype.kind in "iu" else storage_view(array)

    @cached_property
    def shapes(self) -> dict[str, Shape]:
        """Shapes of the results."""
        return {name: array.shape for name, array in self.outputs.items()}


def compute_case(
    case: Case,
    tensors: Mapping[str, Array],
    outs: tuple[Any, ...] = (),
    watch: Stopwatch | None = None,
) -> Result:
    """Compute a checked call; see :func:`npu_sim.run`.

    - ``outs``: arrays to write the results to, one for every output in order; new ones where None.

    Raises
    ------
    AclnnError
        361001 when the data is out of bounds; no output is written then.
    """
    watch = watch or Stopwatch()
    run, results = _compute(case, tensors, outs, watch)
    return Result(results, partial(_plan, case), _order_masks(run), watch.seconds, run.caveats)


def _plan(case: Case) -> Plan:
    from npu_sim.framework.planning import plan_of  # computing alone needs no plan

    return plan_of(case, plans_flips=True)


def _compute(
    case: Case, tensors: Mapping[str, Array], outs: tuple[Any, ...], watch: Stopwatch = UNTIMED
) -> tuple[Run, dict[str, Array]]:
    """Compute a checked call; return the run, and by name the arrays that the caller gets.

    Arguments are as for :func:`compute_case`.
    """
    operator = case.operator
    _require_whole_files(tensors)
    _require_room(tensors)
    arrays = _output_arrays(case, tensors, outs)
    written = {name: array.written for name, array in arrays.items()}
    with watch.stage("check"):
        copied = own_copies(operator.addressing, tensors)
    run = Run(case, copied, written, watch)
    if case.empty and not operator.has_hook(FILL):
        for array in written.values():
            array.fill(0)
    else:
        with watch.stage("load"):
            compute = operator.hook(FILL if case.empty else COMPUTE)
        try:
            compute(run)
        except IndexError as error:
            if not operator.is_foreign:
                raise
            raise UsageError(
                "compute", "{operator}: {error}", operator=operator.name, error=error
            ) from None
    with watch.stage("compute"):
        _finish(run, arrays)
    for out in outs:
        mark_written(out)
    return run, {name: array.returned for name, array in arrays.items()}


def _require_room(tensors: Mapping[str, Array]) -> None:
    """Refuse inputs whose contiguous copies, which kernels read, exceed the machine's memory."""
    copied = {name: array for name, array in tensors.items() if not array.flags.c_contiguous}
    if not copied:
        return
    limit, total = memory_bytes(), sum(array.nbytes for array in copied.values())
    if total <= limit:
        return
    name, given = max(copied.items(), key=lambda item: item[1].nbytes)
    raise AclnnError(
        RUNTIME_FAILURE,
        name,
        "{name} {spec} takes {nbytes} bytes as a contiguous copy, this machine has {limit}"
        if given.nbytes > limit
        else "{names} take {total} bytes as contiguous copies, this machine has {limit}",
        "a plan needs no memory for it",
        name=name,
        spec=TensorSpec(given.shape, canonical_dtype(given.dtype.newbyteorder("="))),
        nbytes=given.nbytes,
        names=", ".join(copied),
        total=total,
        limit=limit,
    )


def _require_whole_files(tensors: Mapping[str, Array]) -> None:
    """Refuse inputs in memory-mapped files that are shorter than their maps: reading ends Python.

    Only maps from the start of a file are seen, since a map does not state where it starts.
    """
    for name, given in tensors.items():
        base: object = given
        while isinstance(base, np.ndarray):
            base = base.base
        if base is None:
            continue
        from mmap import mmap

        if isinstance(base, mmap) and base.size() < len(base):
            raise UsageError(
                name,
                "{name} is in a memory-mapped file that now has {now} of {mapped} bytes",
                "write the whole file again, then map it again",
                name=name,
                now=base.size(),
                mapped=len(base),
            )


def memory_bytes() -> int:
    """Return the size of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def outputs_of(case: Case, tensors: Mapping[str, Array], out: Any) -> Any:
    """Compute a checked call; return its result, or a tuple with None for outputs not written.

    - ``out``: as for :func:`npu_sim.run`.
    """
    _, results = _compute(case, tensors, arrays_of(out))
    names = case.operator.result_names
    return results[names[0]] if len(names) == 1 else tuple(map(results.get, names))


def arrays_of(out: Any) -> tuple[Any, ...]:
    """Return what a caller gave as ``out``: nothing, an array, or one for every output."""
    if out is None:
        return ()
    return tuple(out) if isinstance(out, tuple | list) else (out,)


def _output_arrays(
    case: Case, tensors: Mapping[str, Array], outs: tuple[Any, ...]
) -> dict[str, OutputArray]:
    """Return the memory of every result that is written, by name."""
    outputs = case.operator.outputs
    if len(outs) > len(outputs):
        raise UsageError(
            "out",
            "out has {outs_count} arrays",
            "one for every output: {names}",
            outs_count=len(outs),
            names=", ".join(output.output for output in outputs),
        )
    others = [out for out in outs if out is not None]
    taken = (
        None
        if not others or have_own_memory((*tensors.values(), *others))
        else list(tensors.items())
    )
    arrays = {}
    for output, out in zip_longest(outputs, outs):
        spec = case.specs.get(output.name)
        if spec is not None:
            arrays[output.output] = output_array(
                output.name, out, spec.plain(), taken, output.in_place
            )
    return arrays


def _finish(run: Run, arrays: Mapping[str, OutputArray]) -> None:
    """Apply what the product does to results that leave its range, and hand results over.

    Raises UsageError when ``compute`` did not keep the array of an output.
    """
    case = run.case
    saturates = case.profile.saturates and not case.empty
    for name, (written, target, _) in arrays.items():
        if run.outputs.get(name) is not written:
            raise UsageError(
                "compute",
                "{operator}: compute removed or replaced its output {name}",
                "write to the array: run.outputs[{key}][...] = value",
                operator=case.operator.name,
                name=name,
                key=repr(name),
            )
        if saturates:
            from npu_sim.kernels.shared.elementwise import saturate

            saturate(written)
        if target is not written:
            np.copyto(target, written)


def _order_masks(run: Run) -> dict[str, OrderMask]:
    masks = {}
    for output in run.case.outputs:
        name, parts = output.output, output.parts
        mask = run.masks.get(name)
        if mask is None:
            mask = partial(_no_part, run.outputs[name].shape, parts)
        masks[name] = OrderMask(parts, mask, run.races.get(name, ""))
    return masks


def _no_part(shape: Shape, parts: str) -> Array:
    """Return the mask of an output of which no part depends on timing."""
    if parts == "element":
        return np.broadcast_to(np.False_, shape)
    return np.zeros(prod(shape[:-1] if len(shape) > 1 and parts == "row" else shape), np.bool_)


def own_copies(addressing: Collection[str], tensors: Arrays) -> Arrays:
    """Return the tensors of a call, with copies of those that address memory.

    See ``Tensor.addresses``.
    """
    if addressing:
        return {**tensors, **{name: tensors[name].copy() for name in addressing if name in tensors}}
    return tensors


class Prepared(Printed):
    """A checked and planned call, to be computed any number of times; see :func:`npu_sim.prepare`.

    Attributes
    ----------
    plan
        The plan of every call.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        self._names = case.operator.input_names
        self._wanted = {name: _layout(case.specs.get(name)) for name in self._names}
        self._needed = frozenset(
            name for name, wanted in self._wanted.items() if wanted is not None
        )

    @cached_property
    def plan(self) -> Plan:
        """Return the plan."""
        return _plan(self._case)

    def __call__(self, *tensors: Any, out: Any = None, **named: Any) -> Any:
        """Compute the call with some data.

        Parameters
        ----------
        *tensors, **named
            The input tensors, in the order of the public function or by name, as prepared.
        out
            As for :func:`npu_sim.run`.

        Returns
        -------
        ndarray or tuple of ndarray
            The results, as the public function gives them.

        Raises
        ------
        UsageError
            For a tensor that the call was not prepared for, and for one that is missing.
        AclnnError
            361001 when the data is out of bounds; ``out`` is then untouched.
        TypeError
            For more tensors than the operator has, or one given twice.
        """
        if len(tensors) > len(self._names):
            raise TypeError(
                Text(
                    "{tensors_count} tensors; {name} takes {names}",
                    tensors_count=len(tensors),
                    name=self._case.operator.name,
                    names=", ".join(self._names),
                )
            )
        given = dict(zip(self._names, tensors, strict=False))
        if not named.keys().isdisjoint(given):
            raise TypeError(
                Text("given twice: {keys}", keys=", ".join(named.keys() & given.keys()))
            )
        given |= named
        arrays = {
            name: self._array(name, value) for name, value in given.items() if value is not None
        }
        if not self._needed <= arrays.keys():
            name = next(name for name in self._names if name in self._needed and name not in arrays)
            raise UsageError(
                name,
                "{name} is missing",
                "the call was prepared with {name} {specs}",
                name=name,
                specs=self._case.specs[name],
            )
        return outputs_of(self._case, arrays, out)

    def _array(self, name: str, value: Any) -> Array:
        # A view: shape and strides of the caller's array may change under the call.
        array = (
            value.view() if type(value) is np.ndarray and value.dtype.isnative else as_array(value)
        )
        if (array.shape, array.dtype, array.flags.c_contiguous) == self._wanted.get(name):
            return array
        if name not in self._wanted:
            raise UsageError(
                name,
                "{name}: no such tensor",
                "{tip}tensors: {names}",
                name=name,
                names=", ".join(self._names),
                tip=tip(name, self._names),
            )
        prepared = (
            "without it"
            if self._wanted[name] is None
            else Text("for {specs}", specs=self._case.specs[name])
        )
        raise UsageError(
            name,
            "{name} is {spec}, the call was prepared {prepared}",
            "prepare a call for every shape and dtype",
            name=name,
            spec=TensorSpec.of(array),
            prepared=prepared,
        )


def _layout(spec: TensorSpec | None) -> tuple[Any, ...] | None:
    return None if spec is None else (spec.shape, dtype_of_name(spec.dtype), spec.contiguous)
