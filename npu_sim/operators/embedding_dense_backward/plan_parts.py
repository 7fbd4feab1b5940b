"""What the plans of both kernels of EmbeddingDenseBackward share: kernels in launch order, buffers, warnings.

Source: specification pages ``embedding_dense_backward`` and ``workspace``.
"""

from npu_sim.cores import NPU_ARCH_A2_A3
from npu_sim.framework.case import Case
from npu_sim.framework.codes import FLOAT32
from npu_sim.numbers.formats import SHORT_NAMES
from npu_sim.operators.embedding_dense_backward.outcome import (
    GRAD,
    GRAD_V2,
    INT32_MAX,
    KERNELS,
    casts_indices,
)
from npu_sim.plans.answers import Evidence
from npu_sim.plans.launches import Launch, LaunchTensor, contiguous_copy
from npu_sim.plans.model import Allocation, Caveat
from npu_sim.plans.workspace_model import WorkspacePart
from npu_sim.tiling.common import ROWS_IN_UB, SORTABLE_ROWS, sort_workspace_bytes

MEMSET_NOTE = "clears the result, in the launch of the kernel itself"
EXACT_COUNT = 16777216
"""2^24: fp32 counters stop here (page, "scale")."""


def buffer(name: str, size: int, note: str = "") -> Allocation:
    """Return one allocation of the Unified Buffer."""
    return Allocation(name=name, bytes=size, note=note)


def casts_grad(case: Case) -> bool:
    """Whether a 16-bit gradient is cast to fp32 before the kernel, and its result back."""
    return case.row.grad_dtype != FLOAT32 and not case.tiling.native_16_bit


def launches_of(
    case: Case, kernel_parts: tuple[WorkspacePart, ...], block_dim: int, sorts: bool
) -> tuple[Launch, ...]:
    """Return what the device starts, in launch order (pages ``workspace``, "EmbeddingDenseBackward", and ``releases``, "Switches")."""
    row, outcome, casts = case.row, case.tiling, casts_grad(case)
    launches: list[Launch] = []
    grad = _prepare(launches, case, "grad", "float32" if casts else "")
    indices = _prepare(
        launches,
        case,
        "indices",
        "int32" if casts_indices(row, keeps_int64=outcome.kernel == GRAD) else "",
    )
    out, out_contiguous = case.tensor("out"), case.specs["out"].contiguous
    written = _between("result", out, out.dtype if outcome.native_16_bit else "float32")
    if not casts and out_contiguous:
        written = out
    inputs: tuple[LaunchTensor, ...] = (grad, indices)
    if sorts and row.rows > 1:
        launches.append(_sort(indices, row.rows))
        inputs = (grad, *(found.viewed(found.shape, "int32") for found in launches[-1].outputs))
    if sorts and case.rules.zeros_like:
        launches.append(Launch(kernel="ZerosLike", outputs=(written,)))
    if outcome.kernel == GRAD_V2:
        observed = Evidence.EXACT if case.rules.memset_observed else Evidence.MODEL
        launches.append(
            Launch(
                kernel="MemSet",
                outputs=(written,),
                is_node=False,
                evidence=observed,
                note=MEMSET_NOTE,
            )
        )
    name = KERNELS[outcome.kernel]
    launches.append(
        Launch(
            kernel=name,
            inputs=inputs,
            outputs=(written,),
            block_dim=block_dim,
            workspace=kernel_parts,
        )
    )
    if casts:
        target = out if out_contiguous else _between("result in the dtype of out", out, out.dtype)
        launches.append(Launch(kernel="Cast", inputs=(written,), outputs=(target,)))
        written = target
    if not out_contiguous:
        launches.append(
            Launch(kernel="ViewCopy", inputs=(written,), outputs=(out,), evidence=Evidence.MODEL)
        )
    return tuple(launches)


def _between(name: str, like: LaunchTensor, dtype: str) -> LaunchTensor:
    return LaunchTensor(name=name, shape=like.shape, dtype=dtype, intermediate=True)


def _prepare(launches: list[Launch], case: Case, name: str, cast_to: str) -> LaunchTensor:
    """Add the launches that make an input contiguous and cast it; return what comes out."""
    tensor = case.tensor(name)
    if not case.specs[name].contiguous:
        launches.append(contiguous_copy(name, tensor.shape, tensor.dtype))
        tensor = launches[-1].outputs[0]
    if not cast_to:
        return tensor
    cast = _between(f"{name} as {SHORT_NAMES[cast_to]}", tensor, cast_to)
    launches.append(Launch(kernel="Cast", inputs=(tensor,), outputs=(cast,)))
    return cast


def _sort(indices: LaunchTensor, rows: int) -> Launch:
    """Return the launch that sorts: on the AI cores int32 goes as fp32, which has the same order below ``SORTABLE_ROWS``."""
    on_cores = rows < SORTABLE_ROWS
    values = indices.viewed((rows,), "float32" if on_cores else "int32")
    outputs = (
        _between("sorted indices", values, values.dtype),
        _between("positions", values, "int32"),
    )
    note, evidence, size = (
        "published formula; which branch runs is decided by closed host code",
        Evidence.MODEL,
        sort_workspace_bytes(rows),
    )
    if not on_cores:
        note, evidence, size = "sorted on the AI CPU; not published", Evidence.UNKNOWN, 0
    part = WorkspacePart(
        name="workspace of Sort", bytes=size, kind="kernel", evidence=evidence, note=note
    )
    return Launch(
        kernel="Sort",
        inputs=(values,),
        outputs=outputs,
        block_dim=(1 if rows <= ROWS_IN_UB else None) if on_cores else 0,
        note="" if on_cores else "on the AI CPU",
        workspace=(part,),
    )


def caveats_of(case: Case) -> tuple[Caveat, ...]:
    """Return the warnings that depend on the call alone, not on its tiling."""
    caveats, row = [], case.row
    slow = " nor high performance in deterministic mode" if case.deterministic else ""
    if case.profile.npu_arch == NPU_ARCH_A2_A3:
        for code, name, value in (
            ("rows_above_int32", "grad", row.rows),
            ("weights_above_int32", "num_weights", row.num_weights),
        ):
            if value > INT32_MAX:
                message = f"{name}: {value} exceeds INT32_MAX ({INT32_MAX}): high precision is not guaranteed{slow}"
                caveats.append(Caveat(code=code, argument=name, message=message))
        if row.rows > SORTABLE_ROWS:
            message = f"{row.rows} indices exceed {SORTABLE_ROWS}, beyond which int32 does not sort as fp32: no high performance"
            caveats.append(
                Caveat(code="indices_above_sortable", argument="indices", message=message)
            )
    if row.scale_grad_by_freq and row.rows > EXACT_COUNT and case.tiling.kernel == GRAD_V2:
        message = f"fp32 counters stop at {EXACT_COUNT}; an index that occurs more often is scaled by 1/{EXACT_COUNT}"
        caveats.append(Caveat(code="counter_stops", argument="scale_grad_by_freq", message=message))
    if row.padding_idx >= row.num_weights:
        message = f"padding_idx {row.padding_idx} is beyond num_weights {row.num_weights} and matches nothing"
        caveats.append(
            Caveat(code="padding_matches_nothing", argument="padding_idx", message=message)
        )
    return tuple(caveats)
