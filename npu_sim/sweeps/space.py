"""The calls of a sweep, and their records: columns, and the structured array.

A sweep has every combination of the given values, or a random sample of them. A row of a sweep is
an integer that determines its call, so any part of a sweep can be computed anywhere and in any
order with the same result.
"""

import hashlib
import json
from collections import namedtuple
from collections.abc import Collection, Mapping, Sequence, Sized
from dataclasses import dataclass
from math import prod
from typing import Any, Self

import numpy as np

from npu_sim import __version__
from npu_sim.cores import Device, Profile, default_release, release_suffix
from npu_sim.framework.arguments import INT64_MAX, Axis, Number, Values
from npu_sim.framework.checking import rules_on
from npu_sim.framework.checks import require_integer
from npu_sim.framework.operator import Operator
from npu_sim.framework.row_planner import bound_of, row_planner
from npu_sim.language import Text
from npu_sim.numbers.arrays import Array
from npu_sim.plans.answers import Coded, Columns, Tabular
from npu_sim.questions.varied_calls import chosen_profiles, items_of
from npu_sim.status import NotModelledError, UsageError, shown, tip
from npu_sim.tiling.common import bit_length


def places_of(profiles: Sequence[Profile]) -> dict[str, tuple[tuple[str, ...], tuple[int, ...]]]:
    """Return, for product, SoC and release, the distinct names and the position of each device."""
    names = {
        "product": [profile.name for profile in profiles],
        "soc": [profile.soc for profile in profiles],
        "release": [profile.release for profile in profiles],
    }
    words = {place: tuple(dict.fromkeys(given)) for place, given in names.items()}
    return {
        place: (words[place], tuple(map(words[place].index, given)))
        for place, given in names.items()
    }


