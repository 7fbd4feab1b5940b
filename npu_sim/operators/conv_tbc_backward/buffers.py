"""On-chip memories of ConvTbcBackward's two cube kernels."""

from npu_sim.cores import Device
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Allocation, Memory
from npu_sim.tiling.conv_tbc_backward.cube_tiling import (
    CubeProduct,
    CubeTiling,
    grad_input_product,
    grad_weight_product,
    other_bytes,
    self_bytes,
)
from npu_sim.tiling.conv_tbc_backward.grad_weight_deterministic import DeterministicTiling
from npu_sim.tiling.conv_tbc_backward.problem import ConvTbcProblem


def _buffers(count: int) -> str:
    return "two buffers" if count == 2 else "one buffer"


def _memory(
    phase: str, name: str, capacity: int, parts: list[tuple[str, int, int]], evidence: Evidence
) -> Memory:
    allocations = tuple(
        Allocation(name=label, bytes=size, note=_buffers(buffers)) for label, size, buffers in parts
    )
    return Memory(
        name=name, phase=phase, capacity_bytes=capacity, allocations=allocations, evidence=evidence
    )


def model_memories(
    phase: str, tiling: CubeTiling, problem: ConvTbcProblem, device: Device
) -> tuple[Memory, ...]:
    """Return L0A, L0B, L0C and L1 of a gradient planned by the model."""
    product: CubeProduct = (
        grad_input_product(problem) if phase == "gradInput" else grad_weight_product(problem)
    )
    other = "weight" if phase == "gradInput" else "input"
    buffers = tiling.l1_buffers
    own = buffers * self_bytes(product, tiling.base_m, tiling.length_l1)
    second = buffers * other_bytes(product, tiling.base_n, tiling.length_l1)
    return (
        _memory(
            phase,
            "L0A",
            device.l0a_bytes,
            [("self tile", tiling.l0a_bytes, tiling.l0a_buffers)],
            Evidence.MODEL,
        ),
        _memory(
            phase,
            "L0B",
            device.l0b_bytes,
            [(f"{other} tile", tiling.l0b_bytes, tiling.l0b_buffers)],
            Evidence.MODEL,
        ),
        _memory(
            phase,
            "L0C",
            device.l0c_bytes,
            [("accumulator", tiling.l0c_bytes, tiling.l0c_buffers)],
            Evidence.MODEL,
        ),
        _memory(
            phase,
            "L1",
            device.l1_bytes,
            [("self", own, buffers), (other, second, buffers)],
            Evidence.MODEL,
        ),
    )


def planner_memories(
    tiling: DeterministicTiling, problem: ConvTbcProblem, device: Device
) -> tuple[Memory, ...]:
    """Return L0A, L0B, L0C and L1 of gradWeight planned by the published rule."""
    phase, buffers = "gradWeight", tiling.l1_buffers
    second = tiling.x_l1_elements * problem.element_bytes * buffers
    return (
        _memory(
            phase, "L0A", device.l0a_bytes, [("self tile", tiling.l0a_bytes, 2)], Evidence.EXACT
        ),
        _memory(
            phase, "L0B", device.l0b_bytes, [("input tile", tiling.l0b_bytes, 2)], Evidence.EXACT
        ),
        _memory(
            phase,
            "L0C",
            device.l0c_bytes,
            [("accumulator", tiling.l0c_bytes, tiling.l0c_buffers)],
            Evidence.EXACT,
        ),
        _memory(
            phase,
            "L1",
            device.l1_bytes,
            [("self", tiling.l1_bytes - second, buffers), ("input", second, buffers)],
            Evidence.EXACT,
        ),
    )
