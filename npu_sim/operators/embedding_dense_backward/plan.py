"""The plan of EmbeddingDenseBackward: path, buffers, workspace, launches and decisions.

Source: specification pages ``embedding_dense_backward`` and ``workspace``.
"""

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

from npu_sim.framework.vocabulary import (
    FLOAT32,
    FP32_PER_BLOCK,
    NPU_ARCH_A2_A3,
    ORDERED_ADDITIONS,
    ROWS_IN_UB,
    SHORT_NAMES,
    SORTABLE_ROWS,
    Case,
    Caveat,
    Condition,
    Decision,
    Description,
    Evidence,
    Launch,
    LaunchTensor,
    Memory,
    OutputOrder,
    Text,
    WorkspacePart,
    align,
    caveat,
    ceil_div,
    core_works,
    counted,
    decision,
    intermediate,
    kernel_parts,
    plural,
    sort_workspace_bytes,
    ub_memory,
    vector_plan,
)
from npu_sim.operators.embedding_dense_backward.declaration import (
    CAST_LIMIT_BYTES,
    CAST_LIMIT_ROWS,
    INT32_MAX,
    KERNEL_GRAD_V2,
    KERNELS,
    casts_indices,
    needs_cast,
    older_index_bytes,
)
from npu_sim.operators.shared.launches import Executor
from npu_sim.tiling import embedding_dense_backward as v2
from npu_sim.tiling.embedding_dense_backward import embedding_dense_grad as v1


def rows_per_flush(tiling_key: int, rules: Any) -> int:
    """Return the rows that a core sums between two flushes, for a tiling key that sorts."""
    rows: int = (
        rules.rows_per_deterministic_flush
        if v2.is_deterministic(tiling_key)
        else rules.rows_per_flush
    )
    return rows


CAST_EFFECT = "the kernel sees fp32 and the result is rounded once at the end"


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    if case.tiling.kernel == KERNEL_GRAD_V2:
        return _describe_v2(case, case.tiling.tiling)
    return _describe_older(case, case.tiling.older)


def _describe_v2(case: Case, tiling: v2.Tiling) -> Description:
    row, key, cores = case.row, tiling.tiling_key, range(tiling.block_dim)
    sorts = not v2.is_small_dim(key)
    unit = "sorted row" if sorts else "row"
    ranges = {plural(unit): [v2.row_range(tiling, core) for core in cores]}
    if row.scale_grad_by_freq:
        ranges["weight rows"] = [v2.weight_range(tiling, core) for core in cores]
    launches = launches_of(
        case,
        _kernel_parts(case, tiling),
        casts=row.grad_dtype != FLOAT32 and not case.tiling.native_16_bit,
        index_dtype="int32" if casts_indices(row, keeps_int64=False) else "",
        sort=_sort if sorts and row.rows > 1 else None,
        zeros=sorts and case.rules.zeros_like == 1,
        memset=Evidence.EXACT if case.rules.memset_observed else Evidence.MODEL,
    )
    return vector_plan(
        case,
        kernel="EmbeddingDenseGradV2",
        path=_path(case, key),
        path_reason=_path_reason(case, key),
        per_core=_per_core(tiling),
        tiling=tiling,
        fields=v2.vendor_structure(tiling, case.arguments, case.rules),
        ranges=ranges[plural(unit)],
        unit=unit,
        cores=lambda: core_works(ranges),
        memories=lambda: _memories(case, tiling),
        conditions=lambda: _decisions(case),
        launches=launches,
        order=lambda: (_order(case, tiling),),
        caveats=(*caveats_of(case), *_offset_caveats(case, key)),
    )


def _offset_caveats(case: Case, key: int) -> Iterator[Caveat]:
    """Warn if the release computes row offsets in too few bits (page ``releases``)."""
    row, elements = case.row, 1 << case.rules.row_offset_bits
    if v2.is_small_dim(key) and row.num_weights * row.dim > elements:
        yield caveat(
            "small_dim_offset_wraps",
            "num_weights",
            "release {release} computes index * dim in {row_offset_bits} bits: rows from index "
            "{count} on, {elements} elements into the result, go to another row; the simulator "
            "computes as if they did not",
            release=case.profile.release,
            row_offset_bits=case.rules.row_offset_bits,
            count=ceil_div(elements, row.dim),
            elements=elements,
            not_modelled="*",
        )