MASK = (1 << 64) - 1
STEP = 0x9E3779B97F4A7C15
"""Step of splitmix64, a published generator of independent 64-bit numbers from consecutive ones."""
FIRST_FACTOR, SECOND_FACTOR = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""Factors of splitmix64."""
LARGEST_TABLE = 1 << 20
"""Most values listed for one axis; longer ranges need a constant step."""


@dataclass(frozen=True)
class AxisValues:
    """Values of one axis."""

    axis: Axis
    codes: range | tuple[int, ...]
    """Their codes: a range, or a tuple when they are listed."""
    log: bool = False
    """Whether a sample draws sizes of every order of magnitude equally often."""

    @property
    def name(self) -> str:
        """Name of the axis."""
        return self.axis.name

    @property
    def extremes(self) -> tuple[int, int]:
        """Smallest and largest code."""
        ends = (self.codes[0], self.codes[-1]) if isinstance(self.codes, range) else self.codes
        return min(ends), max(ends)

    @property
    def largest(self) -> int:
        """Largest magnitude of a code."""
        return max(map(abs, self.extremes))

    def as_dict(self) -> dict[str, Any]:
        """Return the values as plain data."""
        if isinstance(self.codes, tuple):
            return {"values": [self.axis.value(code) for code in self.codes]}
        facts = {"start": self.codes[0], "step": self.codes.step, "count": len(self.codes)}
        return facts | ({"log": True} if self.log else {})


@dataclass(frozen=True)
class Space:
    """All rows of a sweep."""

    operator: Operator
    """The operator."""
    profiles: tuple[Profile, ...]
    """The devices; they vary slowest of all."""
    axes: tuple[AxisValues, ...]
    """Values of every axis in declared order, the last one varying fastest."""
    sample: int | None = None
    """Number of random rows; None for every combination."""
    seed: int = 0
    """Seed of the sample."""
    left_out: tuple[tuple[str, str], ...] = ()
    """Products that ``product="all"`` leaves out, and why."""

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of values of the profiles and of every axis."""
        return (len(self.profiles), *(len(values.codes) for values in self.axes))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return prod(self.counts) if self.sample is None else self.sample

    @property
    def keys(self) -> tuple[int, ...]:
        """One key of the random generator for every count."""
        return tuple(mix(self.seed * STEP + (position + 1)) for position in range(len(self.counts)))

    def codes_at(self, row: int) -> tuple[int, ...]:
        """Return the position of the profile and the code of every axis of one row."""
        if self.sample is None:
            digits = []
            for count in reversed(self.counts):
                row, digit = divmod(row, count)
                digits.append(digit)
            digits.reverse()
            return (
                digits[0],
                *(values.codes[digit] for values, digit in zip(self.axes, digits[1:], strict=True)),
            )
        draws = [mix(key + row * STEP) for key in self.keys]
        codes = [
            logarithmic(draw, codes[0], codes[-1]) if log else codes[scaled(draw, len(codes))]
            for (codes, log), draw in zip(
                ((values.codes, values.log) for values in self.axes), draws[1:], strict=True
            )
        ]
        return tuple(map(int, (scaled(draws[0], len(self.profiles)), *codes)))

    def call_at(self, row: int) -> tuple[Profile, Values]:
        """Return profile and axis values of one row."""
        profile, *codes = self.codes_at(row)
        return self.profiles[profile], {
            values.name: values.axis.value(code)
            for values, code in zip(self.axes, codes, strict=True)
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the sweep as plain data."""
        return {
            "operator": self.operator.name,
            "profiles": [
                f"{profile.name}/{profile.soc}{release_suffix(profile.release)}"
                for profile in self.profiles
            ],
            "axes": {values.name: values.as_dict() for values in self.axes},
            "sample": self.sample,
            "seed": self.seed if self.sample is not None else None,
            "rows": self.rows,
        }

    @property
    def fingerprint(self) -> str:
        """Digest of everything that determines the rows of the sweep."""
        facts = {
            **self.as_dict(),
            "version": __version__,
            "devices": [
                [*profile.device, *rules_on(self.operator, profile)] for profile in self.profiles
            ],
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def mix(state: Any) -> Any:
    """Return the number of splitmix64 for a state; sweeps compile this function with uint64."""
    state &= MASK
    state = (state ^ (state >> 30)) * FIRST_FACTOR & MASK
    state = (state ^ (state >> 27)) * SECOND_FACTOR & MASK
    return state ^ (state >> 31)


def scaled(draw: Any, count: Any) -> Any:
    """Map a random number to ``range(count)``; sweeps compile this function with uint64."""
    if count <= 1 << 32:
        return np.int64(((draw >> 32) * np.uint64(count)) >> 32)
    return np.int64(draw % np.uint64(count))


def logarithmic(draw: Any, low: Any, high: Any) -> Any:
    """Map a random number to ``low .. high``: draw a bit length, then a number of that length."""
    shortest = bit_length(low)
    bits = shortest + scaled(draw, bit_length(high) - shortest + 1)
    least, most = max(low, (1 << bits) >> 1), min(high, (1 << bits) - 1)
    return least + scaled(mix(draw + STEP), most - least + 1)


def make_space(
    operator: Operator, grid: Mapping[str, Any], sample: int | None = None, seed: int = 0
) -> Space:
    """Build the space of a sweep.

    - ``grid``: values by axis name: one value, a list, a ``range``, or text such as
      ``"128,512,1..8,16..4096:*2"``. ``product``, ``soc`` and ``release`` choose the devices. What
      is not given keeps its default. ``product="all"`` are the products that the operator's own
      declaration serves: another family of products has other columns.
    - ``sample``: number of random rows instead of every combination.
    - ``seed``: seed of the sample.

    Raises UsageError for an unknown name or value, and for a sample or a seed that is not an
    integer.
    """
    if not isinstance(grid, Mapping) or not all(isinstance(name, str) for name in grid):
        raise UsageError(
            "grid",
            "grid = {grid} is not a mapping",
            "values by name, such as {example}",
            grid=shown(grid),
            example="{'rows': '1..4096:*2'}",
        )
    require_integer("seed", seed)
    if sample is not None:
        require_integer("sample", sample, 0)
    given = dict(grid)
    product, soc, release = (given.pop(name, None) for name in ("product", "soc", "release"))
    profiles = tuple(chosen_profiles(product, soc, release, every_soc=False))
    left_out: dict[str, str] = {}
    if product == "all":
        reasons = {profile.name: _why_left_out(operator, profile) for profile in profiles}
        left_out = {name: reason for name, reason in reasons.items() if reason}
        profiles = tuple(profile for profile in profiles if profile.name not in left_out)
    declared = _declaration(operator, profiles)
    chosen = {declared.axis(name).name: (name, values) for name, values in given.items()}
    if len(chosen) < len(given):
        raise UsageError(
            "grid",
            "grid: two names of the same axis among {given}",
            "give every axis once",
            given=", ".join(given),
        )
    axes = [
        axis_values(axis, *chosen[axis.name])
        if axis.name in chosen
        else AxisValues(axis, (axis.code(axis.default),))
        for axis in declared.all_axes
    ]
    for values in axes:
        if values.log and sample is None:
            raise UsageError(
                values.name,
                "{name}: ':log' draws at random",
                "add a number of samples, or list values such as 1..4096:*2",
                name=values.name,
            )
    return Space(declared, profiles, tuple(axes), sample, seed, tuple(left_out.items()))


def _why_left_out(operator: Operator, profile: Profile) -> str:
    """Return why ``product="all"`` leaves a product out; empty where it does not.

    The declaration itself serves the products of a sweep, or its contract refuses the calls.
    """
    try:
        if operator.on(profile) is operator:
            return ""
    except NotModelledError as error:
        return error.message
    return Text(
        "{title} has planners of its own, whose plans have other columns: sweep "
        "product={product} by itself",
        title=profile.product.title,
        product=profile.name,
    )


def _declaration(operator: Operator, profiles: Sequence[Profile]) -> Operator:
    """Return the declaration that serves the architectures of all devices.

    Raises NotModelledError when one of them has the operator and npu_sim does not model it there;
    UsageError when they need different declarations, whose records have different columns.
    """
    families: dict[Operator, list[str]] = {}
    for profile in profiles:
        declared = operator.on(profile)
        if operator.supported_by(profile):
            names = families.setdefault(declared, [])
            names += [profile.name] * (profile.name not in names)
    if len(families) > 1:
        first, second, *_ = (", ".join(names) for names in families.values())
        raise UsageError(
            "product",
            "product: {first} and {second} have different planners, whose plans have "
            "different columns",
            "sweep them one after the other",
            first=first,
            second=second,
        )
    return next(iter(families), operator)


def axis_values(axis: Axis, name: str, given: Any) -> AxisValues:
    """Read the values of one axis.

    Raises UsageError when there are none, or one does not belong to the axis.
    """
    if isinstance(given, range) and isinstance(axis, Number) and given:
        for end in (given[0], given[-1]):
            axis.code(end)
        return AxisValues(axis, given)
    count = len(given) if isinstance(given, Sized) and not isinstance(given, str) else 0
    if count > LARGEST_TABLE:
        raise UsageError(
            name,
            "{name}: {count} values cannot be listed",
            "a range, or at most {largest_table} values",
            name=name,
            count=count,
            largest_table=LARGEST_TABLE,
        )
    if not (items := items_of(given)):
        raise UsageError(
            name,
            "{name}: no values",
            "for instance {name}={default}",
            name=name,
            default=axis.default,
        )
    if isinstance(axis, Number):
        ranges = [_read_range(axis, name, item) for item in items]
        if len(ranges) == 1:
            return ranges[0]
        count = sum(len(values.codes) for values in ranges)
        if count > LARGEST_TABLE or any(values.log for values in ranges):
            raise UsageError(
                name,
                "{name}: {given} cannot be listed",
                "give one range alone, or fewer values",
                name=name,
                given=shown(given),
            )
        codes = [code for values in ranges for code in values.codes]
    else:
        codes = [axis.code(item) for item in items]
    return AxisValues(axis, tuple(dict.fromkeys(codes)))


def _read_range(axis: Number, name: str, item: Any) -> AxisValues:
    """Read ``7``, ``1..8``, ``0..100:+5``, ``1..4096:*2`` or ``1..4096:log``."""
    if not isinstance(item, str) or ".." not in item:
        return AxisValues(axis, (axis.code(item),))
    ends, _, step = item.partition(":")
    low, _, high = ends.partition("..")
    first, last = axis.code(low), axis.code(high)
    form = Text(
        "{name}={item}: write first..last, with :+step, :*factor or :log after it",
        name=name,
        item=item,
    )
    if first > last:
        raise UsageError(
            name,
            "{name} = {item}: {first} is above {last}",
            form,
            name=name,
            item=item,
            first=first,
            last=last,
        )
    if step in ("", "log"):
        if step and first < 0:
            raise UsageError(
                name, "{name} = {item}: ':log' needs sizes of 0 or more", form, name=name, item=item
            )
        return AxisValues(axis, range(first, last + 1), log=step == "log")
    amount = int(step[1:]) if step[1:].isdecimal() else 0
    if step[0] == "+" and amount >= 1:
        return AxisValues(axis, range(first, last + 1, amount))
    if step[0] == "*" and amount >= 2 and first >= 1:
        codes = []
        while first <= last:
            codes.append(first)
            first *= amount
        return AxisValues(axis, tuple(codes))
    raise UsageError(
        name, "{name} = {item}: {step} is not a step", form, name=name, item=item, step=repr(step)
    )


SLACK = 1024
"""Safety margin above a declared bound that does not fit 8 bits. Bounds are exact nevertheless:
flags and codes, which are most columns, have no margin."""
PLACES = {"product": "product", "soc": "SoC", "release": "release of the product's software"}
"""Columns that identify the device of a row."""
INTEGERS = (np.int8, np.int16, np.int32, np.int64)


def may_be_uncountable(space: Space) -> bool:
    """Return whether a row may have a tensor of more bytes than an int64 counts.

    False only where no product of sizes comes near; derived sizes add up a few others.
    """
    sizes = (values.largest for values in space.axes if isinstance(values.axis, Number))
    return space.operator.is_foreign or prod(max(size, 1) for size in sizes) > INT64_MAX >> 8


@dataclass(frozen=True)
class RecordColumn:
    """One field of the records."""

    name: str
    """Name of the field."""
    dtype: np.dtype[Any]
    """NumPy dtype of its values."""
    source: str
    """Source of its value: an expression over ``row``, ``record`` and the positions ``product``,
    ``soc`` and ``release``."""
    help: str
    """Description."""
    words: tuple[str, ...] = ()
    """Names of its codes; empty for plain numbers."""

    def decoded(self, values: Array) -> Coded | Array:
        """Return values of the field with the names of their codes, as a column of a table."""
        return Coded(values, self.words) if self.words else values


def largest_values(space: Space) -> Any:
    """Return the largest value of every axis and device field, and the architectures.

    They are a NamedTuple, as bounds of fields name them.
    """
    devices = [profile.device for profile in space.profiles]
    most = {
        **{values.name: values.largest for values in space.axes},
        **{name: max(getattr(device, name) for device in devices) for name in Device._fields},
    }
    most["npu_archs"] = {device.npu_arch for device in devices}
    return namedtuple("Largest", most)(**most)


def record_columns(space: Space, wanted: tuple[str, ...] | None = None) -> tuple[RecordColumn, ...]:
    """Return the columns of a sweep: product, SoC, release, the axes, then the plan.

    The release is left out when every row has the default one.

    - ``space``: the sweep.
    - ``wanted``: names of the columns to return; all when None.

    Raises UsageError for an unknown name, or sizes whose products exceed 64 bits.
    """
    columns = [
        RecordColumn(name, _narrowest(name, len(words)), name, PLACES[name], words)
        for name, (words, _) in places_of(space.profiles).items()
        if name != "release" or words != (default_release(),)
    ]
    for values in space.axes:
        axis = values.axis
        words = tuple(getattr(axis, "words", ()))
        dtype = _narrowest(axis.name, max(values.largest, len(words)))
        columns.append(RecordColumn(axis.name, dtype, f"row.{axis.name}", axis.help, words))
    most = largest_values(space)
    for column in row_planner(space.operator).columns:
        field, bound = column.field, bound_of(space.operator, column.field, most)
        if bound == 0 and not field.words:
            continue
        dtype = np.dtype(np.float32) if bound is None else _narrowest(column.name, bound)
        source = f"record.{column.path}"
        uncounted = "; -1 where a tensor has more bytes than an int64 counts"
        help_text = field.help + (uncounted if column.path == "status" else "")
        columns.append(RecordColumn(column.name, dtype, source, help_text, field.words))
    return tuple(columns) if wanted is None else _chosen(columns, wanted)


def _chosen(columns: list[RecordColumn], wanted: tuple[str, ...]) -> tuple[RecordColumn, ...]:
    known = {column.name: column for column in columns}
    for name in wanted:
        if name not in known:
            raise UsageError(
                "columns",
                "columns: {name} is not a column of this sweep",
                "{tip}columns: {known}",
                name=repr(name),
                known=", ".join(known),
                tip=tip(name, known),
            )
    return tuple(column for name, column in known.items() if name in wanted)


def _narrowest(name: str, bound: int) -> np.dtype[Any]:
    """Return the smallest signed integer dtype for a bound: int8 if it fits, else with `SLACK`."""
    needed = bound if bound <= np.iinfo(np.int8).max else bound + SLACK
    for integer in INTEGERS:
        if needed <= np.iinfo(integer).max:
            return np.dtype(integer)
    raise UsageError(
        "grid",
        "grid: {name} may reach {bound}, beyond 64 bits",
        "sweep smaller sizes",
        name=name,
        bound=bound,
    )


def workspace_column(names: Collection[str]) -> str:
    """Return the column of the bytes that a user allocates, or of a kernel's own; empty if none."""
    columns = ("total_workspace_bytes", "workspace_bytes")
    return next((name for name in columns if name in names), "")


MOST_NAMES = 6
"""Columns that a representation of records has."""
MOST_ROWS = 10
"""Rows of printed records."""


class Records(np.ndarray, Tabular):
    """One record per plan; ``records["block_dim"]`` is a plain array, ``records[7]`` one record."""

    space: Space
    """The calls that were swept."""
    columns: tuple[RecordColumn, ...]
    """The fields: dtype, description, and the names of codes."""

    @classmethod
    def wrap(cls, array: Array, space: Space, columns: tuple[RecordColumn, ...]) -> Self:
        """View the records of a space."""
        records = array.view(cls)
        records.space, records.columns = space, columns
        return records

    def __array_finalize__(self, other: Any) -> None:
        self.space = getattr(other, "space", None)  # type: ignore[assignment]
        self.columns = getattr(other, "columns", ())

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self.view(np.ndarray)[key]
        return super().__getitem__(key)

    def __repr__(self) -> str:
        """Return the size and the first names; ``print`` shows rows, ``to_pandas`` all."""
        names = self.dtype.names
        if names is None or self.ndim != 1:
            return str(super().__repr__())
        shown = names if len(names) <= MOST_NAMES else (*names[:MOST_NAMES], "...")
        return f"Records({len(self)} calls; columns: {', '.join(shown)})"

    def __str__(self) -> str:
        """Return the first and last records with the fields in which they differ, in words."""
        names = self.dtype.names
        if names is None or self.ndim != 1:
            return str(super().__str__())
        is_cut = len(self) > MOST_ROWS
        shown = np.concatenate([self[: MOST_ROWS - 1], self[-1:]]) if is_cut else self
        records = Records.wrap(shown, self.space, self.columns)
        table = [[name, *map(str, records.words(name))] for name in names]
        if len(table) > MOST_NAMES:
            differing = [column for column in table if len(set(column[1:])) > 1]
            table = (differing or table)[:MOST_NAMES]
        rows = list(zip(*table, strict=True))
        if is_cut:
            rows.insert(-1, ("...",) * len(table))
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        lines = ("  ".join(map(str.rjust, row, widths)) for row in rows)
        return "\n".join((repr(self), *lines))

    def words(self, name: str) -> Array:
        """Return a field with its codes replaced by their names: ``words("grad_dtype")``."""
        column = next(column for column in self.columns if column.name == name)
        values: Array = self[name]
        return np.array(column.words)[values] if column.words else values

    def table_columns(self) -> Columns:
        """Return the fields as columns of a table."""
        return {
            column.name: column.decoded(self[column.name])
            for column in self.columns
            if column.name in (self.dtype.names or ())
        }

    def as_columns(self) -> dict[str, Array]:
        """Return the fields as separate contiguous arrays."""
        return {column.name: np.ascontiguousarray(self[column.name]) for column in self.columns}
