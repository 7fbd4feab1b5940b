"""What every operator's contract is built from: arguments, common checks, results."""

import dataclasses
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np

from npu_sim.cores import Profile
from npu_sim.formats import TensorSpec, as_array, numpy_dtype
from npu_sim.plan_model import Caveat, Plan, Workspace
from npu_sim.status import INVALID, MISSING, RUNTIME_FAILURE, AclnnError, Status

Limits = Literal["documented", "hardware"]
LIMITS: tuple[Limits, ...] = ("documented", "hardware")
CoreOrder = Literal["sequential", "reverse", "round_robin", "random"]
CORE_ORDERS: tuple[CoreOrder, ...] = ("sequential", "reverse", "round_robin", "random")
"""Orders in which the atomic additions of different cores may arrive (specification page ``numerics``); kernels take the position."""
MAX_RANK = 8
"""Highest rank of any tensor ("支持维度" of the product documents)."""


def tensor(text: str, *, optional: bool = False, output: bool = False) -> Any:
    """Declare a tensor argument; ``output`` marks one whose spec may be left out (it is then inferred)."""
    return field(default=None, metadata={"kind": "tensor", "help": text, "optional": optional or output, "output": output})


def attribute(text: str, **default: Any) -> Any:
    """Declare an attribute: a number, a switch or a word."""
    return field(metadata={"kind": "attribute", "help": text}, **default)


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Base of an operator's arguments; fields are declared with :func:`tensor` and :func:`attribute`."""

    OUTPUTS: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def tensors(cls, *, inputs_only: bool = False) -> tuple[str, ...]:
        """Names of the tensor arguments, inputs first as declared."""
        fields = [one for one in dataclasses.fields(cls) if one.metadata["kind"] == "tensor"]
        return tuple(one.name for one in fields if not (inputs_only and one.metadata["output"]))

    @classmethod
    def attributes(cls) -> tuple[str, ...]:
        """Names of the arguments that are not tensors."""
        return tuple(one.name for one in dataclasses.fields(cls) if one.metadata["kind"] == "attribute")

    @classmethod
    def build(cls, values: Mapping[str, Any]) -> Self:
        """Build arguments from what a caller passed: tensors as specs, as text ``"4096x512:bf16"`` or as arrays.

        Raises
        ------
        AclnnError
            161002 for an unknown argument or a tensor that is none; 161001 for a required attribute that is missing.
        """
        known = {one.name: one for one in dataclasses.fields(cls)}
        for name in values:
            if name not in known:
                raise AclnnError(INVALID, name, f"{name}: no such argument", f"arguments: {', '.join(known)}")
        built = {}
        for name, one in known.items():
            required = one.metadata["kind"] == "attribute" and one.default is dataclasses.MISSING
            if name in values:
                built[name] = _spec_of(name, values[name]) if one.metadata["kind"] == "tensor" else values[name]
            elif required:
                raise AclnnError(MISSING, name, f"{name} is missing", one.metadata["help"])
        return cls(**built)

    def as_dict(self) -> dict[str, Any]:
        """Return the arguments as plain data: tensors as text, attributes as they are."""
        values = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        return {name: str(value) if isinstance(value, TensorSpec) else value for name, value in values.items() if value is not None}


def _spec_of(name: str, value: Any) -> TensorSpec | None:
    if value is None or isinstance(value, TensorSpec):
        return value
    try:
        return TensorSpec.parse(value) if isinstance(value, str) else TensorSpec.of(value)
    except (ValueError, TypeError) as error:
        raise AclnnError(INVALID, name, f"{name}: {error}", "give a TensorSpec, a text such as '4096x512:bf16', or an array") from None


@dataclass(frozen=True)
class Order:
    """Which of the legal orders of atomic additions a run takes.

    Attributes
    ----------
    core_order
        One of ``CORE_ORDERS``.
    seed
        Seed of ``random``; other orders ignore it.
    """

    core_order: CoreOrder = "sequential"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.core_order not in CORE_ORDERS:
            message = f"core_order = {self.core_order!r} is not an order"
            raise AclnnError(INVALID, "core_order", message, f"orders: {', '.join(CORE_ORDERS)}")
        if not 0 <= self.seed < 2**64:
            raise AclnnError(INVALID, "seed", f"seed = {self.seed} is not an unsigned 64-bit number", "0 <= seed < 2^64")

    @property
    def code(self) -> int:
        """Position in ``CORE_ORDERS``, as kernels take it."""
        return CORE_ORDERS.index(self.core_order)


class OrderMask:
    """Which parts of an output depend on the order of atomic additions.

    Attributes
    ----------
    axis
        What one flag stands for: ``row``, ``column`` or ``element``.
    mask
        Boolean flags; found when they are first asked for where that takes time.
    """

    def __init__(self, axis: Literal["row", "column", "element"], mask: np.ndarray | Callable[[], np.ndarray]) -> None:
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


class Result:
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
        Wall time by stage: ``plan`` (checks and tiling), ``check`` (of the data), ``compile``, ``compute`` ...
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
        outputs = {name: {"shape": list(array.shape), "dtype": str(array.dtype)} for name, array in self.outputs.items()}
        return {
            "plan": self.plan.as_dict(),
            "outputs": outputs,
            "order_dependent": {name: mask.as_dict() for name, mask in self.order_dependent.items()},
            "seconds": self.seconds,
            "caveats": [caveat.model_dump(mode="json") for caveat in self.caveats],
        }

    def _repr_html_(self) -> str:
        """Return the report as notebooks show it."""
        from npu_sim.reports import embedded, result_report

        return embedded(result_report(self))


