"""Whether the bits of a sample's gradient change when something changes that, in exact arithmetic, does not matter.

A sample is a row of rms_norm and cross_entropy, a token of MoE, a batch entry of conv_tbc, and for the embedding a word that only
the given rows touch. Outputs that sum over samples (dgamma, grad_weight, grad_bias) are compared only where the samples stay.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from npu_sim.cores import load_profile, shipped_products
from npu_sim.formats import canonical_dtype
from npu_sim.status import AclnnError
from npu_sim.studies.calls import StudyCall, floating_tensors, room, study_call

Bits = dict[str, np.ndarray]


@dataclass(frozen=True)
class InvarianceRow:
    """One change and one output: whether bits change (None: the change does not apply), and where first."""

    change: str
    output: str
    changes: bool | None
    first: tuple[int, ...] | None = None
    before: float = 0.0
    after: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class InvarianceStudy:
    """The study of one call."""

    operator: str
    product: str
    soc: str
    rows: tuple[InvarianceRow, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the study as plain data."""
        return asdict(self)


def study_invariance(operator: str, *, progress: Callable[[str, float], None] | None = None, **call: Any) -> InvarianceStudy:
    """Change one thing at a time and compare bits.

    Parameters
    ----------
    operator
        Name of the operator.
    progress
        Called with the change and the share done.
    **call
        The call as for :func:`npu_sim.run`.
    """
    base = study_call(operator, call)
    reference = base.run().outputs
    rows: list[InvarianceRow] = []
    changes = [*_batch_changes(base), *_machine_changes(base)]
    for place, (name, changed, restore) in enumerate(changes):
        if progress is not None:
            progress(name, place / len(changes))
        rows += _compare(name, reference, changed, restore)
    return InvarianceStudy(base.operator, base.profile.name, base.profile.soc, tuple(rows))


Change = tuple[str, StudyCall, Callable[[str, np.ndarray], np.ndarray | None]]
"""Name, the changed call, and how to find the original samples in an output of it (None: not comparable)."""


def _compare(
    name: str, reference: Bits, changed: StudyCall, restore: Callable[[str, np.ndarray], np.ndarray | None]
) -> list[InvarianceRow]:
    try:
        outputs = changed.run().outputs
    except AclnnError as error:
        return [InvarianceRow(name, output, None, note=error.message) for output in reference]
    rows = []
    for output, before in reference.items():
        after = restore(output, outputs[output])
        if after is None:
            rows.append(InvarianceRow(name, output, None, note="sums over the samples, which changed"))
            continue
        different = np.argwhere(_bits(before) != _bits(after.astype(before.dtype)))
        if different.size == 0:
            rows.append(InvarianceRow(name, output, False))
        else:
            first = tuple(int(place) for place in different[0])
            note = f"{different.shape[0]} of {before.size} elements"
            rows.append(InvarianceRow(name, output, True, first, float(before[first]), float(after[first]), note))
    return rows


def _bits(values: np.ndarray) -> np.ndarray:
    """Return bit patterns; all nan count as one."""
    plain = values.astype(np.float32)
    bits: np.ndarray = np.where(np.isnan(plain), np.uint32(0x7FC00000), np.ascontiguousarray(plain).view(np.uint32))
    return bits


def sample_axes(base: StudyCall) -> dict[str, int]:
    """Return the axis along which samples lie, for inputs and outputs that have one."""
    axes: dict[str, int] = room(base.operator).SAMPLE_AXES
    return axes