def _path(case: Case, key: int) -> str:
    scale = ", then scaled by frequency" if case.row.scale_grad_by_freq else ""
    if v2.is_small_dim(key):
        return Text("small dim, rows added unsorted{scale}", scale=scale)
    if v2.is_deterministic(key):
        return Text("sorted, deterministic{scale}", scale=scale)
    if case.tiling.native_16_bit:
        return "sorted, native 16-bit"
    return Text(
        "sorted, atomic chunks of {rows_per_flush} rows{scale}",
        rows_per_flush=rows_per_flush(key, case.rules),
        scale=scale,
    )


def _path_reason(case: Case, key: int) -> str:
    if v2.is_small_dim(key):
        return Text(
            "dim {dim} <= {small_dim_limit} and numWeights {num_weights} <= {small_dim_weights}",
            dim=case.row.dim,
            small_dim_limit=v2.SMALL_DIM_LIMIT,
            num_weights=case.row.num_weights,
            small_dim_weights=v2.SMALL_DIM_WEIGHTS,
        )
    if case.deterministic:
        return "deterministic computation is on"
    if case.row.dim > v2.SMALL_DIM_LIMIT:
        return Text(
            "dim {dim} > {small_dim_limit}", dim=case.row.dim, small_dim_limit=v2.SMALL_DIM_LIMIT
        )
    return Text(
        "numWeights {num_weights} > {small_dim_weights}",
        num_weights=case.row.num_weights,
        small_dim_weights=v2.SMALL_DIM_WEIGHTS,
    )


def _per_core(tiling: v2.Tiling) -> str:
    if v2.is_small_dim(tiling.tiling_key):
        small = tiling.small_dim
        return Text(
            "one batch of {rows}"
            if small.tail_copy_time <= 1
            else "{times} batches of up to {rows}",
            times=small.tail_copy_time,
            rows=counted(min(small.max_row_in_ub, small.tail_copy_row), "row"),
        )
    if tiling.dim > tiling.former_dim:
        return Text(
            "rows in pieces of {former_dim} columns ({former_dim_rep_time}, tail {tail_dim})",
            former_dim=tiling.former_dim,
            former_dim_rep_time=tiling.former_dim_rep_time,
            tail_dim=tiling.tail_dim,
        )
    return Text("one row of {dim} columns at a time", dim=tiling.dim)


def _memories(case: Case, tiling: v2.Tiling) -> tuple[Memory, ...]:
    main_buffers = _small_dim_buffers if v2.is_small_dim(tiling.tiling_key) else _sorted_buffers
    main = main_buffers(case, tiling)
    if not case.row.scale_grad_by_freq:
        return (ub_memory(case, main, notes=BUFFER_NOTES),)
    row_bytes = align(tiling.former_dim, 8) * 4
    scale = {"row in": row_bytes, "counter": 32, "row out": row_bytes}
    return ub_memory(case, main, "rows", BUFFER_NOTES), ub_memory(case, scale, "scale")


BUFFER_NOTES = {"accumulators": "two", "cache row": "second accumulator in fp32"}


def _sorted_buffers(case: Case, tiling: v2.Tiling) -> dict[str, int]:
    granule = FP32_PER_BLOCK if v2.is_deterministic(tiling.tiling_key) else case.rules.dim_granule
    row_bytes = align(tiling.former_dim, granule) * 4
    return {
        "sorted index": 32,
        "position": 32,
        "frequency": 32,
        "gradient row": row_bytes,
        "accumulators": 2 * row_bytes,
        "cache row": row_bytes if case.tiling.native_16_bit else 0,
    }


