"""Code common to planners: integer arithmetic, dtype codes, hardware sizes, metadata of fields.

Numba compiles the functions of integers as they are.

A planner's result is a NamedTuple whose fields are annotated with :class:`Field` (numbers) or
:class:`Part` (a NamedTuple within it)::

    class Tiling(NamedTuple):
        status: int
        block_dim: Annotated[int, Field("cores that work", "vector_cores", "blockDim")]

The record of a call without a tiling, the vendor's structure and the columns of sweeps derive from
these annotations.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from ctypes import c_float
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, NamedTuple, TypeVar, get_type_hints

import numpy as np

from npu_sim.cores import Device
from npu_sim.language import Text
from npu_sim.numbers.arrays import Shape as Shape  # planners import it from here

Record = TypeVar("Record")
Range = tuple[int, int]
"""Half-open range of what a core works on."""
MAX_RANK = 8
"""Highest rank of any tensor (product document, "shape支持1-8维度")."""

FP32, FP16, BF16 = 0, 1, 2
"""Dtype codes: the positions of an axis of dtypes."""
DTYPE_CODES = {"float32": FP32, "float16": FP16, "bfloat16": BF16}

UINT32_MASK = 0xFFFFFFFF
"""Low 32 bits: values that a planner computes or stores in unsigned 32 bits."""
FP32_BYTES = 4
VECTOR_LANES = 64
"""fp32 lanes of one vector instruction (page ``numerics``)."""
BLOCK_BYTES = 32
"""Bytes of one block: the granularity of buffers, copies and core synchronisation."""
FP32_PER_BLOCK = BLOCK_BYTES // FP32_BYTES
SYSTEM_WORKSPACE_BYTES = 16777216
"""16 MiB: what RmsNorm and RmsNormGrad add on every SoC, whatever its profile states (pages
``rms_norm`` and ``rms_norm_grad``, "Workspace")."""

SORTABLE_ROWS = 2139095040
"""0x7F800000: AI cores sort int32 as fp32 bit patterns, which have the same order below this value.
From here on the AI CPU sorts."""
ROWS_IN_UB = 6112
"""Most rows that one core sorts in its Unified Buffer: a quarter of 192 KiB - 1 KiB, rounded down
to 32 bytes, for two buffers of 4 bytes per row."""


def ceil_div(a: int, b: int) -> int:
    """Return ``a / b`` rounded up."""
    return (a + b - 1) // b


def equal_parts(total: int, cores: int) -> tuple[int, int, int]:
    """Return how many of the cores get a part of ``total``, the part of each, and of the last."""
    part = ceil_div(total, cores)
    used = ceil_div(total, part)
    return used, part, total - (used - 1) * part


def split_longest_first(total: int, cores: int) -> tuple[int, int, int, int]:
    """Split ``total`` over cores as evenly as possible, the longer parts first.

    Returns the front cores, which take one more, the tail cores, and the part of a front and of a
    tail core.
    """
    rest = total % cores
    front_cores = rest if rest != 0 else cores
    tail_cores = 0 if total <= cores else cores - front_cores
    return front_cores, tail_cores, ceil_div(total, cores), total // cores


def core_ranges(range_of: Callable[[Any, int], Record], tiling: Any) -> list[Record]:
    """Return what every core of a launch works on; ``range_of`` returns that of one core."""
    return [range_of(tiling, core) for core in range(tiling.block_dim)]


def most_rows(fits: Callable[[int], bool], device: Device) -> int:
    """Return the largest number of rows that fits, the same on every core; 0 when none does.

    Bisects: buffers that hold some rows hold fewer rows too.
    """
    cores = device.vector_cores
    core_rows = range(1, device.ub_bytes)
    return cores * bisect_left(core_rows, True, key=lambda rows: not fits(cores * rows))


def even_range(core: int, size: int, longer: int) -> Range:
    """Return the half-open range of a core: ``size`` items, one more on the first ``longer``."""
    if core < longer:
        return core * (size + 1), (core + 1) * (size + 1)
    start = core * size + longer
    return start, start + size


def chunk_range(core: int, size: int, total: int) -> Range:
    """Return the half-open range of a core that takes ``size`` items, of which ``total`` exist."""
    return min(core * size, total), min((core + 1) * size, total)


def largest_power(number: int) -> int:
    """Return the largest power of two that is at most ``number``; 1 for numbers below 2."""
    return 1 << max(bit_length(number) - 1, 0)


def bit_length(number: int) -> int:
    """Return the bit length of a number, 0 for a negative one; Numba has no ``int.bit_length``."""
    bits = 0
    while number > 0:
        number >>= 1
        bits += 1
    return bits


def align(a: int, b: int) -> int:
    """Return the smallest multiple of ``b`` that is at least ``a``."""
    return (a + b - 1) // b * b


def align_down(a: int, b: int) -> int:
    """Return the largest multiple of ``b`` that is at most ``a``."""
    return a // b * b


def element_bytes(dtype_code: int) -> int:
    """Return the bytes of an element."""
    return FP32_BYTES if dtype_code == FP32 else 2


def alignment(dtype_code: int) -> int:
    """Return the elements of one block, the padding unit of a row ("col_align" on the pages)."""
    return 8 if dtype_code == FP32 else 16


def sort_workspace_bytes(rows: int) -> int:
    """Return the workspace of the Sort kernel on A2 and A3, 1 <= rows < ``SORTABLE_ROWS``.

    A model (page ``workspace``, "The Sort kernel's own workspace"): closed host code selects the
    branch. Operators with indices launch Sort before their own kernel.
    """
    return 96 if rows <= ROWS_IN_UB else 16 * align(rows, 8) + 64


def to_fp32(value: float) -> np.float32:
    """Return a number in fp32, as a call passes it; inf beyond its range."""
    return np.float32(c_float(float(value)).value)  # NumPy's own conversion warns of an overflow


SUCCESS = 0
"""``status`` of a planner's result: there is a tiling."""
FAILED = 1
"""``status`` of a planner's result: the product returns 561002."""
FP32_VALUE = "fp32"
"""Bound of a field that holds an fp32 value instead of an integer."""


