"""Sizes of one call of ConvTbcBackward, and the route of its gradWeight.

Pure integer functions, safe in int64, that Numba compiles as they are. Formulas: specification page
``conv_tbc_backward`` ("the page" in these modules).
"""

from typing import Any, NamedTuple

from npu_sim.cores import NPU_ARCH_A2_A3, Device
from npu_sim.tiling.common import align, ceil_div

CUBE_EDGE = 16
"""Rows and columns of the smallest matrix the cube unit multiplies (page; numerics.md, "Cube
unit")."""

CHANNEL_BLOCK_BYTES = 32
"""A row of the cube layout: C0 channels fill one 32-byte block (page, "What runs")."""

ROUTE_MATMUL = 1
"""A2 and A3, pad 0 and K = T, hence output length 1: both gradients are batched products."""
ROUTE_PLANNER = 2
"""The published planner of deterministic gradWeight; in default mode for the white-listed shape
only."""
ROUTE_GATE_FAILED = 3
"""Deterministic on A2 and A3, but the published planner does not accept it: the model, without
splitting the reduction over cores."""
ROUTE_MODEL = 4
"""The model: default mode except for the white-listed shape, deterministic mode on other products,
and every call at a release without the published planner."""
ROUTE_NAMES = ("none", "matmul", "planner", "gate_failed", "model")
"""Names of the ``ROUTE_*`` codes, as the golden data has them; ``none`` where no kernel runs."""

BIAS_UNIT_ROWS = 256
"""Fewest rows of self per core if several cores add to gradBias (model)."""

PUBLISHED_L0_BYTES = 65536
"""L0A and L0B that the published planner assumes: every A2 and A3 SoC has them."""
PUBLISHED_L0C_BYTES = 131072
"""L0C that the published planner assumes: its first base block, 256 x 128 in fp32, fills it."""


class ConvTbcProblem(NamedTuple):
    """Sizes of one call of ConvTbcBackward, in elements.

    Attributes
    ----------
    time, batch, in_channels
        Shape of input, (T, B, Cin).
    out_channels
        Cout, the last axis of self and weight.
    taps
        K, the first axis of weight, >= 1.
    pad
        Zeros added at both ends of the time axis, >= 0.
    element_bytes
        Bytes of the compute dtype after cubeMathType: 2 (fp16, bf16) or 4 (fp32, hf32).
    """

    time: int
    batch: int
    in_channels: int
    out_channels: int
    taps: int
    pad: int
    element_bytes: int


def output_time(problem: ConvTbcProblem) -> int:
    """To, the time steps of self: T + 2 * pad - K + 1."""
    return problem.time + 2 * problem.pad - problem.taps + 1


def on_white_list(problem: ConvTbcProblem) -> bool:
    """Return whether the deterministic route runs in default mode too (page, "What runs")."""
    sizes = (
        problem.time == 8
        and problem.batch == 1
        and problem.in_channels == 4
        and problem.out_channels == 2
    )
    return problem.element_bytes == 4 and sizes and problem.taps == 4 and problem.pad == 0


def multiplies_elements(route: int, contraction: int) -> bool:
    """Return whether a gradient is the plain product of elements, Mul (page, "What runs").

    ``contraction`` is Cout for gradInput and the batch for gradWeight.
    """
    return route == ROUTE_MATMUL and contraction == 1


def bias_rows(rows: int, cores: int) -> int:
    """Return the rows (time and batch) of self per core if ``cores`` may add to gradBias.

    Evidence: model (the page states only that it may be split): every core gets the same number of
    units of BIAS_UNIT_ROWS rows.
    """
    return ceil_div(ceil_div(rows, BIAS_UNIT_ROWS), cores) * BIAS_UNIT_ROWS


def is_plannable(problem: ConvTbcProblem) -> bool:
    """Return whether a planner can plan the call: no empty axis, and an element size of 2 or 4.

    Other calls never reach a planner.
    """
    if problem.element_bytes != 2 and problem.element_bytes != 4:
        return False
    return (
        problem.batch > 0
        and problem.in_channels > 0
        and problem.out_channels > 0
        and problem.time > 0
        and problem.taps > 0
        and problem.pad >= 0
        and output_time(problem) > 0
    )


def grad_weight_route(
    problem: ConvTbcProblem, device: Device, deterministic: bool, rules: Any
) -> int:
    """Return the route of gradWeight, one of the ``ROUTE_*`` codes.

    Source: the page, "What runs" (matrix product) and "Planner of deterministic gradWeight" (gate);
    page ``releases``, whether that planner is published.
    """
    if device.npu_arch != NPU_ARCH_A2_A3:
        return ROUTE_MODEL
    if problem.pad == 0 and problem.taps == problem.time:
        return ROUTE_MATMUL
    if rules.deterministic_planner == 0:
        return ROUTE_MODEL
    if published_planner_takes(problem, device) and (deterministic or on_white_list(problem)):
        return ROUTE_PLANNER
    return ROUTE_GATE_FAILED if deterministic else ROUTE_MODEL


def published_planner_takes(problem: ConvTbcProblem, device: Device) -> bool:
    """Return whether the published planner accepts: pad < K, and the smallest operands fit L1.

    It also fails on a user-defined chip with less L0A, L0B or L0C than every A2 and A3 SoC has: the
    first base blocks of the published planner would not fit.
    """
    if not is_plannable(problem):
        return False
    if device.l0a_bytes < PUBLISHED_L0_BYTES or device.l0b_bytes < PUBLISHED_L0_BYTES:
        return False
    if device.l0c_bytes < PUBLISHED_L0C_BYTES:
        return False
    return problem.pad < problem.taps and gate_bytes(problem) <= device.l1_bytes


def gate_row_bytes(problem: ConvTbcProblem) -> int:
    """Return the bytes of a row of self or x at the gate."""
    # k0 is C0, q two blocks of 8 for fp32: k0 * e * q is 32 bytes for 16-bit and 64 for fp32.
    return CHANNEL_BLOCK_BYTES * (1 if problem.element_bytes == 2 else 2)


def gate_bytes(problem: ConvTbcProblem) -> int:
    """Return the L1 bytes of the gate: 16 rows of self and their x (a1 + b1 of the page)."""
    steps_out = output_time(problem)
    row_bytes = gate_row_bytes(problem)
    self_bytes = CUBE_EDGE * row_bytes
    if steps_out >= CUBE_EDGE:
        x_rows = problem.time * (1 if steps_out % CUBE_EDGE == 0 else 2)
    else:
        samples = ceil_div(CUBE_EDGE, steps_out) + (1 if CUBE_EDGE % steps_out != 0 else 0)
        x_rows = align(samples * problem.time, CUBE_EDGE)
    return self_bytes + x_rows * row_bytes