def _small_dim_buffers(case: Case, tiling: v2.Tiling) -> dict[str, int]:
    copy_row = min(tiling.small_dim.max_row_in_ub, tiling.small_dim.tail_copy_row)
    columns = align(case.row.dim, 16 if case.tiling.native_16_bit else 8)
    indices = align(copy_row, 32)
    return {
        "indices": 4 * indices,
        "positions": 4 * indices,
        "indices as fp32": 4 * indices,
        "sort scratch": 12 * indices,
        "sort result": 12 * indices,
        "gradient rows": align(columns * copy_row, case.rules.small_dim_granule) * 4,
        "accumulator": 4 * case.row.dim,
    }


SMALL_DIM = Condition(
    "small dim",
    Text(
        "not deterministic and dim <= {small_dim_limit} and numWeights <= {small_dim_weights}",
        small_dim_limit=v2.SMALL_DIM_LIMIT,
        small_dim_weights=v2.SMALL_DIM_WEIGHTS,
    ),
    lambda row, device, rules: v2.takes_small_dim(row.dim, row.num_weights, row.deterministic),
    "rows are added in batches without sorting them first",
    "indices are sorted first",
    ("dim", "numWeights", "deterministic"),
)
FP32_ONLY = Condition(
    "cast to fp32",
    "the kernel of this release takes fp32 only",
    lambda row, device, rules: True,
    CAST_EFFECT,
)
CAST = Condition(
    "cast to fp32",
    Text(
        "(numel(grad) + numel(out)) * 2 < {cast_limit_bytes} or rows < {cast_limit_rows} "
        "or scaleGradByFreq",
        cast_limit_bytes=CAST_LIMIT_BYTES,
        cast_limit_rows=CAST_LIMIT_ROWS,
    ),
    lambda row, device, rules: needs_cast(row),
    CAST_EFFECT,
    "the kernel reads 16-bit rows itself",
    ("rows",),
)
SCALES = Condition(
    "scale by frequency",
    "scaleGradByFreq",
    lambda row, device, rules: row.scale_grad_by_freq == 1,
    "weight rows are split over cores",
    "gradient rows are split over cores",
    ("scaleGradByFreq",),
)
BEYOND_INT32 = Condition(
    "beyond INT32_MAX",
    Text("rows > {int32_max} or numWeights > {int32_max}", int32_max=INT32_MAX),
    lambda row, device, rules: max(row.rows, row.num_weights) > INT32_MAX,
    "EmbeddingDenseGrad runs instead of EmbeddingDenseGradV2",
    vary=("rows", "numWeights"),
)


def _decisions(case: Case) -> Iterator[Decision]:
    row, native, deterministic = case.row, case.tiling.native_16_bit, case.deterministic
    if row.grad_dtype != FLOAT32 and not case.rules.kernel_takes_16_bit:
        yield decision(case, FP32_ONLY, release=case.profile.release)
    elif row.grad_dtype != FLOAT32:
        sizes = {
            "(numel(grad) + numel(out)) * 2": 2 * (row.rows + row.num_weights) * row.dim,
            "rows": row.rows,
        }
        yield decision(case, CAST, **sizes, scaleGradByFreq=bool(row.scale_grad_by_freq))
    sizes = {"dim": row.dim, "numWeights": row.num_weights}
    yield decision(case, SMALL_DIM, deterministic=deterministic, **sizes)
    fixed = Condition(
        "deterministic kernel",
        "deterministic and the kernel sees fp32",
        lambda row, device, rules: not native and row.deterministic == 1,
        "a run of equal indices belongs to the core where it starts",
        "native 16-bit is fixed by itself: the slots of every core are summed in order"
        if native and case.tiling.tiling.tiling_key == 0
        else "each core adds directly to the output",
        ("deterministic",),
    )
    seen = {"kernel sees": "16-bit" if native else "fp32"}
    yield decision(case, fixed, deterministic=deterministic, **seen)


