"""Studies of CrossEntropyLoss: sums of rows and over rows, what a batch changes, and dumps.

No result depends on the order of cores.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from npu_sim.framework.vocabulary import Array, Arrays, Case, Result, Text, core_ranges
from npu_sim.kernels import cross_entropy_loss as kernels
from npu_sim.kernels.shared.elementwise import narrow_array, widen_array
from npu_sim.operators.cross_entropy_loss.compute import (
    NO_WEIGHT,
    Setting,
    SettingOf,
    formula,
    loss_formula,
    parts_of,
    setting_of,
    softmax_parts,
    sums_of,
)
from npu_sim.operators.shared.labelled_rows.compute import class_weights
from npu_sim.operators.shared.labelled_rows.study import CROSS_ENTROPY, DEFAULTS, label_ranges
from npu_sim.operators.shared.open_rules import between, moved
from npu_sim.operators.shared.study import (
    Changes,
    Claim,
    Experiment,
    FoundCall,
    InDumps,
    Numbers,
    OpenRule,
    RowCount,
    RowCounts,
    Shown,
    StudyCall,
    Tree,
    Values,
    WrappedCall,
    different,
    run,
    single_terms,
    study_call,
    trees,
)
from npu_sim.operators.shared.unfused import FP64, Ends, Formulas, ends_of, is_16_bit, short
from npu_sim.tiling import cross_entropy_loss as tiler
from npu_sim.tiling.cross_entropy_loss_grad import MEAN, NONE, row_range

PROBED_ROWS = 8
"""Rows that compare the kernel with the declared tree."""

terms = single_terms(loss="loss", log_prob="x - ln(sum(exp(x)))")


class Computed(NamedTuple):
    """A call with its logits in fp32, and what the kernel makes of its rows."""

    call: StudyCall
    setting: Setting
    x: Array
    log_prob: Array
    """Log-probabilities before they are rounded to the dtype."""
    parts: Array
    """Parts of the loss of every row, as of `npu_sim.kernels.cross_entropy_loss.Rows`."""


def computed(call: StudyCall, choose: SettingOf, case: Case | None = None) -> Computed:
    """Compute the rows of a call as in the case, by default its own."""
    case = case or call.case
    setting = choose(case, np.asarray(call.tensors["target"], np.int64))
    x = widen_array(call.tensors["input"])
    log_prob = np.empty_like(x)
    parts = parts_of(case, setting, x, call.tensors.get("weight", NO_WEIGHT), log_prob)
    return Computed(call, setting, x, log_prob, parts)


def tree_of(values: trees.Values) -> Tree | None:
    """Return the tree of neighbours over values and zeros behind them."""
    return trees.ntree(trees.padded(values, 1 << (len(values) - 1).bit_length()))


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the trees of the sum of exp over a row, and of the losses over the rows."""
    case, tiling = call.case, call.case.tiling
    chunks = trees.cut(range(case.row.C), tiling.chunk_columns)
    pieces = [tree_of(part) for chunk in chunks for part in trees.cut(chunk, tiler.PIECE_COLUMNS)]
    over_rows = None  # rows may be lost or overwritten
    if tiling.front_rows <= tiler.HALF_PIECE:
        cores = core_ranges(row_range, tiling)
        over_rows = trees.tree64([tree_of(range(*rows)) for rows in cores])
    yield from claims_of(call, setting_of, trees.left_fold(pieces), over_rows)


def claims_of(
    call: StudyCall, choose: SettingOf, row: Tree | None, over_rows: Tree | None
) -> Iterator[Claim]:
    """Yield the claims of a row, and with a reduction of the rows where their tree is known.

    exp is positive and losses are: nothing cancels, and probes would add nothing.
    """
    case = call.case
    yield Claim(
        output="log_prob",
        element=(0, 0),
        elements=case.row.N * case.row.C,
        terms=tuple(Text("exp of column {column}", column=at) for at in range(case.row.C)),
        tree=row,
        evaluates=lambda: _agrees_in_row(computed(call, choose), row),
    )
    if case.row.reduction != NONE and over_rows is not None:
        yield Claim(
            output="loss",
            element=(0,) * len(case.specs["loss"].shape),
            elements=1,
            terms=tuple(Text("loss of row {row}", row=at) for at in range(case.row.N)),
            tree=over_rows,
            evaluates=lambda: _agrees_over_rows(computed(call, choose), over_rows),
        )


