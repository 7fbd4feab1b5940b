"""EmbeddingDenseBackward in its workspace: the tensors between its kernels (specification page ``workspace``).

In the workspace lie: contiguous copies, the gradient as fp32, the indices as int32, the sorted indices and positions (the simulator
marks chunks in the positions: the last of a chunk is its complement), the fp32 result or fp32 copy of out, the frequency counters,
and what every core stages on the native 16-bit path. Reserved and not filled: the system workspace.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from npu_sim.areas import Areas, contiguous
from npu_sim.ops.base import Order
from npu_sim.ops.embedding_dense_backward import cut_of
from npu_sim.planning.embedding_dense_backward_case import Case
from npu_sim.tiling import embedding_dense_backward as v2

if TYPE_CHECKING:
    from npu_sim.kernels.embedding_dense_backward import Grouped

Array = np.ndarray[Any, Any]


def last_array(case: Case, written: Array, areas: Areas) -> Array:
    """Return the array whose values go to the caller: in the workspace when the caller's array is strided."""
    shape = (case.num_weights, case.dim)
    if "result in the dtype of out" in areas:
        return areas.array("result in the dtype of out", shape, case.grad_dtype)
    if "result" in areas and "grad as fp32" not in areas:
        return areas.array("result", shape, case.grad_dtype)
    return written


def compute(case: Case, tensors: Mapping[str, Array], indices: Array, written: Array, order: Order, areas: Areas) -> "Grouped":
    """Compute the gradient, every intermediate tensor in its area.

    Parameters
    ----------
    indices : int32 or int64 (rows,)
        Checked and converted.
    written : (num_weights, dim)
        From :func:`last_array`.
    """
    from npu_sim.dtypes import kernel_input, narrow_array, storage_view
    from npu_sim.kernels.embedding_dense_backward import Scratch, embedding_dense_backward

    grad = _grad(case, tensors["grad"], areas)
    indices = _indices(tensors["indices"], indices, areas)
    result = _result(case, written, areas)
    # The indices may share their memory with the result: they are read before the first sum is written.
    scratch = Scratch(_area(areas, "positions", case.rows, "int32"), _area(areas, "frequency counters", case.num_weights, "float32"))
    call = (cut_of(case), case.padding_idx, case.scale_grad_by_freq, order.code, order.seed, scratch)
    grouped = embedding_dense_backward(kernel_input(grad), indices, storage_view(result), *call)
    if "sorted indices" in areas:
        areas.put("sorted indices", np.repeat(np.arange(case.num_weights, dtype=np.int32), np.diff(grouped.starts)))
    if "stage rows" in areas:
        _stage(case, kernel_input(grad), grouped, areas)
    if result is not written:
        narrow_array(result, case.grad_dtype, out=written)
    return grouped


def _area(areas: Areas, name: str, size: int, dtype: str) -> Array | None:
    return areas.array(name, (size,), dtype) if name in areas else None


def _grad(case: Case, grad: Array, areas: Areas) -> Array:
    from npu_sim.dtypes import widen_array

    rows = contiguous("grad", grad, areas).reshape(case.rows, case.dim)
    if "grad as fp32" in areas:
        return widen_array(rows, out=areas.array("grad as fp32", rows.shape, "float32"))
    # The device widens 16-bit rows one by one; the simulator's kernel writes fp32 sums of fp32 rows only.
    return widen_array(rows) if "fp32 copy of out" in areas else rows


def _indices(given: Array, converted: Array, areas: Areas) -> Array:
    """Return the indices from where the kernel finds them; the conversion has the same values as the device's cast."""
    copy = contiguous("indices", given, areas).reshape(-1)
    if "indices as int32" in areas:
        copy = areas.put("indices as int32", converted, "int32")
    return copy if copy.dtype == converted.dtype and copy.flags.writeable else converted


def _result(case: Case, written: Array, areas: Areas) -> Array:
    """Return what the kernel writes: fp32 where a cast follows."""
    shape = (case.num_weights, case.dim)
    if "fp32 copy of out" in areas:
        return areas.array("fp32 copy of out", shape, "float32")
    if "result" in areas and "grad as fp32" in areas:
        return areas.array("result", shape, "float32")
    return written


def _stage(case: Case, grad: Array, grouped: "Grouped", areas: Areas) -> None:
    """Write what every core stages: the sums of its first and its last index, and those indices.

    A core whose slice holds one index stages zeros second; the padding index stages zeros. Rows longer than the Unified Buffer are
    staged a piece at a time: the last piece is what stays.
    """
    from npu_sim.kernels.embedding_dense_backward import core_sum

    tiling = v2.tile(case.v2_problem(), case.profile.device)
    columns = tiling.tail_dim or tiling.former_dim
    core_starts = grouped.cut.core_starts()
    rows = areas.array("stage rows", (2 * grouped.cut.cores, tiling.former_dim), "float32")
    staged = areas.array("stage indices", (2 * grouped.cut.cores,), "int32")
    for core, (begin, stop) in enumerate(zip(core_starts[:-1].tolist(), core_starts[1:].tolist(), strict=True)):
        first, last = (int(np.searchsorted(grouped.starts, slot, side="right")) - 1 for slot in (begin, stop - 1))
        for slot, index in enumerate((first, last)):
            own_begin, own_stop = max(begin, int(grouped.starts[index])), min(stop, int(grouped.starts[index + 1]))
            sums = rows[2 * core + slot, :columns]
            staged[2 * core + slot] = index
            if index == grouped.padding_idx or (slot == 1 and first == last):
                sums[:] = 0
            else:
                sums[:] = core_sum(grad, grouped.marked, own_begin, own_stop)[-columns:]