def _kernel_parts(case: Case, tiling: v2.Tiling) -> tuple[WorkspacePart, ...]:
    sizes = {}
    if case.row.scale_grad_by_freq:
        sizes["frequency counters"] = case.rules.counter_bytes * tiling.scale_workspace_length
    if case.tiling.native_16_bit and v2.is_small_dim(tiling.tiling_key):
        sizes["fp32 copy of out"] = 4 * tiling.out_casted_workspace_length
    elif case.tiling.native_16_bit:
        sizes["stage rows"] = 4 * tiling.out_stage_workspace_length
        sizes["stage indices"] = 4 * tiling.out_index_workspace_length
    return kernel_parts(case, sizes)


def _arrival(case: Case, additions: int) -> tuple[bool, str]:
    """Return whether rows of atomic ``additions`` have fixed bits, and why."""
    if additions < ORDERED_ADDITIONS:
        return True, "two cores add to a row atomically, each once at most: two additions commute"
    if case.row.num_weights == 1 and case.row.padding_idx == 0:
        return True, "the only weight row is the padding row, to which nothing is added"
    return False, (
        "a row depends on timing when two cores or more add to it atomically, three times or more "
        "in all"
    )


def _additions_of_core(case: Case, tiling: v2.Tiling) -> int:
    """Return how often a core adds to one row of out at most."""
    if v2.is_small_dim(tiling.tiling_key):
        small = tiling.small_dim
        return ceil_div(max(small.former_copy_row, small.tail_copy_row), small.max_row_in_ub)
    rows = max(tiling.row_split.former_row_num, tiling.row_split.tail_row_num)
    return ceil_div(rows, rows_per_flush(tiling.tiling_key, case.rules))


def _order(case: Case, tiling: v2.Tiling) -> OutputOrder:
    key, fixed = tiling.tiling_key, True
    if v2.is_deterministic(key):
        reason = "every run of equal indices is summed by the core where it starts"
    elif case.tiling.native_16_bit and key == 0:
        reason = "every core stages its first and last index; the slots are summed in core order"
    elif tiling.block_dim == 1:
        reason = "one core does all the work"
    else:
        fixed, reason = _arrival(case, tiling.block_dim * _additions_of_core(case, tiling))
    return OutputOrder(output="grad_weight", fixed=fixed, reason=reason)


def _describe_older(case: Case, tiling: v1.Tiling) -> Description:
    """Return the description of EmbeddingDenseGrad.

    It runs on the Atlas training series, and on A2 and A3 beyond INT32_MAX.
    """
    path, unit, total = "atomic rows", "row", case.row.rows
    if tiling.splits_weights:
        path, unit, total = "counted, weight rows split", "weight row", case.row.num_weights
    pieces: str = ""
    if tiling.dim_pieces > 1:
        pieces = Text(
            ", each row in {dim_pieces} pieces of {dim_piece} columns",
            dim_pieces=tiling.dim_pieces,
            dim_piece=tiling.dim_piece,
        )
    return vector_plan(
        case,
        kernel="EmbeddingDenseGrad",
        path=path,
        path_reason=_older_reason(case, tiling),
        per_core=Text(
            "{batch_rows} rows in the Unified Buffer at a time{pieces}",
            batch_rows=tiling.batch_rows,
            pieces=pieces,
        ),
        tiling=tiling,
        fields=tiling._asdict(),
        ranges=[v1.split_range(tiling, total, core) for core in range(tiling.block_dim)],
        unit=unit,
        memories=lambda: (_older_memory(case, tiling),),
        conditions=lambda: _older_decisions(case, tiling),
        launches=launches_of(
            case,
            (),
            casts=case.row.grad_dtype != FLOAT32,
            index_dtype="int32" if casts_indices(case.row, keeps_int64=True) else "",
        ),
        order=lambda: (_older_order(case, tiling),),
        caveats=(*caveats_of(case), *_older_caveats(case, tiling)),
        evidence=Evidence.MODEL,
    )


def _older_reason(case: Case, tiling: v1.Tiling) -> str:
    if tiling.splits_weights:
        return "scaleGradByFreq: every core counts and adds the rows of its own weights"
    if case.deterministic and case.row.rows > 1:
        return "deterministic computation is on: one core"
    return "every row is added to its weight by itself"