def _agrees_in_row(found: Computed, tree: Tree | None) -> bool:
    parts = found.parts[:, :PROBED_ROWS]
    shifted = found.x[:PROBED_ROWS].T - parts[kernels.MAXIMUM]
    exps = np.exp(shifted.astype(FP64)).astype(np.float32)
    exps[exps < found.setting.form.least_exp] = 0
    total = trees.evaluate(tree, np.ascontiguousarray(exps))
    logarithm = np.log(total.astype(FP64)).astype(np.float32)
    return np.array_equal(parts[kernels.LOGARITHM], logarithm)


def _agrees_over_rows(found: Computed, tree: Tree | None) -> bool:
    sums = sums_of(found.call.case, found.setting, found.parts)
    return bool(trees.evaluate(tree, found.parts[kernels.LOSS]) == sums[kernels.LOSS])


# --- What a batch changes ---


def in_batch(call: StudyCall, rows: int) -> Arrays:
    """Return what belongs to the rows of the call as in a batch of so many rows."""
    case = call.case.changed(N=rows)
    found, dtype = computed(call, setting_of, case), case.specs["input"].dtype
    outputs = {"log_prob": narrow_array(found.log_prob, dtype)}
    if case.row.reduction == NONE:
        loss = found.setting.loss(case, sums_of(case, found.setting, found.parts))
        outputs["loss"] = narrow_array(loss, dtype)
    return outputs


def _row_counts(call: StudyCall) -> RowCounts:
    """Return the numbers of rows with chunks of another width, up to the documented number."""
    case, counts = call.case, []
    most = max(case.rules.rows_at_most, case.row.N)
    for rows in range(1, most + 1, case.device.vector_cores):
        columns = tiler.most_columns(case.row._replace(N=rows), case.device)
        text = Text("chunks of {columns} columns", columns=columns)
        if columns >= case.row.C:
            columns, text = 0, Text("one chunk")
        counts.append(RowCount(rows, text, partial(in_batch, call, rows), columns))
    advice = Text(
        "For the same bits in any number of rows, keep the rows of all calls within one line of "
        "the table. Whether log_softmax and nll_loss depend on it is not known here."
    )
    return RowCounts(case.row.N, counts, most, advice)


CHANGES = Changes(row_counts=_row_counts)


# --- What is possible where exp and ln are a model ---

LN_UNITS = 2
"""Units in the last place by which ln of the device and of the simulator may differ."""
SUM_ERROR = np.float32(2.0**-22)
"""Relative error of a sum of exp whose last bits differ, and so the error of its logarithm."""
LOGARITHM = (
    "exp and ln in fp32 are taken as correctly rounded: a device may differ by one unit in the "
    "last place of each, and with them the logarithm of a row's sum"
)


def open_rules(call: StudyCall, result: Result) -> Iterator[OpenRule]:
    """Yield the bounds of log_prob and of the loss."""
    yield from rules_of(call, result, setting_of)


def rules_of(call: StudyCall, result: Result, choose: SettingOf) -> Iterator[OpenRule]:
    """Yield the bounds of log_prob and of the loss, from those of the logarithm of every row."""
    if not call.case.row.N:
        return
    found = computed(call, choose)
    ends = _log_prob(found, 1), _log_prob(found, -1)
    yield between(result, "log_prob", ends, LOGARITHM)
    yield between(result, "loss", _loss_ends(found, ends), LOGARITHM)


def _log_prob(found: Computed, side: int) -> Array:
    """Return log-probabilities in fp32 for the largest (1) or smallest (-1) logarithms of rows."""
    maximum, logarithm = found.parts[[kernels.MAXIMUM, kernels.LOGARITHM], :, None]
    with np.errstate(all="ignore"):
        logarithm = moved(logarithm, side * LN_UNITS) + side * SUM_ERROR
        if found.setting.form.is_two_step:
            return np.asarray((found.x - maximum) - logarithm)
        return np.asarray(found.x - (logarithm + maximum))