class Field(NamedTuple):
    """One number of a tiling.

    Attributes
    ----------
    help
        Description.
    bound
        Largest magnitude: an expression over the largest value of every axis and of every field of
        the devices, for instance ``"max(row, col)"``; ``"fp32"`` for fp32 values. It must cover
        padding (``"col + 15"``): sweeps store the field in the narrowest dtype. Empty if an axis
        or another field has the same value: sweeps leave the field out.
    vendor
        Names in the vendor's structure, separated by spaces; empty when it is not part of it.
    words
        Names of its codes, when it is a code.
    none
        Value when there is no tiling.
    switch
        Switch of the release that adds the field to the vendor's structure; empty when every
        release has it.
    """

    help: str = ""
    bound: str = ""
    vendor: str = ""
    words: tuple[str, ...] = ()
    none: int = 0
    switch: str = ""


BlockDim = Annotated[int, Field("cores that work", "vector_cores")]
WorkspaceBytes = Annotated[int, Field("workspace of the kernel", str(SYSTEM_WORKSPACE_BYTES))]
ScheduleMode = Annotated[int, Field("1 when all cores start together, else -1", "1", none=-1)]


class Part(NamedTuple):
    """Metadata of a NamedTuple within a tiling.

    Attributes
    ----------
    vendor
        The vendor's name of a field; ``{}`` stands for the name in the part's own annotations.
    help
        Text appended to the description of every field.
    bound
        Bound of every field, instead of its own.
    prefix
        Prefix of the names of its columns in sweeps; the name of the part and an underscore when
        None.
    switch
        Switch of every field, instead of its own.
    """

    vendor: str = "{}"
    help: str = ""
    bound: str = ""
    prefix: str | None = None
    switch: str = ""


class FieldRun(NamedTuple):
    """Successive fields of one C type.

    Attributes
    ----------
    c_type
        C type: ``uint8_t``, ``uint32_t``, ``int32_t``, ``float``, ``uint64_t`` or ``int64_t``.
    names
        Names in the vendor's structure, separated by spaces.
    part
        Name of the nested structure; empty at the top level.
    since
        First release that has the fields; empty when every release has them.
    """

    c_type: str
    names: str
    part: str = ""
    since: str = ""


class Structure(NamedTuple):
    """One tiling structure of the vendor.

    Attributes
    ----------
    kernel
        The vendor's name of the kernel.
    since
        First release whose structure is known.
    runs
        Fields in the order of the structure.
    """

    kernel: str
    since: str
    runs: tuple[FieldRun, ...]


class Column(NamedTuple):
    """One number of a record or of a part of it: its path, its name, and its field."""

    path: str
    name: str
    kind: type
    field: Field


STATUS = Field("aclnn status; 0 when the call runs", "999999", none=FAILED)
"""Field of every record: the ``status`` of the planner, or in a sweep that of the call."""


@cache
def table(record: type) -> tuple[Column, ...]:
    """Return every number of a record, including those of its parts.

    Raises
    ------
    TypeError
        For a field of the record that is neither a number nor a NamedTuple.
    """
    columns: list[Column] = []
    for name, kind, notes in _annotations(record):
        if hasattr(kind, "_fields"):
            part = next((note for note in notes if isinstance(note, Part)), Part())
            columns += [_within(name, part, column) for column in table(kind)]
        elif kind in (int, float):
            columns.append(Column(name, name, kind, _field(name, notes)))
        else:
            message = Text(
                "{record}.{name} is {hint}: a field is an int, a float, or a NamedTuple of them",
                record=record.__name__,
                name=name,
                hint=kind,
            )
            raise TypeError(message)
    return tuple(columns)


