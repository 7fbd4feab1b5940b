"""Studies of EmbeddingDenseBackward: claims, contributions of cores, terms, causes and changes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npu_sim.framework.vocabulary import (
    FORMULA,
    SORTABLE_ROWS,
    Array,
    Case,
    Index,
    Order,
    Result,
    Text,
    ceil_div,
    core_ranges,
    kernel_input,
)
from npu_sim.operators.embedding_dense_backward.declaration import CAST_LIMIT_BYTES, KERNEL_GRAD
from npu_sim.operators.embedding_dense_backward.plan import EXACT_COUNT
from npu_sim.operators.shared.open_rules import any_order
from npu_sim.operators.shared.study import (
    Changes,
    Claim,
    Experiment,
    FoundCall,
    Function,
    InDumps,
    NamedTerms,
    Numbers,
    OpenRule,
    Parts,
    Restore,
    Shown,
    Spread,
    StudyCall,
    Tree,
    Values,
    WrappedCall,
    different,
    fold_in_arrival_order,
    left_fold,
    miscounted_calls,
    plan,
    run,
    shape_hash,
    spread_of_sums,
    surviving_units,
)
from npu_sim.operators.shared.unfused import FP64, Ends, Formulas, folded_in, is_16_bit, short
from npu_sim.tiling import embedding_dense_backward as v2

BATCH_ELEMENTS = 1 << 24
"""fp32 elements of the contributions held at a time: 64 MiB."""
NAMED_ROWS = 6
"""Rows of grad that a description lists by number."""


def parts(call: StudyCall, result: Result, output: str) -> Iterator[Parts]:
    """Yield the chunks of every order-dependent row of the gradient, some rows at a time."""
    from npu_sim.kernels.embedding_dense_backward.grouping import group_rows, mark_chunks
    from npu_sim.kernels.embedding_dense_backward.sums import sum_chunks
    from npu_sim.operators.embedding_dense_backward.compute import checked_indices, cut_of

    row, cut = call.case.row, cut_of(call.case)
    grad = kernel_input(call.tensors["grad"]).reshape(row.rows, row.dim)
    indices = checked_indices(call.tensors["indices"], row.num_weights)
    starts, marked = group_rows(indices, row.num_weights)
    mark_chunks(cut, starts, marked)
    ends = np.flatnonzero(marked < 0) + 1
    rows = np.flatnonzero(result.order_dependent[output].mask)
    from_chunk = np.searchsorted(ends, starts[rows], side="right")
    to_chunk = np.searchsorted(ends, starts[rows + 1], side="right")
    for batch in _batches(to_chunk - from_chunk, BATCH_ELEMENTS // row.dim):
        chunks = np.concatenate(
            [np.arange(a, b) for a, b in zip(from_chunk[batch], to_chunk[batch], strict=True)]
        )
        begins = np.where(chunks > 0, ends[chunks - 1], 0).astype(np.int64)
        values = np.empty((chunks.size, row.dim), np.float32)
        sum_chunks(grad, marked, begins, ends[chunks].astype(np.int64), values)
        places = begins if cut.splits_slots else _rows_at(marked, begins)
        counts = (starts[rows[batch] + 1] - starts[rows[batch]]).astype(np.float32)
        yield Parts(
            output=output,
            values=values,
            starts=np.concatenate(([0], np.cumsum(to_chunk[batch] - from_chunk[batch]))).astype(
                np.int64
            ),
            cores=(np.searchsorted(cut.core_starts(), places, side="right") - 1).astype(np.int64),
            keys=rows[batch].astype(np.int64),
            factors=np.float32(1) / counts if row.scale_grad_by_freq else np.ones_like(counts),
            terms=(ends[chunks] - begins).astype(np.int64),
            columns_together=row.dim,
            locate=partial(_locate, rows[batch]),
            describe=partial(_describe, marked, begins, ends[chunks]),
        )


def open_rules(call: StudyCall, result: Result) -> Iterator[OpenRule]:
    """Yield the bound of EmbeddingDenseGrad, whose split over cores is a model."""
    case = call.case
    if case.empty or case.tiling.kernel != KERNEL_GRAD:
        return
    rows = rows_of_weights(call)
    # Two rows give one sum in either order; the reciprocal and its product are two operations.
    operations = np.where(rows > 2, rows + 2, 0)[:, None]
    reason: str = (
        "how EmbeddingDenseGrad spreads rows over cores is a model: any order of the rows is "
        "allowed, within the bound of fp32 sums"
    )
    output, saturates = result.outputs["grad_weight"], case.profile.saturates
    yield any_order("grad_weight", output, sums_in_fp64(call), operations, reason, saturates)


def rows_of_weights(call: StudyCall) -> Array:
    """Return how many rows are added to every row of the gradient."""
    indices, weights = _row_indices(call), call.case.row.num_weights
    return np.bincount(indices[(indices >= 0) & (indices < weights)], minlength=weights)


def sums_in_fp64(call: StudyCall) -> tuple[Array, Array]:
    """Return the exact sums of an output, and those of the magnitudes."""
    tensors = {**call.tensors, "grad": np.abs(call.tensors["grad"].astype(np.float64))}
    formula, precision = call.operator.hook(FORMULA), np.dtype(np.float64)
    return (
        formula(call.arguments, call.tensors, precision)["grad_weight"],
        formula(call.arguments, tensors, precision)["grad_weight"],
    )


def unfused(call: StudyCall, output: str) -> Formulas:
    """Yield the gradient of PyTorch, which adds row after row to the result."""
    grad = call.tensors["grad"]
    if is_16_bit(grad):
        text = Text(
            "every sum rounded to {dtype}, row after row, as PyTorch does", dtype=short(grad.dtype)
        )
    else:
        text = Text("row after row added to the result, as PyTorch does")
    yield text, partial(_row_after_row, call)


def _row_after_row(call: StudyCall) -> Ends:
    grad, indices = call.tensors["grad"], _row_indices(call)
    rows, (weights, padding) = (
        grad.reshape(indices.size, -1),
        (call.case.row.num_weights, int(call.arguments.padding_idx)),
    )
    (taken,) = np.nonzero((indices >= 0) & (indices < weights) & (indices != padding))
    order = taken[np.argsort(indices[taken], kind="stable")]
    sorted_indices = indices[order]
    starts = np.searchsorted(sorted_indices, sorted_indices)
    ranks = np.arange(order.size) - starts
    values = rows[order].astype(FP64)
    if call.arguments.scale_grad_by_freq:
        counts = np.bincount(sorted_indices, minlength=weights)
        scales = (np.float32(1) / counts[sorted_indices].astype(np.float32)).astype(FP64)
        values = (values * scales[:, None]).astype(np.float32).astype(FP64)
    terms = (
        (sorted_indices[chosen], values[chosen])
        for rank in range(int(ranks.max(initial=-1)) + 1)
        for chosen in (np.flatnonzero(ranks == rank),)
    )
    return folded_in(grad.dtype, (weights, rows.shape[1]), terms)


def miscounted(
    call: StudyCall, output: str, index: Index, difference: Array
) -> Iterator[tuple[str, StudyCall]]:
    """Yield calls with a row of grad added twice, or missing; see the hook of the declaration."""
    grad, indices = call.tensors["grad"], _row_indices(call)
    grad = grad.reshape(indices.size, -1)
    rows = np.flatnonzero(indices == index[0])
    terms = grad[rows].astype(np.float64)
    if call.arguments.scale_grad_by_freq:
        terms /= rows.size
    sampled = {"grad": grad, "indices": call.tensors["indices"].reshape(-1)}
    yield from miscounted_calls(call, sampled, rows, terms, difference[index[0]])


def _batches(sizes: NDArray[np.int64], most: int) -> Iterator[slice]:
    """Split a list of sizes into ranges with a sum of at most ``most``, at least one size each."""
    begin, total = 0, 0
    for position, size in enumerate(sizes.tolist()):
        if total and total + size > most:
            yield slice(begin, position)
            begin, total = position, 0
        total += size
    if begin < sizes.size:
        yield slice(begin, sizes.size)


def _rows_at(marked: NDArray[np.int64], slots: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row of grad at each slot; the last slot of a chunk holds its complement."""
    values: NDArray[np.int64] = np.maximum(marked[slots], ~marked[slots])
    return values