def _batch_changes(base: StudyCall) -> Iterator[Change]:
    """Yield larger batches, another position in the batch, and padding rows."""
    axes = sample_axes(base)
    first_input = next(name for name in base.tensors if name in axes)
    samples = base.tensors[first_input].shape[axes[first_input]]
    if base.operator == "moe_token_permute_grad":
        samples //= base.attributes["num_topk"]
    for name, extra, fill in (("batch twice as large", samples, "copy"), ("8 padding rows", 8, "zero")):
        grown = _grown(base, extra, fill)
        if grown is not None:
            yield name, grown, lambda output, values: _first_samples(base, output, values, samples)
    shift = max(1, samples // 3)
    rolled = _rolled(base, shift)
    yield "another position in the batch", rolled, lambda output, values: _unrolled(base, output, values, shift)


def _grown(base: StudyCall, extra: int, fill: str) -> StudyCall | None:
    """Return the call with samples appended that must not touch the given ones; None where that is impossible."""
    axes, changed = sample_axes(base), {}
    if base.operator == "moe_token_permute_grad":
        grad, indices, top_k = base.tensors["permuted_output_grad"], base.tensors["sorted_indices"], base.attributes["num_topk"]
        more = np.resize(grad, (extra * top_k, grad.shape[1])) if fill == "copy" else np.zeros((extra * top_k, grad.shape[1]), grad.dtype)
        # Rows that were dropped stay dropped: new rows follow the whole range of old indices.
        end = max(int(indices.max(initial=-1)) + 1, grad.shape[0])
        if end != grad.shape[0]:
            return None
        added = np.arange(end, end + extra * top_k, dtype=indices.dtype)
        return base.with_tensors(permuted_output_grad=np.concatenate([grad, more]), sorted_indices=np.concatenate([indices, added]))
    for name, axis in axes.items():
        if name not in base.tensors:
            continue
        values = base.tensors[name]
        picked = np.take(values, np.arange(extra) % values.shape[axis], axis=axis)
        if fill == "zero" and name in floating_tensors(base.operator):
            picked = np.zeros_like(picked)
        if base.operator == "embedding_dense_backward" and name == "indices":
            unused = np.setdiff1d(np.arange(base.attributes["num_weights"]), values.astype(np.int64))
            if unused.size == 0:
                return None
            picked = np.full_like(picked, unused[0])
        changed[name] = np.concatenate([values, picked], axis=axis)
    return base.with_tensors(**changed, **_per_row_loss(base, extra))


def _per_row_loss(base: StudyCall, extra: int) -> dict[str, np.ndarray]:
    loss = base.tensors.get("grad_loss")
    if loss is None or loss.ndim == 0:
        return {}
    return {"grad_loss": np.concatenate([loss, np.resize(loss, extra)])}


def _first_samples(base: StudyCall, output: str, values: np.ndarray, samples: int) -> np.ndarray | None:
    if base.operator == "embedding_dense_backward":
        touched = np.unique(base.tensors["indices"].astype(np.int64))
        kept = np.zeros_like(values)
        kept[touched] = values[touched]
        return kept
    axis = sample_axes(base).get(output)
    return None if axis is None else np.take(values, np.arange(samples), axis=axis)


def _rolled(base: StudyCall, shift: int) -> StudyCall:
    axes, changed = sample_axes(base), {}
    for name, axis in axes.items():
        if name in base.tensors:
            step = shift * base.attributes["num_topk"] if base.operator == "moe_token_permute_grad" else shift
            changed[name] = np.roll(base.tensors[name], step, axis=axis)
    loss = base.tensors.get("grad_loss")
    if loss is not None and loss.ndim == 1:
        changed["grad_loss"] = np.roll(loss, shift)
    return base.with_tensors(**changed)


def _unrolled(base: StudyCall, output: str, values: np.ndarray, shift: int) -> np.ndarray | None:
    if base.operator == "embedding_dense_backward":
        return values
    axis = sample_axes(base).get(output)
    return values if axis is None else np.roll(values, -shift, axis=axis)


def _machine_changes(base: StudyCall) -> Iterator[Change]:
    """Yield another core count, other products, the determinism switch, and the other dtype path."""

    def same(output: str, values: np.ndarray) -> np.ndarray:
        return values

    socs = base.profile.product.socs
    for soc, chip in socs.items():
        if (chip.vector_cores, chip.cube_cores) != (base.profile.chip.vector_cores, base.profile.chip.cube_cores):
            text = f"{chip.vector_cores} vector and {chip.cube_cores} cube cores ({soc})"
            yield text, replace(base, profile=base.profile.with_soc(soc)), same
            break
    for product in shipped_products():
        if product != base.profile.name:
            yield f"product {product}", replace(base, profile=load_profile(product)), same
    other = not base.options.get("deterministic", False)
    yield f"deterministic computation {'on' if other else 'off'}", base.with_options(deterministic=other), same
    if base.operator == "embedding_dense_backward" and canonical_dtype(base.tensors["grad"].dtype) != "float32":
        wide = replace(base, tensors={**base.tensors, "grad": base.tensors["grad"].astype(np.float32)})
        yield "fp32 gradients instead of 16-bit ones", wide, lambda output, values: values.astype(base.tensors["grad"].dtype)
        weights = -(-104857600 // (2 * base.tensors["grad"].shape[-1]))
        larger = replace(base, attributes={**base.attributes, "num_weights": max(weights, base.attributes["num_weights"])})
        yield "native 16-bit path (more weights)", larger, lambda output, values: values[: base.attributes["num_weights"]]
