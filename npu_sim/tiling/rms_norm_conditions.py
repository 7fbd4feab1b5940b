"""What decides how RmsNorm is tiled: the conditions behind its keys, and what lies in the Unified Buffer on each.

Pure integer functions, which the planner (`npu_sim.tiling.rms_norm`) asks and which are shown to
users.

Source: specification page ``rms_norm``, section "Tiling". All sizes are elements unless the name
says bytes. "A2" is what the product asks for: SoCs whose short version is Ascend910B.
"""

from typing import Any, NamedTuple

from npu_sim.cores import NPU_ARCH_ATLAS_INFERENCE, SOC_ASCEND_910B, Device
from npu_sim.tiling.integers import align, align_down, ceil_div
from npu_sim.tiling.normalised_rows import FP16, FP32, alignment

KEY_NORMAL = 0
"""Tiling key: a row at a time, whole, in the Unified Buffer."""
KEY_SPLIT_D = 1
"""Tiling key: rows in pieces of columns."""
KEY_MERGE_N = 2
"""Tiling key: several whole rows at a time."""
KEY_SINGLE_ROW = 3
"""Tiling key: a row at a time, x and its squares in one buffer; fp32 gamma of a 16-bit x only."""

RESERVED_BYTES = 1024
"""Unified Buffer that the planner leaves alone, beside what the profile reserves (page, "ub")."""
WIDEST_FP32, WIDEST_16_BIT = 10240, 12288
"""Widest aligned row of fp32 and of 16-bit x that is neither merged nor cut, also the elements of
its buffer (page, key 0)."""
RSTD_ROWS = 64
"""Rows whose rstd goes out together where rows are not merged (page, "row_factor")."""
PIECE_STEP = 16
"""A piece of a row is a multiple of this, and never shorter (page, key 1)."""

MERGE_COLUMNS = 2000
"""Widest aligned row that A2 merges with others (page, key 2)."""
MERGE_COLUMN_BYTES = 16
"""Unified Buffer of every column of a merged row (page, key 2); the release may count fewer for 16
bits with a gamma of their dtype."""
MERGE_ROW_BYTES, MIXED_MERGE_ROW_BYTES = 260, 288
"""Unified Buffer of every merged row beside its columns, the second with an fp32 gamma of a 16-bit
x (page, key 2)."""
INFERENCE_MERGE_COLUMNS, INFERENCE_MERGE_ROWS = 128, 16
"""The Atlas inference series merges fp16 rows of exactly so many columns, when their number is a
multiple of this (page, key 2)."""
INFERENCE_RESERVED_BYTES = 8192
"""Unified Buffer that the Atlas inference series leaves free there (page, key 2)."""
INFERENCE_ROW_STEP = 8
"""There, rows of a core and of a buffer are a multiple of this: 32 bytes of rstd (page, key 2)."""

MIXED_NORMAL_COLUMN_BYTES, MIXED_SINGLE_COLUMN_BYTES = 16, 14
"""Unified Buffer of every column on keys 0 and 3 with an fp32 gamma of a 16-bit x (page,
"Mixed")."""
MIXED_ROW_BYTES = 512
"""Unified Buffer beside the columns on keys 0 and 3 (page, "Mixed")."""
MIXED_PIECE_COLUMN_BYTES = 16
"""Unified Buffer of every column of a piece with an fp32 gamma of a 16-bit x (page, key 1)."""
MIXED_PIECE_RESERVED_BYTES = 2560
"""Unified Buffer beside the piece (page, key 1)."""

PERFORMANCE_COLUMNS, PERFORMANCE_FIRST_AXIS, PERFORMANCE_SECOND_AXIS = 5120, 512, 8
"""Largest col, x.shape[0] and, of three axes, x.shape[1] for which A2 sets is_performance (page,
"is_performance")."""


class Problem(NamedTuple):
    """What the planner is asked.

    Attributes
    ----------
    rows, columns
        x after folding: columns are the axes of gamma, rows the others.
    dtype_code, gamma_dtype_code
        Dtypes of x and of gamma.
    x_rank, gamma_rank
        How many axes x and gamma have: only is_performance depends on them, as on the next two.
    first_axis, second_axis
        x.shape[0] and x.shape[1]; the second is 1 when there is none.
    """

    rows: int
    columns: int
    dtype_code: int
    gamma_dtype_code: int
    x_rank: int
    gamma_rank: int
    first_axis: int
    second_axis: int


class BufferShape(NamedTuple):
    """What lies in the Unified Buffer at a time: rows whose rstd goes out together, and elements of x."""

    row_factor: int
    ub_factor: int


def usable_bytes(device: Device) -> int:
    """Unified Buffer that the planner shares out (page, "ub")."""
    return device.ub_bytes - RESERVED_BYTES


def columns_aligned(problem: Problem) -> int:
    """Columns of a padded row: in the unit of x, also for an fp32 gamma (page, "col_align")."""
    return align(problem.columns, alignment(problem.dtype_code))


def widest_row(problem: Problem) -> int:
    """Widest aligned row that is not cut, with a gamma in the dtype of x."""
    return WIDEST_FP32 if problem.dtype_code == FP32 else WIDEST_16_BIT


def mixed_row_bytes(problem: Problem, column_bytes: int) -> int:
    """Unified Buffer of a whole row with an fp32 gamma of a 16-bit x."""
    return column_bytes * columns_aligned(problem) + MIXED_ROW_BYTES


