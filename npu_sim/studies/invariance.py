"""Invariance: changes that do not matter in exact arithmetic, and whether they change bits.

A sample is a row of rms_norm and cross_entropy, a token of MoE, a batch entry of conv_tbc, or a
vocabulary entry of the embedding that only the given rows use. Outputs that sum over samples
(dgamma, grad_weight, grad_bias) are compared only under changes that keep the samples.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from typing import Any

import numpy as np

from npu_sim.cores import is_older, load_profile, release_names, shipped_products
from npu_sim.framework.execution import Result
from npu_sim.framework.operator import CHANGES
from npu_sim.language import Text
from npu_sim.numbers.arrays import Array, Index
from npu_sim.operators.shared.study import Changes, Restore, RowCount, StudyCall, study_call
from npu_sim.orders.claims import OpenRule
from npu_sim.plans.answers import Printed
from npu_sim.status import NO_PLAN, without_internal_frames
from npu_sim.verdicts.judging import open_rules_of

Bits = dict[str, Array]


@dataclass(frozen=True)
class InvarianceRow:
    """One change and one output: whether bits change, and where first."""

    change: str
    output: str
    changes: bool | None
    """None where the change is not applicable, or its effect not known."""
    first: Index | None = None
    before: float = 0.0
    after: float = 0.0
    note: str = ""
    is_open: bool = False
    """Whether the effect is not known: it depends on a step that is only modelled."""


@dataclass(frozen=True)
class RowsAlike:
    """Numbers of rows whose calls compute a row alike, and how much of the given rows differs."""

    first: int
    last: int | None
    """Without limit where None."""
    template: str
    is_call: bool
    """Whether the given call is one of them."""
    different: Mapping[str, float]
    """Share of elements with other bits than in the given call, by output that has rows."""


@dataclass(frozen=True)
class RowsStudy:
    """Which numbers of rows give the given rows other bits."""

    counts: tuple[RowsAlike, ...]
    left_out: int
    """Ranges between these, which were not computed."""
    advice: str
    """How to get the same bits for any number of rows; empty where all have them."""
    instead: RowsAlike | None
    """Other operators whose bits do not depend on the number of rows."""
    is_invariant: bool
    """Whether a row has the same bits in all calls, whatever the data."""

    @property
    def differs(self) -> bool:
        """Whether a bit of the given rows differs."""
        return any(share for count in self.counts for share in count.different.values())


@dataclass(frozen=True, repr=False)
class InvarianceStudy(Printed):
    """Invariance study of one call."""

    operator: str
    product: str
    soc: str
    rows: tuple[InvarianceRow, ...]
    by_rows: RowsStudy | None = None
    """None for operators whose rows do not depend on each other's number, or are not listed."""

    def as_dict(self) -> dict[str, Any]:
        """Return the study as plain data."""
        return asdict(self)


@without_internal_frames
def study_invariance(
    operator: str, *, progress: Callable[[str, float], None] | None = None, **call: Any
) -> InvarianceStudy:
    """Return, for one change at a time, whether the bits of a result change.

    Parameters
    ----------
    operator
        Name of the operator.
    progress
        Called with the name of the change and the fraction done.
    **call
        The call as for :func:`npu_sim.run`.
    """
    base = study_call(operator, call)
    reference = _Computed(base, base.run())
    rows: list[InvarianceRow] = []
    changes = [*_batch_changes(base), *_machine_changes(base)]
    for position, (name, changed, restore) in enumerate(changes):
        if progress is not None:
            progress(name, position / len(changes))
        rows += _compare(name, reference, changed, restore)
    return InvarianceStudy(
        base.operator.name,
        base.profile.name,
        base.profile.soc,
        tuple(rows),
        _rows_study(base, reference.result.outputs),
    )


