"""Base blocks of the tiling model for gradInput and gradWeight: what fits L0A, L0B, L0C and L1 of one core.

Evidence: model (the product's planner for these is not published). Source: the page, "Tiling model". Pure integer
functions, see ``conv_tbc_problem``. The buffer sizes come from the Device; where the page writes 32768 it is half
of L0A and of L0B.
"""

from typing import TYPE_CHECKING, NamedTuple

from npu_sim.tiling.conv_tbc_backward.problem import (
    CHANNEL_BLOCK_BYTES,
    CUBE_EDGE,
    ConvTbcProblem,
    output_time,
)
from npu_sim.tiling.integers import align, align_down, ceil_div

if TYPE_CHECKING:
    from npu_sim.cores import Device

LONG_EDGE = 256
SHORT_EDGE = 128
ACCUMULATOR_BYTES = 4
L0_BUFFERS = 2
"""L0A and L0B are always used in two halves (page, "double buffering")."""

BUFFER_NONE = 0
BUFFER_L0A = 1
BUFFER_L0B = 2
BUFFER_L0C = 3
BUFFER_L1 = 4
BUFFER_NAMES = ("", "L0A", "L0B", "L0C", "L1")
"""Names of the ``BUFFER_*`` codes, in their order."""


class CubeProduct(NamedTuple):
    """One gradient as a matrix product of M x N with a reduction, in elements of the cube layout.

    ``is_grad_weight`` is 1 for gradWeight (reduction = output time of one sample), 0 for gradInput (reduction =
    taps x output channels, ``slices`` blocks of C0 output channels, each with all taps).
    """

    is_grad_weight: int
    taps: int
    element_bytes: int
    channel_block: int
    m: int
    n: int
    reduction: int
    slices: int


class CubeBase(NamedTuple):
    """A base block and what the buffers of one core hold.

    ``l1_length`` is the part of the reduction one buffer of L1 holds. ``shortage`` is a ``BUFFER_*`` code: the
    first buffer the block does not fit, which needs ``bytes_needed`` and has ``bytes_available``.
    """

    m: int
    n: int
    k: int
    l0c_buffers: int
    l1_length: int
    l1_buffers: int
    shortage: int
    bytes_needed: int
    bytes_available: int


def grad_input_product(problem: ConvTbcProblem) -> CubeProduct:
    """Return gradInput of one sample: rows are input time, columns input channels."""
    channel_block = CHANNEL_BLOCK_BYTES // problem.element_bytes
    slices = ceil_div(problem.out_channels, channel_block)
    return CubeProduct(
        is_grad_weight=0,
        taps=problem.taps,
        element_bytes=problem.element_bytes,
        channel_block=channel_block,
        m=problem.time,
        n=align(problem.in_channels, CUBE_EDGE),
        reduction=problem.taps * slices * channel_block,
        slices=slices,
    )


def grad_weight_product(problem: ConvTbcProblem) -> CubeProduct:
    """Return gradWeight of one sample: rows are output channels, columns taps x input channels."""
    channel_block = CHANNEL_BLOCK_BYTES // problem.element_bytes
    return CubeProduct(
        is_grad_weight=1,
        taps=problem.taps,
        element_bytes=problem.element_bytes,
        channel_block=channel_block,
        m=align(problem.out_channels, CUBE_EDGE),
        n=problem.taps * align(problem.in_channels, channel_block),
        reduction=align(output_time(problem), channel_block),
        slices=0,
    )


def self_bytes(product: CubeProduct, base_m: int, length: int) -> int:
    """Bytes of self in one buffer of L1: for gradInput a slice's rows with their halo, for gradWeight a tile."""
    if product.is_grad_weight:
        return base_m * length * product.element_bytes
    slices = length // (product.taps * product.channel_block)
    return slices * (base_m - 1 + product.taps) * CHANNEL_BLOCK_BYTES


def other_bytes(product: CubeProduct, base_n: int, length: int) -> int:
    """Bytes of the other operand in one buffer of L1: weight for gradInput, x with its halo for gradWeight."""
    if product.is_grad_weight:
        channel_blocks = ceil_div(base_n, product.taps * product.channel_block)
        return (length - 1 + product.taps) * channel_blocks * CHANNEL_BLOCK_BYTES
    return length * base_n * product.element_bytes


def content_bytes(product: CubeProduct, base_m: int, base_n: int, length: int) -> int:
    """Bytes of one buffer of L1 that holds ``length`` of the reduction."""
    return self_bytes(product, base_m, length) + other_bytes(product, base_n, length)


def longest_content(
    product: CubeProduct, base_m: int, base_n: int, unit: int, room_bytes: int
) -> int:
    """Longest reduction, in multiples of ``unit``, whose content fits ``room_bytes``; 0 when not one unit fits."""
    # The content grows by the same bytes with every unit.
    first_bytes = content_bytes(product, base_m, base_n, unit)
    if first_bytes > room_bytes:
        return 0
    further_bytes = content_bytes(product, base_m, base_n, 2 * unit) - first_bytes
    units = 1 + (room_bytes - first_bytes) // further_bytes
    return unit * min(units, ceil_div(product.reduction, unit))