def _annotations(record: Any) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Yield name, type and metadata of every field of a record."""
    for name, hint in get_type_hints(record, include_extras=True).items():
        notes = getattr(hint, "__metadata__", ())
        yield name, hint.__origin__ if notes else hint, notes


def _field(name: str, notes: tuple[Any, ...]) -> Field:
    default = STATUS if name == "status" else Field()
    return next((note for note in notes if isinstance(note, Field)), default)


def _within(name: str, part: Part, column: Column) -> Column:
    field = column.field
    vendor = " ".join(part.vendor.format(word) for word in field.vendor.split())
    bound, switch = (part.bound or field.bound) if field.bound else "", part.switch or field.switch
    field = field._replace(help=field.help + part.help, bound=bound, vendor=vendor, switch=switch)
    prefix = f"{name}_" if part.prefix is None else part.prefix
    return Column(f"{name}.{column.path}", f"{prefix}{column.name}", column.kind, field)


def nothing(record: type[Record]) -> Record:
    """Return the record of a call without a tiling: every field is ``none``, ``status`` failed.

    Planners use it as a module constant, which Numba freezes like any number.
    """
    values: list[Any] = []
    for name, kind, notes in _annotations(record):
        field = _field(name, notes)
        # fp32 as planners compute it: compiled, both results have one type.
        number = np.float32 if field.bound == FP32_VALUE else kind
        values.append(nothing(kind) if hasattr(kind, "_fields") else number(field.none))
    return record(*values)


def vendor_fields(record: Any, rules: Any = None) -> dict[str, int | float]:
    """Return a tiling under the vendor's names; fp32 values with the 9 digits that identify them.

    A field with a switch is included if that switch of the release (``rules``) is on.
    """
    fields: dict[str, int | float] = {}
    kind: Any = type(record)
    for names, read, is_fp32, switch in _vendor_readers(kind):
        if switch and not getattr(rules, switch):
            continue
        value = read(record)
        for name in names:
            fields[name] = float(f"{value:.9g}") if is_fp32 else value
    return fields


@cache  # a first plan takes 5 % longer without
def _vendor_readers(record: Any) -> tuple[tuple[list[str], Callable[[Any], Any], bool, str], ...]:
    named = ((column, column.field) for column in table(record) if column.field.vendor)
    return tuple(
        (field.vendor.split(), attrgetter(column.path), column.kind is float, field.switch)
        for column, field in named
    )


def fields_of(record: type, part: str = "") -> FieldRun:
    """Return the vendor's fields of a record as int64_t, in its order; ``part`` as in Run."""
    names = (column.field.vendor for column in table(record))
    return FieldRun("int64_t", " ".join(filter(None, names)), part)


Raw = dict[str, Any]
"""Inputs and results of :func:`npu_sim.tiling.plan_kernel`."""
RawPlanner = Callable[[Raw, Device, Any], Raw]
"""``planner(inputs, device, rules)``: the raw planner of one vendor kernel. ``inputs`` are those of
:func:`npu_sim.tiling.plan_kernel`, and the switch ``deterministic``."""
RAW_FAILURE: Raw = {"status": "failed"}
"""Result of a raw planner where the product finds no tiling."""


def raw_planner(
    problem_of: Callable[[Raw, Any], Any],
    tile: Callable[[Any, Device, Any], Any],
    structure: Callable[[Any, Mapping[str, Any], Any], Raw] | None = None,
) -> RawPlanner:
    """Return the raw planner of a kernel, from the functions of its module.

    Parameters
    ----------
    problem_of
        ``problem_of(inputs, rules)``: the call as the planner takes it; None where the product's
        planner refuses its shapes, dtypes or attributes.
    tile
        ``tile(problem, device, rules)``: the planner.
    structure
        ``structure(tiling, inputs, rules)``: the tiling data under the vendor's names; those of
        :func:`vendor_fields` when None.
    """

    def plan(inputs: Raw, device: Device, rules: Any) -> Raw:
        problem = problem_of(inputs, rules)
        tiling = None if problem is None else tile(problem, device, rules)
        if tiling is None or tiling.status != SUCCESS:
            return RAW_FAILURE
        mode = getattr(tiling, "schedule_mode", -1)
        data = structure(tiling, inputs, rules) if structure else vendor_fields(tiling, rules)
        return {
            "status": "success",
            "block_dim": tiling.block_dim,
            "tiling_key": tiling.tiling_key,
            "workspace_bytes": tiling.workspace_bytes,
            "schedule_mode": mode if mode >= 0 else None,
            "tiling": data,
        }

    return plan