def _rows_study(base: StudyCall, reference: Bits) -> RowsStudy | None:
    """Return which numbers of rows give the given rows other bits."""
    hook, axes = _changes_of(base).row_counts, _sample_axes(base)
    if hook is None or not all(values.size for name, values in reference.items() if name in axes):
        return None
    found = hook(base)
    merged = [next(alike) for _, alike in groupby(found.counts, lambda count: count.template)]
    ends = [*(count.first - 1 for count in merged[1:]), found.most]
    own = max(at for at, count in enumerate(merged) if count.first <= found.rows)

    def alike(count: RowCount, last: int | None, *, is_call: bool) -> RowsAlike:
        outputs = {} if is_call else count.outputs()
        different = {
            name: float(np.mean(_bits(before) != _bits(outputs.get(name, before))))
            for name, before in reference.items()
            if name in axes
        }
        return RowsAlike(count.first, last, count.template, is_call, different)

    # Of many, the first and, further apart, larger ones.
    powers = {1 << bit for bit in range((len(merged) - 1).bit_length())}
    shown = sorted({0, *powers, own, len(merged) - 1})
    counts = tuple(alike(merged[at], ends[at], is_call=at == own) for at in shown)
    other = found.instead
    instead = None if other is None else alike(other, None, is_call=False)
    is_invariant = len({count.bits for count in merged}) == 1
    study = RowsStudy(counts, len(merged) - len(shown), found.advice, instead, is_invariant)
    return study if study.differs else replace(study, advice="", instead=None)


Change = tuple[str, StudyCall, Restore]
"""Name, changed call, and a function that selects the given samples of an output."""


@dataclass(frozen=True, eq=False)
class _Computed:
    """A call and its result."""

    call: StudyCall
    result: Result

    @cached_property
    def open_rules(self) -> list[OpenRule]:
        """What the steps that are only modelled, such as exp in fp32, allow the outputs to be."""
        call = replace(self.call, operator=self.call.operator.on(self.call.profile))
        with np.errstate(all="ignore"):
            return open_rules_of(call, self.result)

    def possible(self, output: str) -> tuple[Array, Array, str]:
        """Return the least and largest value of each element, and why some have several."""
        low = high = self.result.outputs[output].astype(np.float64)
        reason = ""
        for rule in self.open_rules:
            if rule.output == output and np.any(rule.lowest < rule.highest):
                low, high = np.minimum(low, rule.lowest), np.maximum(high, rule.highest)
                reason = reason or rule.reason
        return low, high, reason


def _compare(
    name: str, reference: _Computed, call: StudyCall, restore: Restore
) -> Iterator[InvarianceRow]:
    same_steps = call.profile.npu_arch == reference.call.profile.npu_arch
    try:
        changed = _Computed(call, call.run())
    except NO_PLAN as error:
        for output in reference.result.outputs:
            yield InvarianceRow(name, output, None, note=error.message)
        return
    for output, before in reference.result.outputs.items():
        after = changed.result.outputs.get(output)
        if after is None:
            yield InvarianceRow(name, output, None, note=Text("not written"))
            continue
        row = _compare_output(name, output, before, restore(output, after))
        keeps = same_steps or row.changes is None
        yield row if keeps else _unless_open(row, reference, changed)


def _unless_open(row: InvarianceRow, reference: _Computed, changed: _Computed) -> InvarianceRow:
    """Return a row, or that its effect is not known where it depends on steps only modelled.

    Calls on one architecture compute such a step alike, those on two need not.
    """
    low, high, reason = reference.possible(row.output)
    other_low, other_high, other = changed.possible(row.output)
    differs = row.changes and np.any((high < other_low) | (other_high < low))
    if differs or not (reason or other):
        return row
    return InvarianceRow(row.change, row.output, None, note=reason or other, is_open=True)


def _compare_output(change: str, output: str, before: Array, after: Array | None) -> InvarianceRow:
    if after is None:
        return InvarianceRow(change, output, None, note="depends on all samples, which changed")
    different = np.argwhere(_bits(before) != _bits(after.astype(before.dtype)))
    if different.size == 0:
        return InvarianceRow(change, output, False)
    first = tuple(int(place) for place in different[0])
    note = Text("{shape} of {size} elements", shape=different.shape[0], size=before.size)
    values = float(before[first]), float(after[first])
    return InvarianceRow(change, output, True, first, *values, note)


def _bits(values: Array) -> Array:
    """Return bit patterns; all nan are mapped to one pattern."""
    plain = values.astype(np.float32)
    bits: Array = np.where(
        np.isnan(plain), np.uint32(0x7FC00000), np.ascontiguousarray(plain).view(np.uint32)
    )
    return bits


