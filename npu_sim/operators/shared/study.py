"""What studies of operators are written with: calls, changes of them, formulas, bounds, caveats.

With the names of orders of addition and of dumps that they use, so that one import serves.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from npu_sim.framework.arguments import CALL_OPTIONS, require_known
from npu_sim.framework.vocabulary import (
    FORMULA,
    Arguments,
    Array,
    Arrays,
    Case,
    Index,
    Operator,
    Order,
    Profile,
    Result,
    Target,
    Text,
    arguments_of,
    as_array,
    canonical_dtype,
    check,
    load_profile,
    numpy_dtype,
    own_copies,
)
from npu_sim.operators import plan, run
from npu_sim.operators.loading import load_operator
from npu_sim.operators.shared.dumped import (
    DumpedTensor,
    FoundCall,
    Function,
    InDumps,
    Spread,
    Values,
    WrappedCall,
    rows_of_last_axis,
    spread_of_sums,
)
from npu_sim.operators.shared.generate import with_data
from npu_sim.orders import (
    Claim,
    LastWrites,
    OpenRule,
    Parts,
    Tree,
    count_units,
    folded,
    left_fold,
    probe_terms,
    shape_hash,
    trees,
    width_of,
)

__all__ = [
    "Changes",
    "Claim",
    "DumpedTensor",
    "Experiment",
    "FoundCall",
    "Function",
    "InDumps",
    "LastWrites",
    "NamedTerms",
    "Numbers",
    "OpenRule",
    "Parts",
    "Restore",
    "RowCount",
    "RowCounts",
    "Shown",
    "Spread",
    "StudyCall",
    "Tree",
    "Values",
    "WrappedCall",
    "any_number_of_rows",
    "count_units",
    "different",
    "fold_in_arrival_order",
    "folded",
    "formula_results",
    "left_fold",
    "miscounted_calls",
    "no_claims",
    "plan",
    "probe_terms",
    "rows_of_last_axis",
    "run",
    "shape_hash",
    "single_terms",
    "spread_of_sums",
    "study_call",
    "surviving_units",
    "trees",
    "width_of",
]


@dataclass(frozen=True)
class StudyCall:
    """One call of an operator."""

    operator: Operator
    """Declaration of the operator."""
    tensors: Arrays
    """Input tensors by name."""
    attributes: Mapping[str, Any]
    """Attributes by name."""
    profile: Profile
    """Product, SoC and release."""
    options: Mapping[str, Any]
    """``deterministic``, ``core_order``, ``seed``, ``limits``."""

    @cached_property
    def arguments(self) -> Arguments:
        """The arguments of the call."""
        return arguments_of(self.operator, {**self.tensors, **self.attributes})

    @cached_property
    def case(self) -> Case:
        """The checked call."""
        target = Target(
            self.profile,
            self.options.get("deterministic", False),
            self.order,
            self.options.get("limits", "documented"),
        )
        return check(self.operator, self.arguments, target)

    @property
    def order(self) -> Order:
        """Order of arrival of atomic additions."""
        return Order(self.options.get("core_order", "sequential"), self.options.get("seed", 0))

    @property
    def parts(self) -> tuple[Any, ...]:
        """What a call of a subclass is made of."""
        return self.operator, self.tensors, self.attributes, self.profile, self.options

    def run(self) -> Result:
        """Compute the call."""
        call: dict[str, Any] = {**self.options, **self.tensors, **self.attributes}
        return run(self.operator.name, product=self.profile, **call)

    def outputs(self, **changed: Array) -> Arrays:
        """Return the results of the call with some tensors replaced."""
        return self.with_tensors(**changed).run().outputs

    def with_tensors(self, **changed: Array) -> "StudyCall":
        """Return the call with some tensors replaced."""
        return replace(self, tensors={**self.tensors, **changed})

    def with_attributes(self, **changed: Any) -> "StudyCall":
        """Return the call with some attributes replaced."""
        return replace(self, attributes={**self.attributes, **changed})

    def with_options(self, **changed: Any) -> "StudyCall":
        """Return the call with some options replaced."""
        return replace(self, options={**self.options, **changed})


def no_claims(call: StudyCall) -> Iterator[Claim]:
    """Yield nothing: no result of the operator is a sum whose order matters."""
    yield from ()


NamedTerms = list[tuple[str, float]]
Terms = Callable[[StudyCall, str, Index], NamedTerms]
"""The hook ``terms``: from a call, an output and a place in it, the terms of this element."""


def single_terms(**names: str) -> Terms:
    """Return the hook ``terms`` of an operator without sums: an element is a term in float64.

    ``names`` states the term of every output.
    """

    def terms(call: StudyCall, output: str, index: Index) -> NamedTerms:
        results = formula_results(call.operator.name, call.arguments, call.tensors)
        return [(names[output], float(results[output][index]))]

    return terms


Variants = Iterator[tuple[str, str, StudyCall]]


class UnfusedCall(StudyCall):
    """A call as the separate kernels that the operator replaces; subclasses run it."""

    rounded_between = ""
    """What is rounded in between, as the name of the variant."""

    @classmethod
    def beside(cls, call: StudyCall) -> Variants:
        """Yield a call, and in 16 bits the call as separate kernels: the hook ``variants``."""
        dtype = canonical_dtype(call.tensors["x"].dtype)
        yield "fused", dtype, call
        if dtype != "float32":
            yield cls.rounded_between, dtype, cls(*call.parts)


def fused_differs(
    call: StudyCall, dtype: str, variants: Variants, template: str
) -> list[tuple[str, float, str]]:
    """Return what fusing changes: the hook ``causes``, whose note has a share and a dtype."""
    from npu_sim.kernels.shared.elementwise import ulp_distance

    if dtype == "float32" or isinstance(call, UnfusedCall):
        return []
    fused, unfused = (varied.run().outputs["y"] for _, _, varied in variants)
    distances = ulp_distance(fused, unfused, dtype)
    share = np.count_nonzero(distances) / max(distances.size, 1)
    note = Text(template, percent=f"{100 * share:.1f} %", dtype=dtype)
    return [("fused_differs", float(distances.max(initial=0)), note)]


MISCOUNTED_TERMS = 2
"""Maximum number of terms to try as duplicated, and as missing."""


def miscounted_calls(
    call: StudyCall, sampled: Arrays, rows: Array, terms: Array, difference: Array
) -> Iterator[tuple[str, StudyCall]]:
    """Yield calls with one sample added twice, or missing, whose term is nearest to a difference.

    Parameters
    ----------
    call
        The call.
    sampled
        Its tensors that have samples, with the samples as their first axis.
    rows
        Samples that may be miscounted.
    terms : float64 (rows, columns)
        What each of them adds to some output elements.
    difference : float64 (columns,)
        The measured elements minus the computed ones.
    """
    count = next(iter(sampled.values())).shape[0]
    for row in rows[_nearest(terms, difference)].tolist():
        for place in (row + 1, count):  # beside the row, or after all others
            twice = {
                name: np.insert(array, place, array[row], axis=0) for name, array in sampled.items()
            }
            yield Text("row {row} added twice", row=row), call.with_tensors(**twice)
    for row in rows[_nearest(terms, -difference)].tolist():
        without = {name: np.delete(array, row, axis=0) for name, array in sampled.items()}
        yield Text("row {row} missing", row=row), call.with_tensors(**without)


def _nearest(terms: Array, difference: Array) -> Array:
    """Return the positions of the terms (terms, columns) that are nearest to a difference."""
    with np.errstate(invalid="ignore", over="ignore"):
        distances = np.abs(terms - difference).sum(axis=1)
    return np.argsort(distances, kind="stable")[:MISCOUNTED_TERMS]


def study_call(operator: str, call: Mapping[str, Any], *, draws: bool = True) -> StudyCall:
    """Return the :class:`StudyCall` of the keyword arguments of :func:`npu_sim.run`.

    With ``draws``, shapes get drawn data and names of files are read, as there. Raises UsageError
    for an unknown argument.
    """
    declared = load_operator(operator)
    profile = load_profile(call.get("product"), call.get("soc"), call.get("release"))
    if draws:
        given = {name: call[name] for name in declared.by_name if name in call}
        target = Target(profile, order=Order(seed=call.get("seed", 0)))
        call = {**call, **with_data(declared, given, target)}
    arrays = {
        name: as_array(call[name]) for name in declared.input_names if call.get(name) is not None
    }
    tensors = own_copies(declared.addressing, arrays)
    attributes = {
        attribute.name: call[attribute.name]
        for attribute in declared.attributes
        if attribute.name in call
    }
    known = (*declared.tensor_names, *attributes, "product", "soc", "release")
    options = {name: value for name, value in call.items() if name not in known}
    require_known(declared.by_name, [name for name in options if name not in CALL_OPTIONS])
    return StudyCall(declared.on(profile), tensors, attributes, profile, options)


Restore = Callable[[str, Array], Array | None]
"""Function (output name, values of a changed call) that returns the values of the original samples,
or None if they cannot be compared."""


@dataclass(frozen=True)
class RowCount:
    """Numbers of rows, from ``first`` up to the next one: their calls compute a row alike."""

    first: int
    template: str
    """What computes a row."""
    outputs: Callable[[], Mapping[str, Array]]
    """Returns the outputs of the given rows as such a call computes them."""
    bits: object = None
    """What decides the bits of a row: equal where these are equal for any data."""


@dataclass(frozen=True)
class RowCounts:
    """How the bits of a row depend on the number of rows of its call."""

    rows: int
    """Rows of the given call."""
    counts: Sequence[RowCount]
    """In ascending order, from 1 row on."""
    most: int | None = None
    """Largest number of rows; None without limit."""
    advice: str = ""
    """How to get the same bits for any number of rows, where these differ."""
    instead: RowCount | None = None
    """Other operators whose bits do not depend on it."""


def any_number_of_rows(call: StudyCall) -> RowCounts:
    """Return that all calls compute a row alike."""
    key = Text("tiling key {key}", key=call.case.tiling.tiling_key)
    return RowCounts(1, [RowCount(1, key, lambda: call.run().outputs)])


@dataclass(frozen=True)
class Changes:
    """Changes of a batch that the sample axes do not describe: the hook ``changes``."""

    grown: Callable[[StudyCall, int, str], StudyCall | None] | None = None
    """``grown(call, extra, fill)`` appends samples that do not affect the original ones: copies of
    them (``fill = "copy"``) or zeros (``"zero"``). Returns None if that is impossible."""
    found: Callable[[StudyCall, str, Array], Array | None] | None = None
    """``found(call, output, values)`` returns the original samples in an output of such a call."""
    others: Callable[[StudyCall], Iterator[tuple[str, StudyCall, Restore]]] | None = None
    """``others(call)`` yields further changes without effect in exact arithmetic: name, changed
    call, restore function."""
    row_counts: Callable[[StudyCall], RowCounts] | None = None
    """``row_counts(call)`` states which numbers of rows give a row other bits."""
    places: Callable[[StudyCall], Mapping[str, int]] | None = None
    """``places(call)`` returns the number of places that one sample has along the sample axis, by
    input. Inputs that are missing have one; so do all inputs when None."""


def surviving_units(
    call: StudyCall,
    terms: tuple[str, tuple[int, int], Any],
    columns: range,
    sums_in: Callable[[Arrays], Array],
    codes: Array,
    **others: Array,
) -> Array:
    """Return the number of units that survive in the kernel, for one probe per column.

    - ``terms``: the input with the terms, its rows and columns, and the rows that are terms.
    - ``columns``: the columns that are added in the order in question.
    - ``sums_in``: function that returns the sum of every column from the outputs of a call.
    - ``others``: further inputs of the kernel.
    """
    (name, shape, rows), tensor = terms, call.tensors[terms[0]]
    dtype, counts = canonical_dtype(tensor.dtype), []
    for begin in range(0, len(codes), len(columns)):
        piece = codes[begin : begin + len(columns)]
        used = slice(columns.start, columns.start + len(piece))
        probes = np.zeros(shape, numpy_dtype(dtype))
        probes[rows, used] = probe_terms(piece, dtype).T
        outputs = call.outputs(**{**others, name: probes.reshape(tensor.shape)})
        counts.append(count_units(sums_in(outputs)[used], dtype))
    return np.concatenate(counts)


def fold_in_arrival_order(
    contributions: Sequence[tuple[int, Tree | None]], order: Order, key: int
) -> Tree | None:
    """Return the left fold of contributions (core, tree) of one part in their order of arrival.

    ``key`` is the key of the part in random orders.
    """
    from npu_sim.kernels.shared.arrival_orders import arrival_of, seed_words

    cores = np.array([core for core, _ in contributions], np.int64)
    zeros = np.zeros((cores.size, 1), np.float32)
    places = arrival_of(order.code, seed_words(order.seed), key, cores, zeros, 0, 1)
    return left_fold([contributions[place][1] for place in places])


def formula_results(
    operator: str, arguments: Mapping[str, Any], tensors: Arrays, precision: Any = np.float64
) -> Arrays:
    """Return the results of an operator by its formula, in NumPy and in any precision.

    In float64 this is the golden value of the precision studies; in float32 it is the second
    implementation of the dual benchmark. It does not depend on a product, a plan or an order of
    additions.

    Parameters
    ----------
    operator
        Name of the operator.
    arguments
        The call; only its attributes are used.
    tensors
        The input tensors by name, in the operator's dtypes.
    precision
        ``numpy.float64`` or ``numpy.float32``: dtype of intermediate values and results.

    Returns
    -------
    dict
        Output arrays by name, in ``precision``.
    """
    declared = load_operator(operator)
    return declared.hook(FORMULA)(arguments, tensors, np.dtype(precision))


Numbers = dict[str, Any]
Shown = tuple[Numbers, list[str]]
"""The numbers that show an effect, and their meaning as lines of text."""


@dataclass(frozen=True)
class Experiment:
    """One documented caveat.

    Attributes
    ----------
    name, title
        Name, and the documented statement.
    source
        Product document.
    experiment
        Function that returns the numbers that show the effect, and their meaning.
    codes
        Codes of the caveats of plans and runs whose effect it shows.
    """

    name: str
    title: str
    source: str
    experiment: Callable[[], Shown]
    codes: tuple[str, ...] = ()


def different(a: Array, b: Array) -> int:
    """Return the number of elements that differ."""
    return int(np.count_nonzero(a != b))