def _locate(rows: NDArray[np.int64], part: int, column: int) -> tuple[int, int]:
    return int(rows[part]), column


def _describe(
    marked: NDArray[np.int64], begins: NDArray[np.int64], stops: NDArray[np.int64], place: int
) -> str:
    begin, stop = int(begins[place]), int(stops[place])
    rows = _rows_at(marked, np.arange(begin, min(stop, begin + NAMED_ROWS))).tolist()
    if stop - begin == 1:
        return Text("grad row {rows}", rows=rows[0])
    return Text(
        "grad rows {rows}{more}",
        rows=", ".join(map(str, rows)),
        more=Text(" and {others} more", others=stop - begin - NAMED_ROWS)
        if stop - begin > NAMED_ROWS
        else "",
    )


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the summation trees of the output rows: one claim for all rows with the same tree."""
    return claims_of_rows(call, _tree_maker)


def _tree_maker(call: StudyCall, in_order: Array) -> "TreeOfRow":
    return lambda run: tree_of_row(call.case, run, call.order, _core_ends(call.case, in_order))


def claims_of_rows(
    call: StudyCall, tree_maker: Callable[[StudyCall, Array], "TreeOfRow"]
) -> Iterator[Claim]:
    """Like `claims`, with the trees of ``tree_maker(call, sorted indices)``.

    It returns the function from a run to its tree, which returns None for a run without a claim.
    """
    from npu_sim.kernels.embedding_dense_backward.grouping import group_rows
    from npu_sim.operators.embedding_dense_backward.compute import checked_indices

    case = call.case
    if case.empty:
        return
    num_weights = case.row.num_weights
    indices = checked_indices(call.tensors["indices"], num_weights)
    starts, positions = group_rows(indices, num_weights)
    tree_of = tree_maker(call, indices[positions])
    rows_of_tree: dict[str, list[int]] = {}
    tree_of_key: dict[str, Tree] = {}
    for index in np.flatnonzero(np.diff(starts)).tolist():
        if index == case.row.padding_idx:
            continue
        grad_rows = positions[starts[index] : starts[index + 1]].tolist()
        tree = tree_of(IndexRun(index, int(starts[index]), grad_rows))
        if tree is None:
            continue
        key = shape_hash(tree)
        rows_of_tree.setdefault(key, []).append(index)
        tree_of_key.setdefault(key, tree)
    for key, rows in rows_of_tree.items():
        reached = positions[starts[rows[0]] : starts[rows[0] + 1]]
        yield Claim(
            output="grad_weight",
            element=(rows[0], 0),
            elements=len(rows) * case.row.dim,
            terms=tuple(f"grad[{row}, 0]" for row in reached.tolist()),
            tree=tree_of_key[key],
            outside=partial(_outside, call, case, rows[0], reached),
        )


def _core_ends(case: Case, in_order: Array) -> list[tuple[int, int]]:
    """Return the first and last index of every core's slice of the sorted list.

    Empty unless the native 16-bit kernel runs.
    """
    if not case.tiling.native_16_bit:
        return []
    tiling = case.tiling.tiling
    ranges = core_ranges(v2.row_range, tiling)
    return [(int(in_order[start]), int(in_order[stop - 1])) for start, stop in ranges]


def _outside(call: StudyCall, case: Case, index: int, terms: Array, codes: Array) -> Array:
    """Run the kernel on probes, one per column; return the number of units that survive."""
    row = case.row
    times = terms.size if row.scale_grad_by_freq else 1
    return surviving_units(
        call,
        ("grad", (row.rows, row.dim), terms),
        range(row.dim),
        lambda outputs: outputs["grad_weight"][index].astype(np.float64) * times,
        codes,
    )


def terms(call: StudyCall, output: str, index: Index) -> NamedTerms:
    """Return the terms of an output element in float64, by name."""
    grad, rows = call.tensors["grad"], np.flatnonzero(_row_indices(call) == index[0])
    column = grad.reshape(-1, grad.shape[-1])[rows, index[1]].astype(np.float64)
    scale = max(rows.size, 1) if call.arguments.scale_grad_by_freq else 1
    return [
        (f"grad[{row}, {index[1]}]", value)
        for row, value in zip(rows.tolist(), (column / scale).tolist(), strict=True)
    ]


def causes(call: StudyCall, dtype: str, golden: Array) -> list[tuple[str, float, str]]:
    """Return the errors of scaling, in ulp: reciprocal instead of division, and fp32 counters."""
    from npu_sim.kernels.shared.elementwise import ulp_distance

    if not call.arguments.scale_grad_by_freq:
        return []
    counts = np.bincount(_row_indices(call), minlength=golden.shape[0])
    present = counts > 0
    sums = (golden[present] * counts[present, None]).astype(np.float32)
    single = counts[present].astype(np.float32)[:, None]
    product, quotient = sums * (np.float32(1) / single), sums / single
    reciprocal = int(ulp_distance(product, quotient, "float32").max(initial=0))
    lost = int(np.max(counts - np.minimum(counts, EXACT_COUNT), initial=0))
    return [
        (
            "reciprocal instead of division",
            float(reciprocal),
            "sum * fp32(1/count) against sum / count, in fp32 ulp",
        ),
        (
            "fp32 counters",
            float("inf") if lost else 0.0,
            Text("{lost} occurrences beyond 2^24 of the most frequent index", lost=lost),
        ),
    ]


def _grown(call: StudyCall, extra: int, fill: str) -> StudyCall | None:
    """Append rows with an index that does not occur in the call."""
    grad, indices = call.tensors["grad"], call.tensors["indices"]
    unused = np.setdiff1d(np.arange(call.arguments.num_weights), _row_indices(call))
    if unused.size == 0:
        return None
    more = np.take(grad, np.arange(extra) % grad.shape[0], axis=0)
    added = np.full((extra, *indices.shape[1:]), unused[0], indices.dtype)
    return call.with_tensors(
        grad=np.concatenate([grad, more if fill == "copy" else np.zeros_like(more)]),
        indices=np.concatenate([indices, added]),
    )


def _found(call: StudyCall, output: str, values: Array) -> Array:
    """Return the output rows of indices that occur in the call; other rows are zero."""
    present, rows = np.unique(_row_indices(call)), np.zeros_like(values)
    rows[present] = values[present]
    return rows


def as_fp32(call: StudyCall) -> Iterator[tuple[str, StudyCall, Restore]]:
    """Yield the call with a 16-bit gradient as fp32."""
    grad = call.tensors["grad"]
    if grad.dtype != np.float32:
        yield (
            "fp32 gradients instead of 16-bit ones",
            call.with_tensors(grad=grad.astype(np.float32)),
            lambda output, values: values.astype(grad.dtype),
        )


def _others(call: StudyCall) -> Iterator[tuple[str, StudyCall, Restore]]:
    """Yield the call with a 16-bit gradient as fp32, and on the native 16-bit path."""
    yield from as_fp32(call)
    grad, num_weights = call.tensors["grad"], call.arguments.num_weights
    if grad.dtype == np.float32 or not call.case.rules.kernel_takes_16_bit:
        return
    larger = call.with_attributes(
        num_weights=max(ceil_div(CAST_LIMIT_BYTES, 2 * grad.shape[-1]), num_weights)
    )
    yield "native 16-bit path (more weights)", larger, lambda output, values: values[:num_weights]


CHANGES = Changes(grown=_grown, found=_found, others=_others)


def _row_indices(call: StudyCall) -> NDArray[np.int64]:
    """Return the index of every row, truncated to an integer."""
    indices: NDArray[np.int64] = np.trunc(call.tensors["indices"]).astype(np.int64)
    return indices.reshape(-1)


STAGE_CHUNK_SLOTS = 11
"""Staged sums of the native 16-bit kernel that are added to one partial sum."""


class IndexRun(NamedTuple):
    """Rows of grad with one index, ascending; ``first`` is their place in the sorted list."""

    weight_row: int
    first: int
    rows: Sequence[int]


TreeOfRow = Callable[[IndexRun], Tree | None]


def chunks_of(items: Sequence[Tree | None], size: int) -> list[Tree | None]:
    """Return the sums of every ``size`` consecutive items."""
    return [left_fold(items[begin : begin + size]) for begin in range(0, len(items), size)]


def _by_core(
    run: IndexRun, core_of: Callable[[int], int], by_slot: bool
) -> list[tuple[int, list[int]]]:
    """Return the rows of a run by core, as (core, terms); a term is the place in the run."""
    places = (run.first + term if by_slot else row for term, row in enumerate(run.rows))
    cores = [core_of(place) for place in places]
    groups = groupby(range(len(cores)), key=cores.__getitem__)
    return [(core, list(terms)) for core, terms in groups]


def tree_of_row(
    case: Case, run: IndexRun, order: Order, core_ends: Sequence[tuple[int, int]]
) -> Tree | None:
    """Return the summation tree of a run; terms are numbered in row order.

    The tree follows the specification (page, "Kernels and accumulation order") and the row split of
    the plan. It does not use the chunk marks of the kernel, so that probes of the kernel are an
    independent check.

    - ``case``: the call.
    - ``run``: the rows of one index, at least one.
    - ``order``: order of arrival of atomic additions.
    - ``core_ends``: for native 16-bit: the first and the last index of every core's slice.
    """
    outcome = case.tiling
    if outcome.kernel == KERNEL_GRAD:
        if outcome.older.splits_weights:
            return left_fold(range(len(run.rows)))
        grouped = _by_core(run, lambda row: row // outcome.older.share, by_slot=False)
        atomic_rows = [(core, term) for core, terms in grouped for term in terms]
        return fold_in_arrival_order(atomic_rows, order, run.weight_row)
    tiling = outcome.tiling
    ranges = core_ranges(v2.row_range, tiling)
    starts = np.array([start for start, _ in ranges])

    def core_of(place: int) -> int:
        return int(np.searchsorted(starts, place, side="right")) - 1

    if v2.is_small_dim(tiling.tiling_key):
        return _small_dim(run, order, core_of, ranges, tiling.small_dim.max_row_in_ub)
    grouped = _by_core(run, core_of, by_slot=True)
    if v2.is_deterministic(tiling.tiling_key):
        return _deterministic(grouped, case.rules.rows_per_deterministic_flush)
    if outcome.native_16_bit:
        return _staged(run, grouped, core_ends, case.rules.rows_per_flush)
    chunks = [
        (core, chunk)
        for core, terms in grouped
        for chunk in chunks_of(terms, case.rules.rows_per_flush)
    ]
    return fold_in_arrival_order(chunks, order, run.weight_row)


def _small_dim(
    run: IndexRun,
    order: Order,
    core_of: Callable[[int], int],
    ranges: Sequence[tuple[int, int]],
    most_rows: int,
) -> Tree | None:
    contributions: list[tuple[int, Tree | None]] = []
    for core, terms in _by_core(run, core_of, by_slot=False):
        start, stop = ranges[core]
        copied = min(most_rows, stop - start)
        batches = groupby(terms, key=lambda term: (run.rows[term] - start) // copied)
        contributions += [(core, left_fold(list(batch))) for _, batch in batches]
    return fold_in_arrival_order(contributions, order, run.weight_row)


def _deterministic(grouped: Sequence[tuple[int, list[int]]], most: int) -> Tree | None:
    """Return the tree: the first core adds its own rows backwards, then all others forwards."""
    backwards = grouped[0][1][::-1]
    forwards = [term for _, terms in grouped[1:] for term in terms]
    return left_fold([*chunks_of(backwards, most), *chunks_of(forwards, most)])


def _staged(
    run: IndexRun,
    grouped: Sequence[tuple[int, list[int]]],
    core_ends: Sequence[tuple[int, int]],
    most: int,
) -> Tree | None:
    sums = {core: left_fold(chunks_of(terms, most)) for core, terms in grouped}
    core = grouped[0][0]
    if len(grouped) == 1 and run.weight_row not in core_ends[core]:
        return sums[core]
    slots: list[Tree | None] = []
    for core, (first, last) in enumerate(core_ends):
        if first == last == run.weight_row:
            slots += [sums[core], None]
        elif run.weight_row in (first, last):
            slots.append(sums[core])
    return left_fold(chunks_of(slots, STAGE_CHUNK_SLOTS))


def _in_dump(wrapped: WrappedCall) -> FoundCall | None:
    """Return the gradient of a lookup, or a direct call; sparse gradients are another kernel."""
    if "num_weights" in wrapped.arguments:
        names = ("grad", "indices", "num_weights")
        call = wrapped.pick(*names, padding_idx=-1, scale_grad_by_freq=False)
        return call, {"grad_weight": wrapped.output(0)}
    if wrapped.arguments.get("sparse"):
        return None
    rows, padding = wrapped.tensor("weight").shape[0], wrapped.integer("padding_idx")
    if padding is None:
        padding = -1
    elif wrapped.name.startswith("Functional.") and rows:
        padding %= rows  # negative ones count from the end
    arguments = wrapped.pick("indices", scale_grad_by_freq=False)
    arguments |= {"grad": wrapped.output_gradient(), "num_weights": rows, "padding_idx": padding}
    return arguments, {"grad_weight": wrapped.gradients.get("weight")}


def _spread(arguments: Values) -> Mapping[str, Spread]:
    indices, grad = arguments["indices"], arguments["grad"]
    # sums that are divided by their number of terms do not show how many there are
    term = 0.0 if arguments["scale_grad_by_freq"] else grad.root_mean_square
    return {"grad_weight": spread_of_sums(indices.size, grad.largest, term)}


IN_DUMPS = InDumps(
    functions=(
        Function(
            ("Functional.embedding",),
            (
                "indices",
                "weight",
                "padding_idx",
                "max_norm",
                "norm_type",
                "scale_grad_by_freq",
                "sparse",
            ),
            ("weight",),
        ),
        Function(
            ("embedding",),
            ("weight", "indices", "padding_idx", "scale_grad_by_freq", "sparse"),
            ("weight",),
        ),
        Function(("Module.Embedding",), ("indices",)),
        Function(
            ("embedding_dense_backward",),
            ("grad", "indices", "num_weights", "padding_idx", "scale_grad_by_freq"),
        ),
    ),
    call=_in_dump,
    index_ranges=lambda arguments: {"indices": (arguments["num_weights"], ())},
    spread=_spread,
)


OPERATOR = "embedding_dense_backward"


def _counter() -> Shown:
    flushes = {"1 row": 1, "10 rows (deterministic)": 10, "11 rows (default)": 11}
    counters = {}
    for name, rows in flushes.items():
        counter = np.float32(EXACT_COUNT)
        for _ in range(100):
            counter = np.float32(counter + np.float32(rows))
        counters[name] = {"true_count": EXACT_COUNT + 100 * rows, "fp32_counter": int(counter)}
    rows = EXACT_COUNT + 65536
    ones, indices = np.ones((rows, 1), np.float32), np.zeros(rows, np.int32)
    call: dict[str, Any] = {"grad": ones, "indices": indices, "num_weights": 1}
    scaled = run(OPERATOR, scale_grad_by_freq=True, **call).outputs["grad_weight"]
    mean = float(scaled[0, 0])
    return {"counters": counters, "rows": rows, "mean_of_ones": mean}, [
        *(
            Text(
                "from {exact_integers} on, 100 flushes of {name}: the count is {true_count}, the "
                "fp32 counter {fp32_counter}",
                exact_integers=EXACT_COUNT,
                name=name,
                **counter,
            )
            for name, counter in counters.items()
        ),
        Text(
            "the mean of {rows} ones comes out as {mean_of_ones}",
            rows=rows,
            mean_of_ones=f"{mean:.9g}",
        ),
    ]


def _sort_trick() -> Shown:
    values = np.array([SORTABLE_ROWS - 1, 5, SORTABLE_ROWS + 1, 1000, SORTABLE_ROWS], np.int64)
    as_floats = values.astype(np.int32).view(np.float32)
    both = zip(np.sort(values).tolist(), as_floats[np.argsort(values)], strict=True)
    sorts = [(a, b, bool(x < y)) for (a, x), (b, y) in pairwise(both)]
    bits_of_inf = int(np.float32(np.inf).view(np.int32))
    numbers: Numbers = {
        "first_unsortable": SORTABLE_ROWS + 1,
        "comparisons": {f"{a} < {b}": holds for a, b, holds in sorts},
        "bits_of_inf": bits_of_inf,
    }
    return numbers, [
        *(
            Text(
                "as fp32 bits, {name}: {bits}", name=f"{a:,} < {b:,}", bits="yes" if holds else "no"
            )
            for a, b, holds in sorts
        ),
        Text(
            "int32 indices are sorted as if their bits were fp32; {bits_of_inf} is +inf, and "
            "above it every pattern is nan",
            bits_of_inf=bits_of_inf,
        ),
    ]


def _path_switch() -> Shown:
    from npu_sim.kernels.shared.elementwise import ulp_distance

    rows, dim = 600, 520
    rng = np.random.default_rng(0)
    indices = np.arange(rows, dtype=np.int32) % 20
    grad = rng.standard_normal((rows, dim))
    # Large rows that cancel leave the small ones, whose low bits the order decides.
    grad[:200] *= 8192
    grad[200:400] = -grad[:200]
    grad = grad.astype(np.float16)
    first_native = -(-CAST_LIMIT_BYTES // (2 * dim)) - rows
    small, large = weights = [first_native - 1, first_native]
    results = [run(OPERATOR, grad=grad, indices=indices, num_weights=count) for count in weights]
    a, b = (result.outputs["grad_weight"][:20] for result in results)
    paths = [result.plan.path for result in results]
    numbers: Numbers = {
        "weights": weights,
        "paths": paths,
        "elements": a.size,
        "different": different(a, b),
        "max_ulp": int(ulp_distance(a, b, "float16").max()),
    }
    return numbers, [
        Text(
            "num_weights {small}: {small_output}; num_weights {large}: {large_output}",
            small=small,
            small_output=paths[0],
            large=large,
            large_output=paths[1],
        ),
        Text(
            "one more row of weights takes gradient and output to 100 MiB: {different} of "
            "{elements} elements of the same rows change, by up to {max_ulp} ulp",
            **numbers,
        ),
    ]


def _padding() -> Shown:
    grad, indices = np.ones((6, 2), np.float32), np.array([0, 1, 2, 1, 0, 3])
    words = {
        -1: "negative: none",
        1: "row 1 gets no gradient",
        7: "beyond num_weights: matches nothing",
    }
    sums = {}
    for padding in words:
        result = run(OPERATOR, grad=grad, indices=indices, num_weights=4, padding_idx=padding)
        sums[padding] = result.outputs["grad_weight"][:, 0].tolist()
    return {"sums": sums}, [
        Text(
            "padding_idx {padding} ({words}): rows {sums}",
            padding=padding,
            words=words[padding],
            sums=rows,
        )
        for padding, rows in sums.items()
    ]


def _saturation() -> Shown:
    grad, indices = np.array([[60000.0, -60000.0, np.nan]] * 2, np.float16), np.array([0, 0])
    results = {}
    for product in ("atlas_a2", "atlas_train"):
        result = run(OPERATOR, grad=grad, indices=indices, num_weights=1, product=product)
        results[product] = [float(value) for value in result.outputs["grad_weight"][0]]
    return {"results": results}, [
        Text(
            "60000 + 60000, -60000 - 60000, nan + nan in fp16 on {product}: {values}",
            product=product,
            values=values,
        )
        for product, values in results.items()
    ]


def _reciprocal() -> Shown:
    from npu_sim.kernels.shared.elementwise import ulp_distance

    counts = np.arange(1, 200)
    indices = np.repeat(np.arange(counts.size), counts).astype(np.int32)
    grad = np.random.default_rng(0).standard_normal((indices.size, 8)).astype(np.float32)
    call: dict[str, Any] = {"grad": grad, "indices": indices, "num_weights": counts.size}
    call["deterministic"] = True
    sums = run(OPERATOR, **call).outputs["grad_weight"]
    scaled = run(OPERATOR, scale_grad_by_freq=True, **call).outputs["grad_weight"]
    divided = sums / counts[:, None].astype(np.float32)
    numbers: Numbers = {
        "elements": scaled.size,
        "different": different(scaled, divided),
        "max_ulp": int(ulp_distance(scaled, divided, "float32").max()),
    }
    return numbers, [
        Text(
            "{different} of {elements} elements differ from sum / count, by up to {max_ulp} ulp: "
            "the product multiplies by the rounded reciprocal",
            **numbers,
        )
    ]


def _kernels_differ() -> Shown:
    rng = np.random.default_rng(0)
    grad = rng.standard_normal((4000, 64)).astype(np.float32)
    indices = rng.integers(0, 50, 4000, dtype=np.int32)
    call: dict[str, Any] = {"grad": grad, "indices": indices, "num_weights": 50}
    default = run(OPERATOR, **call).outputs["grad_weight"]
    fixed = run(OPERATOR, deterministic=True, **call).outputs["grad_weight"]
    fewer = run(OPERATOR, soc="Ascend910B4", **call).outputs["grad_weight"]
    numbers: Numbers = {
        "elements": default.size,
        "deterministic_differs": different(default, fixed),
        "forty_cores_differ": different(default, fewer),
    }
    return numbers, [
        Text(
            "default against deterministic: {deterministic_differs} of {elements} elements "
            "differ: other chunks",
            **numbers,
        ),
        Text(
            "48 cores against 40 (Ascend910B4): {forty_cores_differ} of {elements} elements "
            "differ: other sums",
            **numbers,
        ),
    ]


LATER_SOC = "Ascend950DT_9591"
CORES, CORE_ROWS, COLUMNS = 72, 32, 16
SHARED_PAIRS = (63, 66)
"""The cores 63 and 64, or 66 and 67, have an index in common."""


def _merge_test() -> Shown:
    sums = {}
    for pair in SHARED_PAIRS:
        indices = np.repeat(np.arange(CORES, dtype=np.int32), CORE_ROWS)
        indices[(pair + 1) * CORE_ROWS] = pair
        ones = np.ones((indices.size, COLUMNS), np.float32)
        result = run(OPERATOR, soc=LATER_SOC, grad=ones, indices=indices, num_weights=CORES)
        sums[pair] = float(result.outputs["grad_weight"][pair, 0])
    return {"soc": LATER_SOC, "rows_of_the_index": CORE_ROWS + 1, "sums": sums}, [
        *(
            Text(
                "only the cores {core} and {next_core} share an index, which has {rows} rows of "
                "ones: its sum is {found}",
                core=pair,
                next_core=pair + 1,
                rows=CORE_ROWS + 1,
                found=f"{found:g}",
            )
            for pair, found in sums.items()
        ),
        "whether neighbouring cores share an index is tested for cores 0 to 64 only, and without "
        "one the sums of the cores are not added; read in the public sources, not run on a device",
    ]


def _no_weights() -> Shown:
    call: dict[str, Any] = {"grad": "64x16:fp32", "indices": "64:int32", "num_weights": 0}
    codes = {}
    for release in ("9.1", "9.2"):
        planned = plan(OPERATOR, soc=LATER_SOC, release=release, **call)
        codes[release] = [caveat.code for caveat in planned.caveats]
    return {"soc": LATER_SOC, "caveats": codes}, [
        *(
            Text(
                "num_weights 0 at release {release}: {codes}",
                release=release,
                codes=", ".join(found),
            )
            for release, found in codes.items()
        ),
        "at the earlier one the planner divides by num_weights, which can end the process; read in "
        "the public sources, not run on a device",
    ]


CAVEATS: tuple[Experiment, ...] = (
    Experiment(
        "no_weights",
        "On Ascend 950 the planner of EmbeddingDenseBackward divides by num_weights",
        "public sources of summer 2026, EmbeddingDenseGradV2, num_weights 0",
        _no_weights,
        ("host_divides_by_zero",),
    ),
    Experiment(
        "merge_test",
        "On Ascend 950 with 72 cores EmbeddingDenseBackward may leave out the sums of other cores",
        "public sources of summer 2026, EmbeddingDenseGradV2, test before the merge",
        _merge_test,
        ("merge_test_sees_64_pairs",),
    ),
    Experiment(
        "counters",
        "fp32 counters are not exact beyond 2^24",
        "EmbeddingDenseBackward, scaleGradByFreq",
        _counter,
        ("counter_stops",),
    ),
    Experiment(
        "sort_trick",
        "indices above 2,139,095,040 do not sort as fp32",
        "EmbeddingDenseBackward, INT32_INF",
        _sort_trick,
        ("indices_above_sortable",),
    ),
    Experiment(
        "path_switch",
        "16-bit gradients change bits at 100 MiB",
        "EmbeddingDenseBackward, cast or native",
        _path_switch,
    ),
    Experiment(
        "padding",
        "what paddingIdx matches",
        "EmbeddingDenseBackward, paddingIdx",
        _padding,
        ("padding_matches_nothing",),
    ),
    Experiment(
        "saturation",
        "saturation instead of inf and nan",
        "Atlas training and inference series",
        _saturation,
    ),
    Experiment(
        "reciprocal",
        "scaling multiplies by a reciprocal",
        "EmbeddingDenseBackward, scaleGradByFreq",
        _reciprocal,
    ),
    Experiment(
        "kernels_differ",
        "mode and core count change last bits",
        "determinism switch; SoCs",
        _kernels_differ,
    ),
)