def _older_memory(case: Case, tiling: v1.Tiling) -> Memory:
    index_bytes = older_index_bytes(case.row)
    buffers = {
        "indices": align(index_bytes * tiling.batch_rows, 32),
        "counters": index_bytes * tiling.counters * tiling.counters_fit,
        "gradient rows": 4 * tiling.dim_piece * tiling.batch_rows,
        "accumulator row": 4 * tiling.dim_piece if tiling.splits_weights else 0,
    }
    evidence = Evidence.MODEL if tiling.counters_fit else Evidence.UNKNOWN
    return ub_memory(case, buffers).model_copy(update={"evidence": evidence})


def _older_decisions(case: Case, tiling: v1.Tiling) -> Iterator[Decision]:
    row = case.row
    if case.profile.npu_arch == NPU_ARCH_A2_A3:
        yield decision(case, BEYOND_INT32, rows=row.rows, numWeights=row.num_weights)
    yield decision(case, SCALES, scaleGradByFreq=bool(row.scale_grad_by_freq))


def _older_order(case: Case, tiling: v1.Tiling) -> OutputOrder:
    fixed = True
    if tiling.splits_weights:
        reason = "every weight row belongs to one core, which adds in index order"
    elif tiling.block_dim == 1:
        reason = "one core adds all rows in index order"
    else:  # every row of grad is an addition
        fixed, reason = _arrival(case, tiling.block_dim * tiling.share)
    return OutputOrder(output="grad_weight", fixed=fixed, reason=reason)


def _older_caveats(case: Case, tiling: v1.Tiling) -> Iterator[Caveat]:
    if tiling.dim_pieces > 1:
        yield caveat(
            "dim_split",
            "grad",
            "dim {dim} is too long for the Unified Buffer and is split into {dim_pieces} pieces "
            "(model, not published)",
            dim=case.row.dim,
            dim_pieces=tiling.dim_pieces,
        )
    if not tiling.counters_fit:
        yield caveat(
            "counters_layout_unknown",
            "num_weights",
            "{counters} counters do not fit the Unified Buffer; how the product keeps them is "
            "not published",
            counters=tiling.counters,
        )


EXACT_COUNT = 16777216
"""2^24: fp32 counters stop here (page, "scale")."""


def launches_of(
    case: Case,
    parts: tuple[WorkspacePart, ...],
    *,
    casts: bool = False,
    index_dtype: str = "",
    sort: Callable[[LaunchTensor], Launch] | None = None,
    zeros: bool = False,
    memset: Evidence | None = None,
) -> tuple[Launch, ...]:
    """Return the launches of a call, in launch order.

    Pages ``workspace``, "EmbeddingDenseBackward", and ``releases``, "Switches".

    - ``parts``: workspace of the kernel that sums.
    - ``casts``: whether it sees grad as fp32, and its result is cast back.
    - ``index_dtype``: dtype that indices are cast to; empty when they are not.
    - ``sort``: function that returns the launch that sorts the indices, if any.
    - ``zeros``: whether ZerosLike clears the result.
    - ``memset``: evidence of the MemSet that clears the result, if there is one.
    """
    executor = Executor(case)
    grad = prepared(executor, "grad", "float32" if casts else "")
    indices = prepared(executor, "indices", index_dtype)
    inputs: tuple[LaunchTensor, ...] = (grad, indices)
    out, out_contiguous = case.tensor("out"), case.specs["out"].contiguous
    written = out
    if casts or not out_contiguous:
        written = intermediate("result", out.shape, "float32" if casts else out.dtype)
    if sort is not None:
        executor.launches.append(sort(indices))
        ordered, positions = executor.launches[-1].outputs
        inputs = (grad, ordered.viewed(ordered.shape, indices.dtype), positions)
    if zeros:
        executor.run("ZerosLike", (), written)
    if memset is not None:
        note = "clears the result, in the launch of the kernel itself"
        executor.run("MemSet", (), written, is_node=False, evidence=memset, note=note)
    kernel, block_dim = KERNELS[case.tiling.kernel], case.tiling.block_dim
    executor.run(kernel, inputs, written, *parts, block_dim=block_dim)
    if casts:
        name = "result in the dtype of out"
        result = out if out_contiguous else intermediate(name, out.shape, out.dtype)
        written = executor.run("Cast", (written,), result)
    if not out_contiguous:
        executor.run("ViewCopy", (written,), out, evidence=Evidence.MODEL)
    return tuple(executor.launches)