def measured(product: CubeProduct, device: "Device", base_m: int, base_n: int) -> CubeBase:
    """Fill the buffers for given edges, and say which one is too small."""
    element_bytes = product.element_bytes
    room_k = min(
        device.l0a_bytes // L0_BUFFERS // (element_bytes * base_m),
        device.l0b_bytes // L0_BUFFERS // (element_bytes * base_n),
    )
    base_k = min(
        max(align_down(room_k, product.channel_block), product.channel_block), product.reduction
    )
    tile_bytes = ACCUMULATOR_BYTES * base_m * base_n
    l0c_buffers = 2 if 2 * tile_bytes <= device.l0c_bytes else 1
    # A slice of gradInput is C0 channels with all taps; gradWeight takes whole base blocks of time.
    unit = base_k if product.is_grad_weight else product.taps * product.channel_block
    l1_length, l1_buffers = fill_l1(product, device, base_m, base_n, unit)
    if l1_length == 0 and product.is_grad_weight and base_m == CUBE_EDGE and base_n == CUBE_EDGE:
        # The smallest tile: give up length of the base block before giving up.
        unit = product.channel_block
        l1_length, l1_buffers = fill_l1(product, device, base_m, base_n, unit)
    base_k = min(base_k, max(l1_length, product.channel_block))
    shortage, needed, available = BUFFER_NONE, 0, 0
    if tile_bytes > device.l0c_bytes:
        shortage, needed, available = BUFFER_L0C, tile_bytes, device.l0c_bytes
    elif L0_BUFFERS * base_m * base_k * element_bytes > device.l0a_bytes:
        shortage, needed, available = (
            BUFFER_L0A,
            L0_BUFFERS * base_m * base_k * element_bytes,
            device.l0a_bytes,
        )
    elif L0_BUFFERS * base_n * base_k * element_bytes > device.l0b_bytes:
        shortage, needed, available = (
            BUFFER_L0B,
            L0_BUFFERS * base_n * base_k * element_bytes,
            device.l0b_bytes,
        )
    elif l1_length == 0:
        needed = content_bytes(product, base_m, base_n, unit)
        shortage, available = BUFFER_L1, device.l1_bytes
    return CubeBase(
        base_m, base_n, base_k, l0c_buffers, l1_length, l1_buffers, shortage, needed, available
    )


def fill_l1(
    product: CubeProduct, device: "Device", base_m: int, base_n: int, unit: int
) -> tuple[int, int]:
    """Length of the reduction in one buffer of L1 and the number of buffers: twice when a unit fits twice."""
    length = longest_content(product, base_m, base_n, unit, device.l1_bytes // 2)
    if length > 0:
        return length, 2
    return longest_content(product, base_m, base_n, unit, device.l1_bytes), 1


def smallest_base_fits(problem: ConvTbcProblem, device: "Device") -> bool:
    """Whether a base block of 16 x 16 is certain to fit for both gradients, so that :func:`choose_base` leaves no shortage.

    In L1 a slice of gradInput takes 16 - 1 + K rows of C0 channels of self and K x 16 of weight; gradWeight 16 of self and at most
    twice C0 - 1 + K of x, which is less than 3 x 16 + 17 x K as well.
    """
    unit_bytes = CHANNEL_BLOCK_BYTES * ((CUBE_EDGE + 1) * problem.taps + 3 * CUBE_EDGE)
    operand_bytes, tile_bytes = (
        L0_BUFFERS * CUBE_EDGE * CHANNEL_BLOCK_BYTES,
        ACCUMULATOR_BYTES * CUBE_EDGE * CUBE_EDGE,
    )
    fits_l0 = (
        operand_bytes <= min(device.l0a_bytes, device.l0b_bytes) and tile_bytes <= device.l0c_bytes
    )
    return fits_l0 and unit_bytes <= device.l1_bytes


def no_base() -> CubeBase:
    """Return the block of a call without elements."""
    return CubeBase(0, 0, 0, 0, 0, 0, BUFFER_NONE, 0, 0)


def halved(edge: int) -> int:
    """Half of an edge, rounded down to a multiple of 16, at least 16."""
    return max(align_down(edge // 2, CUBE_EDGE), CUBE_EDGE)


def choose_base(product: CubeProduct, device: "Device") -> CubeBase:
    """Largest base block of the model that fits every buffer; a shortage is left only when 16 x 16 does not fit."""
    long_m = product.m > SHORT_EDGE
    base_m = min(LONG_EDGE if long_m else SHORT_EDGE, align(product.m, CUBE_EDGE))
    base_n = min(SHORT_EDGE if long_m else LONG_EDGE, align(product.n, CUBE_EDGE))
    base = measured(product, device, base_m, base_n)
    while base.shortage != BUFFER_NONE and (base_m > CUBE_EDGE or base_n > CUBE_EDGE):
        if base.shortage == BUFFER_L0A and base_m > CUBE_EDGE:
            base_m = halved(base_m)
        elif base.shortage == BUFFER_L0B and base_n > CUBE_EDGE:
            base_n = halved(base_n)
        elif base_m >= base_n:
            base_m = halved(base_m)
        else:
            base_n = halved(base_n)
        base = measured(product, device, base_m, base_n)
    return base
