"""What a run is asked and what it gives: the order of arrival, the outputs, which parts depend on the order, and the time it took."""

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cache, cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from npu_sim.numbers.arrays import memory_of, overlaps_itself
from npu_sim.numbers.formats import FORMATS, TensorSpec, canonical_dtype, numpy_dtype
from npu_sim.numbers.storage import UNSIGNED, kernel_input, magnitude_patterns
from npu_sim.plans.answers import Printed
from npu_sim.plans.model import Caveat, Plan
from npu_sim.status import RUNTIME_FAILURE, AclnnError, UsageError

SCAN_ELEMENTS = 1 << 18
"""Elements scanned at once for inf and nan."""


class OrderMask(Printed):
    """Which parts of an output depend on the order of atomic additions.

    Attributes
    ----------
    axis
        What one flag stands for: ``row``, ``column`` or ``element``.
    mask
        Boolean flags; found when they are first asked for where that takes time.
    """

    def __init__(
        self, axis: Literal["row", "column", "element"], mask: np.ndarray | Callable[[], np.ndarray]
    ) -> None:
        self.axis = axis
        self._mask = mask

    @cached_property
    def mask(self) -> np.ndarray:
        """Return the flags."""
        return self._mask() if callable(self._mask) else self._mask

    @property
    def count(self) -> int:
        """Number of order-dependent rows, columns or elements."""
        return int(np.count_nonzero(self.mask))

    def as_dict(self) -> dict[str, Any]:
        """Return the counts as plain data."""
        return {"axis": self.axis, "order_dependent": self.count, "of": int(self.mask.size)}


class Result(Printed):
    """What a run gives.

    Attributes
    ----------
    outputs
        Output arrays by name.
    plan
        The plan that was carried out; put into words when it is first asked for.
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
        outputs: dict[str, np.ndarray],
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
    """Collects wall time by stage, whichever stage it fell into: ``compile`` what Numba compiled, ``load`` what it read from its cache."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def stage(self, name: str) -> "Stage":
        """Time a block of code under a name."""
        return Stage(self, name)

    def add(self, name: str, seconds: float) -> None:
        """Book time for a stage."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


class Untimed(Stopwatch):
    """Stands for a stopwatch where nobody asks how long a call took."""

    def stage(self, name: str) -> Any:
        """Do nothing."""
        return _UNTIMED_STAGE


_UNTIMED_STAGE = nullcontext()
UNTIMED = Untimed()


class Stage:
    """One timed block of code; one that ends with an error is not booked."""

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
    """Return how long Numba made kernels so far, from its cache or by compiling, and how long the passes of its compiler took."""
    if "numba" not in sys.modules:
        return 0.0, 0.0
    kernels, passes = (timer.duration if timer.done else 0.0 for timer in _kernel_timers())
    return kernels, passes


@cache
def _kernel_timers() -> tuple[Any, Any]:
    """Return what listens to Numba from the first call on: listening anew for every stage takes longer than some stages."""
    from numba.core.event import TimingListener, register

    timers = TimingListener(), TimingListener()
    for kind, timer in zip(("numba:compile", "numba:run_pass"), timers, strict=True):
        register(kind, timer)
    return timers


class OutputArray(NamedTuple):
    """Memory of one result.

    Attributes
    ----------
    written
        Contiguous array in native byte order that the kernel writes.
    target
        View of the memory that receives the result: ``written`` itself, unless the caller's array
        is strided, not aligned or in foreign byte order. Its shape and dtype were checked and
        cannot change, whatever happens to the caller's array.
    returned
        The array that the caller gets: the one that was passed as ``out``, or the new one.
    """

    written: np.ndarray
    target: np.ndarray
    returned: np.ndarray


def output_array(
    name: str, out: Any, spec: TensorSpec, taken: list[tuple[str, np.ndarray]] | None
) -> OutputArray:
    """Return the memory of one result, and add it to ``taken``, the memory of the other arrays of the call.

    ``taken`` is None when all arrays of the call are known to have memory of their own.

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
        for other, one in taken:
            if np.may_share_memory(target, one):
                raise UsageError(
                    name, f"{name} shares memory with {other}", "pass an array of its own"
                )
        taken.append((name, target))
    in_place = target.flags.carray and target.dtype.isnative
    return OutputArray(
        target if in_place else _new_array(name, spec),
        target,
        out if isinstance(out, np.ndarray) else target,
    )


def _new_array(name: str, spec: TensorSpec) -> np.ndarray:
    try:
        return np.empty(spec.shape, numpy_dtype(spec.dtype))
    except (MemoryError, ValueError):
        message = f"{name} {spec} takes {spec.nbytes} bytes, which this machine does not have"
        raise AclnnError(
            RUNTIME_FAILURE, name, message, "npu_sim.plan needs no memory for it"
        ) from None


def _view_to_write(name: str, out: Any, spec: TensorSpec) -> np.ndarray:
    """Return a checked view of the caller's memory; another thread may set shape, strides or dtype of the caller's array meanwhile."""
    try:
        array = memory_of(out).view(np.ndarray)
        if (
            array.shape == spec.shape
            and array.dtype == numpy_dtype(spec.dtype)
            and array.flags.carray
        ):
            return array
        given = TensorSpec(array.shape, canonical_dtype(array.dtype.newbyteorder("=")))
    except (TypeError, ValueError) as error:
        message = f"{name} cannot be written in place: {error}"
        raise UsageError(name, message, f"pass an array of {spec}, or leave it out") from None
    if given.shape != spec.shape or given.dtype != spec.dtype:
        raise UsageError(
            name, f"{name} is {given}, the result is {spec}", f"pass an array of {spec}"
        )
    if not array.flags.writeable:
        raise UsageError(name, f"{name} cannot be written", "pass a writable array")
    if overlaps_itself(array):
        raise UsageError(
            name,
            f"{name} has elements that share memory: strides {array.strides}",
            "pass an array of its own",
        )
    return array


def runtime_failure(argument: str, message: str, hint: str) -> AclnnError:
    """Return the error for data that is out of bounds on the device: 361001."""
    return AclnnError(RUNTIME_FAILURE, argument, message, hint)


def unsupported_values(tensors: Mapping[str, np.ndarray]) -> tuple[Caveat, ...]:
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
            message = (
                f"{name} has {found} elements that are inf or nan, which this product does not "
                "support: results are a model"
            )
            caveats.append(Caveat(code="inf_or_nan_input", argument=name, message=message))
    return tuple(caveats)
