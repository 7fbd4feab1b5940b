"""The plan of ConvTbcBackward: which route both gradients take, how they are tiled, and why.

Source: specification page ``conv_tbc_backward``. gradInput, and gradWeight in default mode, are planned by a model; gradWeight in
deterministic mode on A2 and A3 by the product's published rule.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from npu_sim.cores import Profile
from npu_sim.formats import itemsize
from npu_sim.plan_model import CoreWork, Evidence, OutputOrder
from npu_sim.planning.conv_tbc_backward_buffers import model_memories, planner_memories
from npu_sim.planning.conv_tbc_backward_decisions import caveats, decisions
from npu_sim.planning.conv_tbc_backward_workspace import workspace
from npu_sim.tiling.conv_tbc_backward import CubeTiling, block_range, plan_grad_input, plan_grad_weight
from npu_sim.tiling.conv_tbc_grad_weight_deterministic import DeterministicTiling, plan_grad_weight_deterministic, vendor_fields
from npu_sim.tiling.conv_tbc_problem import (
    CHANNEL_BLOCK_BYTES,
    ROUTE_GATE_FAILED,
    ROUTE_MATMUL,
    ROUTE_MODEL,
    ROUTE_NAMES,
    ROUTE_PLANNER,
    ConvTbcProblem,
    grad_weight_route,
    output_time,
)
from npu_sim.tiling.integers import ceil_div

PATHS = {
    ROUTE_MATMUL: "batched matrix products",
    ROUTE_PLANNER: "convolution, gradWeight by the deterministic planner",
    ROUTE_GATE_FAILED: "convolution, gradWeight without a split over cores",
    ROUTE_MODEL: "convolution",
}
COMPUTE_NAMES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "hf32": "hf32"}


@dataclass(frozen=True)
class Case:
    """A checked call, reduced to what planning needs.

    ``compute`` is the dtype of the cube unit after cubeMathType: float32, hf32, float16 or bfloat16.
    """

    time: int
    batch: int
    in_channels: int
    out_channels: int
    taps: int
    pad: int
    dtype: str
    compute: str
    cube_math_type: int
    self_contiguous: bool
    input_contiguous: bool
    weight_contiguous: bool
    bias_contiguous: bool
    deterministic: bool
    profile: Profile

    @property
    def output_time(self) -> int:
        """Time steps of self."""
        return self.time + 2 * self.pad - self.taps + 1

    @property
    def is_empty(self) -> bool:
        """Whether input or weight has no element: nothing is computed."""
        return self.time == 0 or self.batch == 0 or self.in_channels == 0 or self.taps == 0

    @property
    def converts_to_fp16(self) -> bool:
        """Whether operands are cast to fp16 before the cube unit sees them."""
        return self.compute == "float16" and self.dtype != "float16"

    @property
    def problem(self) -> ConvTbcProblem:
        """What the planners see."""
        element_bytes = itemsize(self.compute)
        return ConvTbcProblem(self.time, self.batch, self.in_channels, self.out_channels, self.taps, self.pad, element_bytes)

    @cached_property
    def route(self) -> int:
        """One of the ``ROUTE_*`` codes."""
        return grad_weight_route(self.problem, self.profile.device, self.deterministic)

    @cached_property
    def input_tiling(self) -> CubeTiling:
        """Tiling of gradInput; meaningless for the matrix products."""
        return plan_grad_input(self.problem, self.profile.device)

    @cached_property
    def weight_tiling(self) -> CubeTiling:
        """Tiling of gradWeight by the model: not for the matrix products, not for the published planner."""
        return plan_grad_weight(self.problem, self.profile.device, split_reduction=not self.deterministic)

    @cached_property
    def planner_tiling(self) -> DeterministicTiling:
        """Tiling of gradWeight by the published planner."""
        return plan_grad_weight_deterministic(self.problem, self.profile.device)

    @property
    def is_split(self) -> bool:
        """Whether several cores add to one element of gradWeight atomically."""
        return self.route == ROUTE_MODEL and self.weight_tiling.sample_blocks * self.weight_tiling.time_blocks > 1


@dataclass(frozen=True)
class TailSplit:
    """Tiles of the published planner whose samples are split over cores ("stream-K"); sizes in channels.

    Which tiles are the last ones is a model: the vendor publishes iterateOrder, here read as the axis that runs fastest.
    """

    slot_samples: int
    first: int
    m_edge: int
    n_edge: int
    m_tiles: int
    n_tiles: int
    m_fastest: int


def tail_split(case: Case) -> TailSplit | None:
    """Return the tiles with private slots; None when there are none."""
    if case.route != ROUTE_PLANNER or not case.planner_tiling.stream_k:
        return None
    tiling = case.planner_tiling
    channel_block = CHANNEL_BLOCK_BYTES // case.problem.element_bytes
    rest = tiling.tiles % tiling.block_dim
    if tiling.tiles < tiling.block_dim:
        rest = tiling.tiles
    return TailSplit(
        slot_samples=ceil_div(case.batch, tiling.stream_k_cores),
        first=tiling.tiles - rest if rest else 0,
        m_edge=tiling.single_m,
        n_edge=tiling.single_n // case.taps // channel_block * channel_block,
        m_tiles=ceil_div(tiling.m, tiling.single_m),
        n_tiles=ceil_div(tiling.n, tiling.single_n),
        m_fastest=1 - tiling.iterate_order,
    )


def plan_fields(case: Case) -> dict[str, Any]:
    """Return the fields of the plan that depend on the case; no axis is empty."""
    fields = _matmul_fields(case) if case.route == ROUTE_MATMUL else _convolution_fields(case)
    return {
        **fields,
        "path": f"{PATHS[case.route]} in {COMPUTE_NAMES[case.compute]}",
        "path_reason": _reason(case),
        "decisions": decisions(case),
        "workspace": workspace(case),
        "order": _order(case),
        "caveats": caveats(case),
    }


def _reason(case: Case) -> str:
    if case.route == ROUTE_MATMUL:
        return f"pad 0 and K = T = {case.taps}: the output has length 1"
    if case.route == ROUTE_PLANNER:
        return "deterministic computation is on"
    if case.route == ROUTE_GATE_FAILED:
        return "deterministic computation is on, but its planner does not take this shape"
    kind = "one core for every gradWeight tile" if not case.is_split else "cores share gradWeight tiles"
    return f"cubeMathType {case.cube_math_type}, {kind}"


def _matmul_fields(case: Case) -> dict[str, Any]:
    return {
        "kernel": "batched matrix product",
        "block_dim": case.profile.device.cube_cores,
        "cores_note": "how the products are spread over cores is not published",
        "per_core": "",
        "tiling": {"route": ROUTE_NAMES[case.route]},
        "evidence": Evidence.UNKNOWN,
    }


def _convolution_fields(case: Case) -> dict[str, Any]:
    own = case.input_tiling
    weight: dict[str, Any]
    if case.route == ROUTE_PLANNER:
        planner = case.planner_tiling
        weight, weight_cores = vendor_fields(planner), planner.block_dim
        note, memories = _planner_note(case), planner_memories(planner, case.problem, case.profile.device)
    else:
        model = case.weight_tiling
        weight, weight_cores = model._asdict(), model.block_dim
        note, memories = _model_note(model), model_memories("gradWeight", model, case.problem, case.profile.device)
    return {
        "kernel": "gradInput and gradWeight on the cube unit, gradBias on vector cores",
        "tiling_key": case.planner_tiling.tiling_key if case.route == ROUTE_PLANNER else None,
        "block_dim": max(own.block_dim, weight_cores),
        "cores_note": f"gradInput {own.block_dim} cores, gradWeight {weight_cores}",
        "per_core": f"gradInput {_blocks_text(own)}; gradWeight {note}",
        "tiling": {"route": ROUTE_NAMES[case.route], "gradInput": own._asdict(), "gradWeight": weight},
        "cores": tuple(CoreWork(core=core, ranges=_ranges(case, core)) for core in range(max(own.block_dim, weight_cores))),
        "memories": (*model_memories("gradInput", own, case.problem, case.profile.device), *memories),
        "evidence": Evidence.MODEL,
    }


def _blocks_text(tiling: CubeTiling) -> str:
    most = tiling.blocks_per_core
    rounds = f"up to {most} of {tiling.blocks} blocks" if most > 1 else f"one of {tiling.blocks} blocks"
    return f"{rounds} of {tiling.single_m} x {tiling.single_n} (base {tiling.base_m} x {tiling.base_n} x {tiling.base_k})"


def _model_note(tiling: CubeTiling) -> str:
    parts = tiling.sample_blocks * tiling.time_blocks
    split = f"; reduction split {parts} ways ({tiling.sample_blocks} x {tiling.single_samples} samples" if parts > 1 else ""
    if parts > 1 and tiling.time_blocks > 1:
        split += f", {tiling.time_blocks} x {tiling.single_reduction} time steps"
    return _blocks_text(tiling) + (split + ")" if parts > 1 else "")


def _planner_note(case: Case) -> str:
    tiling = case.planner_tiling
    text = f"{tiling.tiles} tiles of {tiling.single_m} x {tiling.single_n} (base {tiling.base_m} x {tiling.base_n} x {tiling.base_k})"
    tail = tail_split(case)
    if tail is None:
        return text
    return f"{text}; the last {tiling.tiles - tail.first} with their samples split over {tiling.stream_k_cores} cores"


def _ranges(case: Case, core: int) -> dict[str, tuple[int, int]]:
    """Return what a core computes; where it has several blocks, ranges are those of its first and ``blocks`` counts them."""
    work: dict[str, tuple[int, int]] = {}
    if core < case.input_tiling.block_dim:
        work |= _block_ranges("gradInput", case.input_tiling, core, ("time", "channels", "samples"))
    if case.route == ROUTE_PLANNER:
        return work | _planner_ranges(case, core)
    if core < case.weight_tiling.block_dim:
        work |= _block_ranges("gradWeight", case.weight_tiling, core, ("output channels", "columns", "samples"))
        first = block_range(case.weight_tiling, core)
        work["gradWeight time"] = (first.reduction_start, min(first.reduction_stop, output_time(case.problem)))
    return work


def _block_ranges(phase: str, tiling: CubeTiling, core: int, names: tuple[str, str, str]) -> dict[str, tuple[int, int]]:
    first, m_name, n_name, sample_name = block_range(tiling, core), *names
    return {
        f"{phase} blocks": (0, ceil_div(tiling.blocks - core, tiling.block_dim)),
        f"{phase} {m_name}": (first.m_start, first.m_stop),
        f"{phase} {n_name}": (first.n_start, first.n_stop),
        f"{phase} {sample_name}": (first.sample_start, first.sample_stop),
    }


def _planner_ranges(case: Case, core: int) -> dict[str, tuple[int, int]]:
    tiling, tail = case.planner_tiling, tail_split(case)
    whole = tiling.tiles if tail is None else tail.first
    work: dict[str, tuple[int, int]] = {}
    if core < tiling.block_dim and core < whole:
        work["gradWeight tiles"] = (0, ceil_div(whole - core, tiling.block_dim))
    if tail is not None and core < (tiling.tiles - tail.first) * tiling.stream_k_cores:
        tile, slot = tail.first + core // tiling.stream_k_cores, core % tiling.stream_k_cores
        start = min(slot * tail.slot_samples, case.batch)
        work["gradWeight tail tile"] = (tile, tile + 1)
        work["gradWeight tail samples"] = (start, min(start + tail.slot_samples, case.batch))
    return work


def _order(case: Case) -> tuple[OutputOrder, ...]:
    return (
        OutputOrder(output="grad_input", deterministic=True, reason="one accumulator for every element, no split across cores"),
        OutputOrder(output="grad_weight", deterministic=not case.is_split, reason=_weight_order(case)),
        OutputOrder(output="grad_bias", deterministic=True, reason="fp32 sum of self in a fixed order, rounded once"),
    )


def _weight_order(case: Case) -> str:
    if case.route == ROUTE_MATMUL:
        return "one matrix product, summed over the batch"
    if case.is_split:
        parts = case.weight_tiling.sample_blocks * case.weight_tiling.time_blocks
        return f"{parts} cores share every tile and add their partial sums atomically; fixed with --deterministic"
    if case.route == ROUTE_PLANNER and case.planner_tiling.stream_k:
        return "sample after sample; split tiles go to private slots, added in slot order"
    return "every tile is summed sample after sample by one core"