def _loss_ends(found: Computed, ends: Ends) -> Ends:
    """Return the loss at both ends of the log-probabilities; every operation is monotonic."""
    setting, case, parts = found.setting, found.call.case, found.parts
    counted = setting.target != setting.ignored
    label, rows = np.where(counted, setting.target, 0), np.arange(len(found.x))
    weights = class_weights(found.call.tensors, case.row.C, np.dtype(np.float32))
    losses = []
    with np.errstate(all="ignore"):
        sides = [(end[rows, label] * setting.form.sign) * weights[label] for end in ends]
        smoothing = parts[[kernels.SMOOTHING] * 2]
        if case.row.label_smoothing:
            smoothing = _smoothing_ends(found, ends, counted, weights)
        # The loss falls with the label's log-probability and grows with the smoothing.
        falls = np.sort(np.where(counted, sides, parts[kernels.LOSS]), axis=0)
        falls = falls[:: int(-setting.form.sign)]
        for unit, loss, smooth in zip((-1, 1), falls, smoothing, strict=True):
            sums = np.array([loss, parts[kernels.WEIGHT], smooth])
            end = setting.loss(case, sums_of(case, setting, sums))
            # With mean a quotient, of which the last bit is a model too.
            losses.append(moved(end, unit) if case.row.reduction == MEAN else end)
    return losses[0], losses[1]


def _smoothing_ends(found: Computed, ends: Ends, counted: Array, weights: Array) -> Array:
    """Return both ends of the smoothing of every row, with the rounding of its sum."""
    radius = np.abs(ends[0].astype(FP64) - ends[1])
    sizes = np.abs(found.log_prob.astype(FP64)) * 2.0**-18
    reach = np.where(np.isfinite(found.log_prob), radius + sizes, 0) @ np.abs(weights.astype(FP64))
    smoothing = found.parts[kernels.SMOOTHING]
    reach = np.where(counted, reach, 0).astype(np.float32)
    return np.array([smoothing - reach, smoothing + reach])


# --- What frameworks compute in two kernels ---


def unfused(call: StudyCall, output: str) -> Formulas:
    """Yield the results of log_softmax and nll_loss."""
    if output == "log_prob":
        yield "(x - maximum) - ln(sum), as PyTorch's log_softmax does", partial(_log_softmax, call)
        return
    x = call.tensors["input"]
    text = Text("the losses added in another order, as log_softmax and nll_loss do")
    if is_16_bit(x):
        text = Text(
            "log_prob rounded to {dtype} before the loss, as log_softmax and nll_loss do",
            dtype=short(x.dtype),
        )
    yield text, partial(_nll_loss, call)


def _log_softmax(call: StudyCall) -> Ends:
    x = call.tensors["input"]
    shifted, logarithm = softmax_parts(x.astype(FP64))
    return ends_of(shifted - logarithm, np.abs(shifted) + np.abs(logarithm), x.dtype)


def _nll_loss(call: StudyCall) -> Ends:
    """Return the loss of log-probabilities that are rounded first."""
    dtype, shape = call.tensors["input"].dtype, call.case.specs["loss"].shape
    high, low = (
        loss_formula(call.arguments, call.tensors, log_prob.astype(FP64)).reshape(shape)
        for log_prob in _log_softmax(call)
    )
    return ends_of(low, np.abs(low), dtype)[0], ends_of(high, np.abs(high), dtype)[1]


# --- Dumps ---


def _in_dump(wrapped: WrappedCall) -> FoundCall:
    arguments = wrapped.pick("input", "target", **DEFAULTS)
    return arguments, {"loss": wrapped.output(0), "log_prob": wrapped.output(1)}


def _contradictions(arguments: Values, results: Values) -> Iterator[str]:
    log_prob = results.get("log_prob")
    if log_prob is not None and log_prob.extremes[1] > 0:
        yield Text(
            "log_prob goes up to {most}; a logarithm of a probability is at most 0",
            most=f"{log_prob.extremes[1]:.4g}",
        )


IN_DUMPS = InDumps(
    (CROSS_ENTROPY,),
    _in_dump,
    contradictions=_contradictions,
    index_ranges=partial(label_ranges, "input"),
)


# --- Experiments ---

OPERATOR = "cross_entropy_loss"
VOCABULARY = 32000
OFFSETS = (0.0, 100.0, 1000.0)
OFFSET_ROWS = 64
OTHER_BATCHES = (33409, 131713)
"""Rows of batches with chunks of another width than a small one, in fp32 and 16 bits."""