def _batch_changes(base: StudyCall) -> Iterator[Change]:
    """Yield larger batches, padding rows, and another position in the batch."""
    changes, axes = _changes_of(base), _sample_axes(base)
    sampled = {
        name: axis
        for name, axis in axes.items()
        if name in base.tensors and base.tensors[name].ndim > axis
    }
    if not sampled:
        return
    places: Mapping[str, int] = changes.places(base) if changes.places is not None else {}
    first, axis = next(iter(sampled.items()))
    samples = base.tensors[first].shape[axis] // places.get(first, 1)
    if not samples:
        return

    def first_samples(output: str, values: Array) -> Array | None:
        if changes.found is not None:
            return changes.found(base, output, values)
        if output not in axes:
            return None
        return np.take(values, np.arange(samples), axis=axes[output])

    grow = changes.grown or partial(_grown, sampled)
    for name, extra, fill in (
        ("batch twice as large", samples, "copy"),
        ("8 padding rows", 8, "zero"),
    ):
        grown = grow(base, extra, fill)
        if grown is not None:
            yield name, grown, first_samples
    shift = max(1, samples // 3)

    def unrolled(output: str, values: Array) -> Array:
        return values if output not in axes else np.roll(values, -shift, axis=axes[output])

    rolled = {
        name: np.roll(base.tensors[name], shift * places.get(name, 1), axis=axis)
        for name, axis in sampled.items()
    }
    yield "another position in the batch", base.with_tensors(**rolled), unrolled


def _changes_of(base: StudyCall) -> Changes:
    """Return the operator's own changes of a batch."""
    if not base.operator.has_hook(CHANGES):
        return Changes()
    changes: Changes = base.operator.hook(CHANGES)
    return changes


def _sample_axes(base: StudyCall) -> dict[str, int]:
    """Return the axis of the samples, for inputs and results that have one."""
    operator, arguments = base.operator, base.arguments
    inputs = {tensor.name: tensor.sample_axis(arguments) for tensor in operator.inputs}
    results = {tensor.output: tensor.sample_axis(arguments) for tensor in operator.outputs}
    return {name: axis for name, axis in (inputs | results).items() if axis is not None}


def _grown(sampled: dict[str, int], base: StudyCall, extra: int, fill: str) -> StudyCall:
    """Return the call with samples appended: copies of the given ones, or zeros."""
    changed = {}
    for name, axis in sampled.items():
        values = base.tensors[name]
        picked = np.take(values, np.arange(extra) % values.shape[axis], axis=axis)
        if fill == "zero" and name in base.operator.floating:
            picked = np.zeros_like(picked)
        changed[name] = np.concatenate([values, picked], axis=axis)
    return base.with_tensors(**changed)


def _machine_changes(base: StudyCall) -> Iterator[Change]:
    """Yield another core count, other products and releases, the other mode, and own changes."""

    def same(output: str, values: Array) -> Array:
        return values

    for soc, chip in base.profile.product.socs.items():
        if (chip.vector_cores, chip.cube_cores) != (
            base.profile.chip.vector_cores,
            base.profile.chip.cube_cores,
        ):
            text = Text(
                "{vector_cores} vector and {cube_cores} cube cores ({soc})",
                vector_cores=chip.vector_cores,
                cube_cores=chip.cube_cores,
                soc=soc,
            )
            yield text, replace(base, profile=base.profile.with_soc(soc)), same
            break
    for product in shipped_products():
        if product != base.profile.name:
            yield (
                Text("product {product}", product=product),
                replace(base, profile=load_profile(product, release=base.profile.release)),
                same,
            )
    for release in release_names():
        is_known = not is_older(release, base.profile.product.oldest_release)
        if is_known and release != base.profile.release:
            yield (
                Text("release {release}", release=release),
                replace(base, profile=base.profile.with_release(release)),
                same,
            )
    other = not base.options.get("deterministic", False)
    yield (
        Text("deterministic computation {state}", state="on" if other else "off"),
        base.with_options(deterministic=other),
        same,
    )
    others = _changes_of(base).others
    if others is not None:
        yield from others(base)
