"""RmsNorm: RMS normalisation, the forward operator whose rstd RmsNormGrad takes.

Source: public product document aclnnRmsNorm; specification page ``rms_norm``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from npu_sim.cores import NPU_ARCH_A2_A3, NPU_ARCH_ATLAS_INFERENCE, Profile
from npu_sim.numbers.formats import TensorSpec, numpy_dtype, shape_text
from npu_sim.numbers.values import normal
from npu_sim.operators.contract.arguments import Attribute, Output, Tensor
from npu_sim.operators.contract.axes import Derived, Number, Word
from npu_sim.operators.contract.case import Case, Inspection
from npu_sim.operators.contract.checks import Attributes, Given, Holds, NothingToDo, Supported
from npu_sim.operators.contract.codes import FLOAT_DTYPES
from npu_sim.operators.contract.describing import Condition, decision, vector_plan
from npu_sim.operators.contract.inputs import unsupported_values
from npu_sim.operators.contract.operator import Operator
from npu_sim.operators.contract.study import StudyCall
from npu_sim.operators.contract.tensor_checks import PLAIN_FORMATS, DtypeTable, Formats, Like, Ranks, Shapes
from npu_sim.orders import trees
from npu_sim.orders.claims import Claim
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Caveat
from npu_sim.plans.workspace_model import WorkspacePart
from npu_sim.status import TILING_FAILURE, AclnnError
from npu_sim.tiling import rms_norm as tiler
from npu_sim.tiling import rms_norm_conditions as conditions
from npu_sim.tiling.integers import ceil_div
from npu_sim.tiling.normalised_rows import SYSTEM_WORKSPACE_BYTES
from npu_sim.tiling.rms_norm_buffers import buffers

if TYPE_CHECKING:
    from npu_sim.kernels.rms_norm import Split
    from npu_sim.operators.contract.execution import Run

OFFSET_LIMIT = 2**32
"""Elements of x from which on element offsets in 32 bits wrap around (page, "Releases")."""
RSTD_GROUP = 8
"""fp32 numbers of a 32-byte block, the least that a copy moves (page, "Atlas inference: how rstd goes out")."""
LARGEST_SQUARED = 1.8446743e19
"""Larger magnitudes have no finite square in fp32 (page, "Special values")."""
SAME_SUM_COLUMNS = 128
"""Up to so many columns keys 0 and 2 add the same pairs (page, "What follows from the orders")."""
BLOCK_ELEMENTS = 1 << 22
"""Elements of the formula computed at a time, so that temporaries stay small."""
GAMMA_SPREAD = np.float32(0.1)
PROBED_ROWS = 64
"""Rows of random numbers on which the kernel is compared with the declared tree."""

MIXED_ROWS = (("float16", "float32", "float16", "float32"), ("bfloat16", "float32", "bfloat16", "float32"))
PLAIN_ROWS = (
    ("float16", "float16", "float16", "float32"),
    ("bfloat16", "bfloat16", "bfloat16", "float32"),
    ("float32", "float32", "float32", "float32"),
)
"""dtypes of (x, gamma, y, rstd) (page, "Contract" 2); the mixed ones are for A2 and A3."""
PATHS = {
    conditions.KEY_NORMAL: "normal",
    conditions.KEY_SPLIT_D: "split D",
    conditions.KEY_MERGE_N: "merge N",
    conditions.KEY_SINGLE_ROW: "single row",
}


def dtype_rows(profile: Profile) -> Sequence[Sequence[str]]:
    """Return the dtype combinations that a product takes."""
    rows = (*MIXED_ROWS, *PLAIN_ROWS) if profile.npu_arch == NPU_ARCH_A2_A3 else PLAIN_ROWS
    return [row for row in rows if row[0] in profile.product.dtypes]


def check_gamma(call: Inspection) -> None:
    """Gamma has the last axes of x (page, "Contract" 3); the sizes of the call follow from both."""
    x, gamma = call.specs["x"], call.specs["gamma"]
    if gamma.rank > x.rank or gamma.shape != x.shape[x.rank - gamma.rank :]:
        wanted = shape_text(x.shape[max(x.rank - gamma.rank, 0) :])
        message = f"gamma is {shape_text(gamma.shape)}, but x is {shape_text(x.shape)}: gamma must be its last axes"
        raise AclnnError(TILING_FAILURE, "gamma", message, f"gamma: {wanted}")
    call.sizes = call.operator.bound(call.arguments)


def _last_axes(specs: Mapping[str, TensorSpec]) -> dict[str, int]:
    return {name: specs[name].shape[-1] * specs[name].itemsize for name in ("x", "gamma")}


def _shortest_axis(call: Inspection) -> str:
    return next(name for name, size in _last_axes(call.specs).items() if size < call.operator.facts(call.profile).last_axis_bytes_at_least)


def _last_axis_words(call: Inspection) -> tuple[str, str]:
    name, least = _shortest_axis(call), call.operator.facts(call.profile).last_axis_bytes_at_least
    spec = call.specs[name]
    size = spec.shape[-1] * spec.itemsize
    message = f"the last axis of {name} has {spec.shape[-1]} elements = {size} bytes; {call.profile.product.title} needs {least} or more"
    return message, f"last axis of {name} >= {ceil_div(least, spec.itemsize)}; the planner itself takes any length"


def check_epsilon(call: Inspection) -> None:
    """Epsilon, rounded to fp32, is not below 0; inf and nan pass (page, "Contract" 6)."""
    if tiler.rounded_epsilon(call.arguments.epsilon) < 0:
        raise AclnnError(TILING_FAILURE, "epsilon", f"epsilon = {call.arguments.epsilon} is below 0", "epsilon >= 0")


def _of_problem(asks: Callable[[conditions.Problem, Any], bool]) -> Callable[[Any, Any, Any], bool]:
    """Return a condition of the planner as one of a row."""
    return lambda row, device, rules: asks(tiler.problem_of_row(row), device)


def _merges(problem: conditions.Problem, device: Any) -> bool:
    return conditions.merges_rows(problem, device) or conditions.merges_inference_rows(problem, device)


MERGE = Condition(
    "merge N",
    f"A2: col_align <= {conditions.MERGE_COLUMNS}; Atlas inference series: fp16, col = 128 and row % 16 = 0",
    _of_problem(_merges),
    "several whole rows lie in the buffer at a time; a row is summed in 64 lanes and then as a tree",
    "a row at a time, summed by halving",
    ("col",),
)
WHOLE = Condition(
    "whole rows",
    "a row fits beside its fp32 copy, its squares, gamma and y",
    _of_problem(conditions.fits_normal_row),
    "rows pass through the buffer whole",
    "rows are cut, or the squares take the place of x",
    ("col",),
)
SINGLE = Condition(
    "single row",
    "gamma is fp32 beside 16 bits, and a row fits when its squares take the place of x",
    _of_problem(conditions.fits_single_row),
    "rows pass through the buffer whole, x and its squares in one place",
    "rows are cut into pieces of columns",
    ("col",),
)
PERFORMANCE = Condition(
    "without broadcasts",
    "a 1-D gamma in the 16 bits of x, col <= 5120, and few samples (x.shape[0] <= 512; of three axes x.shape[1] <= 8)",
    _of_problem(conditions.spares_broadcasts),
    "rstd and gamma are multiplied without broadcasting them to all rows first; no bit changes",
    "rstd and gamma are broadcast to all rows of the buffer first; no bit changes",
)


def describe(case: Case) -> dict[str, Any]:
    """Return the fields of the plan that depend on the case."""
    tiling, problem = case.tiling, tiler.problem_of_row(case.row)
    key = tiling.tiling_key
    asked = [MERGE] if key == conditions.KEY_MERGE_N else [MERGE, WHOLE]
    if conditions.is_mixed(problem) and key in (conditions.KEY_SINGLE_ROW, conditions.KEY_SPLIT_D):
        asked.append(SINGLE)
    asked += [PERFORMANCE] if key == conditions.KEY_MERGE_N else []
    known = {"col": case.row.col, "col_align": tiling.columns_aligned, "row": case.row.row}
    parts = [
        WorkspacePart(name="system", bytes=SYSTEM_WORKSPACE_BYTES, kind="system", note="16 MiB on every SoC"),
        WorkspacePart(name="untouched", bytes=tiler.UNTOUCHED_BYTES, kind="kernel", note="no kernel reads or writes it"),
    ]
    for one in case.operator.outputs:
        if not case.specs[one.name].contiguous:
            parts.append(WorkspacePart(name=f"copy of {one.name}", bytes=0, kind="kernel", evidence=Evidence.UNKNOWN, note="not published"))
    ranges = [tiler.row_range(tiling, core) for core in range(tiling.block_dim)]
    plan = vector_plan(
        case,
        path=PATHS[key],
        path_reason=_path_reason(case),
        per_core=_per_core(case),
        buffers=buffers(tiling, problem, case.device)._asdict(),
        ranges=ranges,
        workspace=parts,
        conditions=[decision(case, condition, **known) for condition in asked],
        caveats=_caveats(case),
    )
    return {**plan, "tiling": tiler.vendor_structure(tiling, case.arguments.epsilon)}


def _path_reason(case: Case) -> str:
    tiling, width = case.tiling, f"col_align {case.tiling.columns_aligned}"
    if tiling.tiling_key == conditions.KEY_MERGE_N:
        return f"{width}: {tiling.row_factor} rows fit the buffer"
    return f"{width} in the buffer of {tiling.ub_factor} columns" if tiling.ub_factor >= case.row.col else f"{width} > {tiling.ub_factor}"


def _per_core(case: Case) -> str:
    tiling = case.tiling
    groups = f"{tiling.row_loop} group{'s' * (tiling.row_loop != 1)} of up to {min(tiling.row_factor, tiling.block_factor)} rows"
    if tiling.tiling_key != conditions.KEY_SPLIT_D:
        return groups
    return f"{groups}, {ceil_div(case.row.col, tiling.ub_factor)} pieces of up to {tiling.ub_factor} columns"


def _caveats(case: Case) -> tuple[Caveat, ...]:
    """Return the warnings of a plan (page, "Warnings a plan gives")."""
    tiling, row, found = case.tiling, case.row, []

    def warn(code: str, argument: str, message: str) -> None:
        found.append(Caveat(code=code, argument=argument, message=message))

    if row.row * row.col > OFFSET_LIMIT and tiling.tiling_key in (conditions.KEY_MERGE_N, conditions.KEY_SINGLE_ROW):
        message = (
            "v9.1.0 and v9.2.0-beta.1 count elements of a core's start in 32 bits: cores that begin beyond 2^32 elements of x read and"
        )
        warn("element_offset_wraps", "x", f"{message} write at that place modulo 2^32; the simulator computes as if they did not")
    if case.profile.npu_arch == NPU_ARCH_ATLAS_INFERENCE and tiling.tiling_key != conditions.KEY_MERGE_N:
        if tiling.block_dim > 1 and tiling.block_factor % RSTD_GROUP:
            message = (
                f"a core clears rstd up to a multiple of {RSTD_GROUP} rows, {tiling.block_factor} is none: one that starts late can erase"
            )
            warn(
                "rstd_cleared_by_neighbour", "rstd", f"{message} what its neighbour wrote; the simulator computes as if that did not happen"
            )
        behind = -tiling.last_block_factor % RSTD_GROUP
        if behind:
            warn("rstd_written_behind_end", "rstd", f"the last core writes {behind} zeros, {4 * behind} bytes, behind the end of rstd")
    if case.profile.npu_arch == NPU_ARCH_A2_A3 and row.col > SAME_SUM_COLUMNS and tiling.columns_aligned <= conditions.MERGE_COLUMNS:
        message = (
            f"between {SAME_SUM_COLUMNS} and {conditions.MERGE_COLUMNS} columns A2 and A3 add the squares in another order: the last bit"
        )
        warn("rstd_differs_between_products", "rstd", f"{message} of rstd can differ")
    if tiler.rounded_epsilon(case.arguments.epsilon) == 0:
        warn("zero_rows_without_epsilon", "epsilon", "epsilon is 0 in fp32: a row of zeros has rstd inf and y nan")
    return tuple(found)


def split_of(case: Case) -> "Split":
    """Return how a row is summed, as the kernel takes it."""
    from npu_sim.kernels import rms_norm as kernels

    key = case.tiling.tiling_key
    path = {conditions.KEY_MERGE_N: kernels.LANES, conditions.KEY_SPLIT_D: kernels.PIECES}.get(key, kernels.HALVING)
    return kernels.Split(path, case.tiling.ub_factor if path == kernels.PIECES else case.row.col)


def compute(run: "Run") -> None:
    """Compute y and rstd."""
    case = run.case
    with run.watch.stage("load"):
        from npu_sim.kernels.rms_norm import rms_norm
    with run.watch.stage("check"):
        run.caveats = unsupported_values(run.tensors) if case.profile.saturates else ()
    with run.watch.stage("compute"):
        shape, rstd = (case.row.row, case.row.col), run.written("rstd").reshape(-1)
        x, gamma = run.stored("x").reshape(shape), run.stored("gamma").reshape(-1)
        rms_norm(x, gamma, split_of(case), tiler.rounded_epsilon(case.arguments.epsilon), run.written("y").reshape(shape), rstd)
    run.caveats += _overflowing_rows(run.tensors["x"].reshape(shape), rstd)


def _overflowing_rows(x: np.ndarray, rstd: np.ndarray) -> tuple[Caveat, ...]:
    """Warn of rows whose sum is inf although a finite input is: only there rstd is 0, so that no other row is looked at."""
    rows = np.flatnonzero(rstd == 0)
    sizes = np.abs(x[rows].astype(np.float32))
    found = int(np.count_nonzero((np.isfinite(sizes) & (sizes > LARGEST_SQUARED)).any(axis=1)))
    if not found:
        return ()
    message = f"{found} rows have a finite element above {LARGEST_SQUARED:g}, whose square is inf: their rstd is 0"
    return (Caveat(code="squares_overflow", argument="x", message=message),)


def formula(arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]) -> dict[str, np.ndarray]:
    """Compute y and rstd as their formulas say (page, "Formula")."""
    x, gamma = tensors["x"], tensors["gamma"].astype(precision).reshape(-1)
    rows = x.reshape(-1, gamma.size)
    y, rstd = np.empty(rows.shape, precision), np.empty(len(rows), precision)
    step = max(1, BLOCK_ELEMENTS // gamma.size)
    for begin in range(0, len(rows), step):
        block = rows[begin : begin + step].astype(precision)
        rstd[begin : begin + step] = 1 / np.sqrt(np.mean(block * block, axis=1) + precision.type(arguments.epsilon))
        y[begin : begin + step] = block * rstd[begin : begin + step, None] * gamma
    leading = x.shape[: x.ndim - tensors["gamma"].ndim]
    return {"y": y.reshape(x.shape), "rstd": rstd.reshape(leading + (1,) * tensors["gamma"].ndim)}


def data(arguments: Any, seed: int) -> dict[str, np.ndarray]:
    """Return inputs as a trained network has them: activations of order 1, scales near 1."""
    random = np.random.default_rng(seed)
    gamma = 1 + GAMMA_SPREAD * random.standard_normal(arguments.gamma.shape, np.float32)
    return {"x": normal(random, arguments.x), "gamma": gamma.astype(numpy_dtype(arguments.gamma.dtype))}


def claims(call: StudyCall) -> Iterator[Claim]:
    """Declare the tree of the sum of squares of a row."""
    case = call.case
    tree = _row_tree(case)
    yield Claim(
        output="rstd",
        element=tuple(0 for _ in case.specs["rstd"].shape),
        elements=case.row.row,
        terms=tuple(f"x^2 of column {column}" for column in range(case.row.col)),
        tree=tree,
        evaluates=partial(_agrees, call, case, tree),
    )


def _row_tree(case: Case) -> trees.Tree:
    columns, split = range(case.row.col), split_of(case)
    if case.tiling.tiling_key == conditions.KEY_MERGE_N:
        tree = trees.lane_sum(columns)
    else:
        starts = range(0, len(columns), split.piece_columns)
        tree = trees.left_fold([trees.halving(columns[start : start + split.piece_columns]) for start in starts])
    assert tree is not None
    return tree


def _agrees(call: StudyCall, case: Case, tree: trees.Tree) -> bool:
    """Whether the kernel has, on random numbers, the bits of the declared tree: squares cannot cancel, so that no probe tells more."""
    x = normal(np.random.default_rng(0), TensorSpec((PROBED_ROWS, case.row.col), case.specs["x"].dtype))
    ones = np.ones(case.row.col, call.tensors["gamma"].dtype)
    found = call.outputs(x=x, gamma=ones)["rstd"].reshape(-1)
    wide = x.astype(np.float32)
    mean = trees.evaluate(tree, np.ascontiguousarray((wide * wide).T)) * np.float32(case.tiling.average_factor)
    return np.array_equal(found, np.float32(1) / np.sqrt(mean + tiler.rounded_epsilon(case.arguments.epsilon)))


def terms(call: StudyCall, output: str, index: tuple[int, ...]) -> list[tuple[str, float]]:
    """Return the one term of an output element in float64: neither output is a sum."""
    value = formula(call.arguments, call.tensors, np.dtype(np.float64))[output][index]
    return [("x*rstd*gamma" if output == "y" else "1/sqrt(mean(x^2)+epsilon)", float(value))]


OPERATOR = Operator(
    name="rms_norm",
    title="RmsNorm",
    summary="Normalise rows by their root mean square as the product does.",
    arguments=(
        Tensor("x", "row* col+", "input, (rows ..., columns ...)", "dtype", samples=0),
        Tensor("gamma", "col+", "scale of every column, (columns ...)", "gamma_dtype"),
        Attribute("epsilon", float, "what is added to the mean square", default=1e-6),
        Output("y", "row* col+", "x normalised and scaled, like x", "dtype", document="yOut", samples=0),
        Output("rstd", "row* 1col?", "1/sqrt(mean(x^2)+epsilon) of every row, fp32", "float32", document="rstdOut", samples=0),
    ),
    axes=(
        Word("gamma_dtype", "dtype of gamma", FLOAT_DTYPES, "bfloat16"),
        Word("dtype", "dtype of x and y", FLOAT_DTYPES, "bfloat16"),
        Number("col", "columns: product of the axes of gamma", 4096, unit="column", aliases=("columns", "cols")),
        Number("row", "rows: product of the other axes of x", 1024, unit="row", aliases=("rows",)),
    ),
    derived=(
        Derived("x_rank", "2", lambda specs: specs["x"].rank),
        Derived("gamma_rank", "1", lambda specs: specs["gamma"].rank),
        Derived("first_axis", "row", lambda specs: specs["x"].shape[0]),
        Derived("second_axis", "col", lambda specs: (*specs["x"].shape, 1)[1]),
        Derived("last_axis_bytes", "col * (4 - 2 * min(max(dtype, gamma_dtype), 1))", lambda specs: min(_last_axes(specs).values())),
    ),
    checks=(
        Given(),
        Supported(),
        DtypeTable("x gamma y rstd", dtype_rows),
        Formats(PLAIN_FORMATS, status=TILING_FAILURE),
        Ranks("x gamma", 1, status=TILING_FAILURE),
        check_gamma,
        Like("y", "x", TILING_FAILURE),
        Shapes("rstd", TILING_FAILURE),
        NothingToDo("row == 0"),
        Holds("col >= 1", "gamma"),
        Holds("last_axis_bytes >= last_axis_bytes_at_least", _shortest_axis, _last_axis_words),
        Attributes("epsilon"),
        check_epsilon,
    ),
    tiling=tiler.Tiling,
    tile=tiler.tile_row,
    describe=describe,
    compute=compute,
    formula=formula,
    data=data,
    program="npu_sim.timelines.rms_norm:program",
    claims=claims,
    terms=terms,
    evidence=Evidence.EXACT,
    empty="empty: no rows, nothing runs",
)