def _call(rows: int, columns: int, offset: float = 0.0, dtype: str = "float32") -> StudyCall:
    """Return a call with logits around an offset."""
    drawn = np.random.default_rng(0).standard_normal((rows, columns), np.float32)
    logits = narrow_array(drawn * np.float32(4) + np.float32(offset), dtype)
    return study_call(OPERATOR, {"input": logits, "target": np.zeros(rows, np.int64)})


def _cut_row() -> Shown:
    """Compare the rows of a small batch in fp32 and bf16 with the same rows in larger ones."""
    numbers: Numbers = {}
    lines: list[str] = []
    columns = 2 * VOCABULARY
    for dtype in ("float32", "bfloat16"):
        call = _call(PROBED_ROWS, columns, dtype=dtype)
        before = widen_array(call.run().outputs["log_prob"])
        counts = {
            str(rows): different(before, widen_array(in_batch(call, rows)["log_prob"]))
            for rows in OTHER_BATCHES
        }
        batch = max(counts, key=counts.__getitem__)
        numbers[dtype] = counts
        lines.append(
            Text(
                "{dtype}, {columns} columns, {rows} rows: of {size} log_prob, {found} differ as in "
                "a batch of {batch} rows",
                dtype=dtype,
                columns=columns,
                rows=PROBED_ROWS,
                size=columns * PROBED_ROWS,
                found=counts[batch],
                batch=batch,
            )
        )
    return numbers, lines


def _offset() -> Shown:
    """Compare the error of log_prob with that of log_softmax, for logits around an offset."""
    numbers: Numbers = {}
    lines: list[str] = []
    for offset in OFFSETS:
        call = _call(OFFSET_ROWS, VOCABULARY, offset)
        x = call.tensors["input"]
        exact = formula(call.arguments, call.tensors, FP64)["log_prob"]
        fused = call.run().outputs["log_prob"]
        shifted = x - x.max(axis=1, keepdims=True)
        apart = shifted - softmax_parts(shifted.astype(FP64))[1].astype(np.float32)
        error, unfused = (float(np.abs(found - exact).max()) for found in (fused, apart))
        share = different(fused, apart) / x.size
        numbers[str(offset)] = {"error": error, "unfused": unfused, "share": share}
        lines.append(
            Text(
                "mean {offset}: largest error {error}, of log_softmax {unfused}; {share} differ",
                offset=str(offset),
                error=f"{error:.1e}",
                unfused=f"{unfused:.1e}",
                share=f"{100 * share:.0f} %",
            )
        )
    return numbers, lines


def _lost_rows() -> Shown:
    """Sum losses of 0 and 1 over so many rows that a core loses some."""
    numbers: Numbers = {}
    for core_rows in (tiler.PIECE_COLUMNS, tiler.PIECE_COLUMNS + 1):
        rows = 48 * core_rows  # on 48 cores
        result = run(
            OPERATOR,
            input=np.zeros((rows, 2), np.float32),
            target=np.zeros(rows, np.int64),
            reduction="sum",
            limits="hardware",
        )
        numbers[str(core_rows)] = float(result.outputs["loss"][0] / (rows * np.log(2)))
    return numbers, [
        Text(
            "{rows} equal rows on a core: {share} of their losses are in the sum",
            rows=rows,
            share=f"{100 * share:.0f} %",
        )
        for rows, share in numbers.items()
    ]


CAVEATS = (
    Experiment(
        "row_is_cut",
        "log_prob of a row that is cut depends on the size of the batch",
        "public sources, CrossEntropyLoss, inputUbSize",
        _cut_row,
        ("row_is_cut",),
    ),
    Experiment(
        "logits_offset",
        "Logits far from 0 cost digits of log_prob, unlike with log_softmax",
        "public sources, CrossEntropyLoss, rounding of ln(sum) + maximum",
        _offset,
        ("log_prob_differs_between_products",),
    ),
    Experiment(
        "rows_lost",
        "mean and sum lose rows of a core that takes more than 8192",
        "public sources, CrossEntropyLoss, sum over the rows",
        _lost_rows,
        ("rows_lost",),
    ),
)