def is_mixed(problem: Problem) -> bool:
    """Whether gamma has another dtype than x: fp32 beside 16 bits."""
    return problem.gamma_dtype_code != problem.dtype_code


def is_a2(device: Device) -> bool:
    """Whether the product takes the device for Atlas A2; A3, of the same architecture, is not asked for."""
    return device.soc_version == SOC_ASCEND_910B


def merges_rows(problem: Problem, device: Device) -> bool:
    """Key 2 on A2: whether rows are so narrow that several lie in the Unified Buffer at a time."""
    return is_a2(device) and columns_aligned(problem) <= MERGE_COLUMNS


def merges_inference_rows(problem: Problem, device: Device, rules: Any) -> bool:
    """Key 2 on the Atlas inference series: whether rows have the one width and the number that are merged there, at this release."""
    if rules.inference_series_merges == 0:
        return False
    fits = problem.columns == INFERENCE_MERGE_COLUMNS and problem.rows % INFERENCE_MERGE_ROWS == 0
    return (
        device.npu_arch == NPU_ARCH_ATLAS_INFERENCE
        and problem.dtype_code == FP16
        and not is_mixed(problem)
        and fits
    )


def fits_normal_row(problem: Problem, device: Device) -> bool:
    """Key 0: whether a whole row fits beside its fp32 copy, its squares, gamma and y."""
    if is_mixed(problem):
        return mixed_row_bytes(problem, MIXED_NORMAL_COLUMN_BYTES) < usable_bytes(device)
    return columns_aligned(problem) <= widest_row(problem)


def fits_single_row(problem: Problem, device: Device) -> bool:
    """Key 3, with an fp32 gamma of a 16-bit x: whether a whole row fits when its squares take the place of x."""
    return is_mixed(problem) and mixed_row_bytes(problem, MIXED_SINGLE_COLUMN_BYTES) < usable_bytes(
        device
    )


def spares_broadcasts(problem: Problem, device: Device, rules: Any) -> bool:
    """is_performance: whether merged rows are multiplied by rstd and gamma without broadcasting these to all elements first."""
    if merges_inference_rows(problem, device, rules):
        return True
    if (
        rules.performance_fields == 0
        or not is_a2(device)
        or is_mixed(problem)
        or problem.dtype_code == FP32
        or problem.gamma_rank != 1
    ):
        return False
    two = problem.x_rank == 2
    three = problem.x_rank == 3 and problem.second_axis <= PERFORMANCE_SECOND_AXIS
    return (
        problem.columns <= PERFORMANCE_COLUMNS
        and problem.first_axis <= PERFORMANCE_FIRST_AXIS
        and (two or three)
    )


def tiling_key(problem: Problem, device: Device, rules: Any) -> int:
    """The first key whose condition holds; rows are cut when none does."""
    if merges_rows(problem, device) or merges_inference_rows(problem, device, rules):
        return KEY_MERGE_N
    if fits_normal_row(problem, device):
        return KEY_NORMAL
    return KEY_SINGLE_ROW if fits_single_row(problem, device) else KEY_SPLIT_D


def merged_rows(problem: Problem, device: Device, rules: Any) -> int:
    """Rows in the Unified Buffer at a time on key 2."""
    if merges_inference_rows(problem, device, rules):
        row_bytes = MERGE_COLUMN_BYTES * INFERENCE_MERGE_COLUMNS + MERGE_ROW_BYTES
        return align_down(
            (usable_bytes(device) - INFERENCE_RESERVED_BYTES) // row_bytes, INFERENCE_ROW_STEP
        )
    beside = MIXED_MERGE_ROW_BYTES if is_mixed(problem) else MERGE_ROW_BYTES
    plain_16_bit = problem.dtype_code != FP32 and not is_mixed(problem)
    column_bytes = rules.merge_column_bytes if plain_16_bit else MERGE_COLUMN_BYTES
    rows: int = usable_bytes(device) // (column_bytes * columns_aligned(problem) + beside)
    return rows


def piece_length(problem: Problem, device: Device) -> int:
    """Columns of a piece on key 1: nearly even pieces, or with an fp32 gamma of a 16-bit x as many as fit."""
    if is_mixed(problem):
        return align_down(
            (usable_bytes(device) - MIXED_PIECE_RESERVED_BYTES) // MIXED_PIECE_COLUMN_BYTES,
            PIECE_STEP,
        )
    pieces = ceil_div(problem.columns, widest_row(problem))
    length = ceil_div(problem.columns, PIECE_STEP * pieces) * PIECE_STEP
    while 0 < problem.columns % length < PIECE_STEP:
        length -= PIECE_STEP
    return length


def buffer_shape(problem: Problem, device: Device, rules: Any, key: int) -> BufferShape:
    """What lies in the Unified Buffer at a time on a key; not above 0 where a what-if SoC has too little of it."""
    if key == KEY_MERGE_N:
        rows = merged_rows(problem, device, rules)
        return BufferShape(rows, rows * columns_aligned(problem))
    if key == KEY_SPLIT_D:
        return BufferShape(RSTD_ROWS, piece_length(problem, device))
    return BufferShape(
        RSTD_ROWS, columns_aligned(problem) if is_mixed(problem) else widest_row(problem)
    )