def prepared(executor: Executor, name: str, cast_to: str) -> LaunchTensor:
    """Return an input as the kernel reads it: contiguous, and cast unless ``cast_to`` is empty."""
    tensor = executor.contiguous(name, executor.case.specs[name])
    cast = Text("{name} as {short_names}", name=name, short_names=SHORT_NAMES.get(cast_to, ""))
    return executor.cast(tensor, cast, cast_to or tensor.dtype)


def _sort(indices: LaunchTensor) -> Launch:
    """Return the launch that sorts the indices.

    On the AI cores int32 indices are sorted as fp32, which gives the same order below
    ``SORTABLE_ROWS``.
    """
    rows = prod(indices.shape)
    on_cores = rows < SORTABLE_ROWS
    values = indices.viewed((rows,), "float32" if on_cores else "int32")
    if on_cores:
        note = "published formula; which branch runs is decided by closed host code"
        evidence, size = Evidence.MODEL, sort_workspace_bytes(rows)
        block_dim = 1 if rows <= ROWS_IN_UB else None
    else:
        note = "sorted on the AI CPU; not published"
        evidence, size, block_dim = Evidence.UNKNOWN, 0, 0
    part = WorkspacePart(
        name="workspace of Sort", bytes=size, kind="kernel", evidence=evidence, note=note
    )
    return Launch(
        kernel="Sort",
        inputs=(values,),
        outputs=(
            intermediate("sorted indices", values.shape, values.dtype),
            intermediate("positions", values.shape, "int32"),
        ),
        block_dim=block_dim,
        note="" if on_cores else "on the AI CPU",
        workspace=(part,),
    )


def caveats_of(case: Case) -> Iterator[Caveat]:
    """Yield the warnings that depend on the call, not on its tiling."""
    row = case.row
    if case.profile.npu_arch == NPU_ARCH_A2_A3:
        for what, name, value in (
            ("rows", "grad", row.rows),
            ("weights", "num_weights", row.num_weights),
        ):
            if value > INT32_MAX:
                yield caveat(
                    f"{what}_above_int32",
                    name,
                    "{name}: {value} exceeds INT32_MAX ({int32_max}): high precision is not "
                    "guaranteed{slow}",
                    name=name,
                    value=value,
                    int32_max=INT32_MAX,
                    slow=" nor high performance in deterministic mode"
                    if case.deterministic
                    else "",
                )
        if row.rows > SORTABLE_ROWS:
            yield caveat(
                "indices_above_sortable",
                "indices",
                "{rows} indices exceed {sortable_rows}, beyond which int32 does not sort as fp32: "
                "no high performance",
                rows=row.rows,
                sortable_rows=SORTABLE_ROWS,
            )
    if row.scale_grad_by_freq and row.rows > EXACT_COUNT and case.tiling.kernel == KERNEL_GRAD_V2:
        yield caveat(
            "counter_stops",
            "scale_grad_by_freq",
            "fp32 counters stop at {exact_count}; an index that occurs more often is scaled by "
            "1/{exact_count}",
            exact_count=EXACT_COUNT,
        )
    yield from padding_caveats(case)


def padding_caveats(case: Case) -> Iterator[Caveat]:
    """Warn of a padding index that no index can have."""
    row = case.row
    if row.padding_idx >= row.num_weights:
        yield caveat(
            "padding_matches_nothing",
            "padding_idx",
            "padding_idx {padding_idx} is beyond num_weights {num_weights} and matches nothing",
            padding_idx=row.padding_idx,
            num_weights=row.num_weights,
        )