def empty_fields(path: str) -> dict[str, Any]:
    """Return the plan fields of a call that runs no kernel; ``path`` says why and what the outputs are."""
    return {"kernel": "", "path": path, "block_dim": 0, "workspace": Workspace(total_bytes=0, kernel_bytes=0, parts=())}


def assemble_plan(
    operator: str,
    title: str,
    arguments: Arguments,
    profile: Profile,
    fields: Mapping[str, Any],
    *,
    deterministic: bool,
    limits: Limits,
    on_cube: bool = False,
) -> Plan:
    """Join what a call says, what it is planned for, and what its planner found; ``on_cube`` names the kind of cores."""
    device = profile.device
    return Plan(
        operator=operator,
        title=title,
        product=profile.name,
        product_title=profile.product.title,
        soc=profile.soc,
        deterministic=deterministic,
        limits=limits,
        arguments=arguments.as_dict(),
        cores_available=device.cube_cores if on_cube else device.vector_cores,
        core_kind=profile.cube_core_kind if on_cube else profile.vector_core_kind,
        **fields,
    )


class Stopwatch:
    """Collects wall time by stage; time in Numba's compiler is booked as ``compile``, whichever stage it fell into."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a block of code under a name."""
        start = time.perf_counter()
        with _compile_seconds() as compiling:
            yield
        compiled = sum(compiling)
        self._add(name, time.perf_counter() - start - compiled)
        if compiled:
            self._add("compile", compiled)

    def _add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


@contextmanager
def _compile_seconds() -> Iterator[list[float]]:
    """Collect how long Numba compiles; nothing when Numba is not loaded."""
    found: list[float] = []
    if "numba" not in sys.modules:
        yield found
        return
    from numba.core.event import install_timer

    with install_timer("numba:compile", found.append):
        yield found


def require_tensors(arguments: Arguments) -> None:
    """Check 1 of every contract: a missing tensor gives 161001."""
    for one in dataclasses.fields(arguments):
        if one.metadata["kind"] == "tensor" and not one.metadata["optional"] and getattr(arguments, one.name) is None:
            raise AclnnError(MISSING, one.name, f"{one.name} is missing", f"{one.name}: {one.metadata['help']}")


def require_product(operator: str, title: str, profile: Profile, supporting: Sequence[str] = ()) -> None:
    """Check that the product supports an operator; 161002 otherwise."""
    if operator not in profile.product.operators:
        hint = f"supported by: {', '.join(supporting)}" if supporting else "see: npu-sim products"
        message = f"{title} is not supported on {profile.product.title} ({profile.name})"
        raise AclnnError(INVALID, "profile", message, hint)


def require_dtype(name: str, spec: TensorSpec, allowed: Sequence[str], where: str) -> None:
    """Check a dtype against a list; 161002 otherwise."""
    if spec.dtype not in allowed:
        raise AclnnError(INVALID, name, f"{name} is {spec.dtype}, which {where} does not support", f"supported: {', '.join(allowed)}")


def require_limits(limits: str) -> Limits:
    """Check the ``limits`` switch."""
    for known in LIMITS:
        if limits == known:
            return known
    raise AclnnError(INVALID, "limits", f"limits = {limits!r} is not a set of limits", f"one of: {', '.join(LIMITS)}")


def require_int(name: str, value: Any, low: int, high: int, status: Status = INVALID) -> int:
    """Check that an attribute is a whole number in a range."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise AclnnError(status, name, f"{name} = {value!r} is not a whole number", f"{low} <= {name} <= {high}")
    if not low <= int(value) <= high:
        raise AclnnError(status, name, f"{name} = {value} is out of range", f"{low} <= {name} <= {high}")
    return int(value)


def require_bool(name: str, value: Any) -> bool:
    """Check that an attribute is a switch."""
    if not isinstance(value, bool | np.bool_):
        raise AclnnError(INVALID, name, f"{name} = {value!r} is not a switch", f"{name}: True or False")
    return bool(value)


def output_array(name: str, out: Any, spec: TensorSpec, inputs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the array a kernel writes and the one the caller gets: the same one unless ``out`` is strided or not aligned.

    Raises
    ------
    AclnnError
        161002 when ``out`` has another shape or dtype, cannot be written, or shares memory with an input.
    """
    if out is None:
        array = np.empty(spec.shape, numpy_dtype(spec.dtype))
        return array, array
    array = as_array(out)
    given = TensorSpec.of(array)
    if given.shape != spec.shape or given.dtype != spec.dtype:
        raise AclnnError(INVALID, name, f"{name} is {given}, the result is {spec}", f"pass an array of {spec}")
    if not array.flags.writeable:
        raise AclnnError(INVALID, name, f"{name} cannot be written", "pass a writable array")
    for other, values in inputs.items():
        if np.may_share_memory(array, values):
            raise AclnnError(INVALID, name, f"{name} shares memory with {other}", "pass an array of its own")
    return (array if array.flags.c_contiguous and array.flags.aligned else np.empty(spec.shape, array.dtype)), array


def runtime_failure(argument: str, message: str, hint: str) -> AclnnError:
    """Return the error for data that is out of bounds on the device: 361001."""
    return AclnnError(RUNTIME_FAILURE, argument, message, hint)
