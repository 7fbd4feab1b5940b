"""Plan of ApplyAdamWV2 on Ascend 950.

Source: specification page ``apply_adam_w_v2_950``.
"""

from collections.abc import Iterator

from npu_sim.framework.vocabulary import (
    Case,
    Caveat,
    Description,
    Text,
    caveat,
    core_ranges,
    counted,
)
from npu_sim.operators.apply_adam_w_v2.plan import caveats, description
from npu_sim.tiling.ascend_950 import apply_adam_w_v2 as tiler


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    tiling = case.tiling
    parts = core_ranges(tiler.range_of_core, tiling)
    return description(
        case,
        path_reason=Text("tiles of {elements}", elements=counted(tiling.tile_elements, "element")),
        buffers={"pool": tiler.pool_bytes(case.row, tiling)},
        ranges=[(part.start, part.stop) for part in parts],
        unit="element",
        fields=tiler.vendor_structure(tiling, case.arguments, case.rules),
        caveats=(*caveats(case), *_idle_cores(case)),
    )


def _idle_cores(case: Case) -> Iterator[Caveat]:
    used, cores = case.tiling.block_dim, case.device.vector_cores
    if used < cores:
        step = tiler.CORE_STEP * cores
        yield caveat(
            "cores_idle",
            "var",
            "{used} of {cores} cores work; {elements} elements use all of them, as the elements "
            "of a core are a multiple of {step}",
            used=used,
            cores=cores,
            elements=max(
                tiler.elements_for_all(case.row, cores), -(-case.row.elements // step) * step
            ),
            step=tiler.CORE_STEP,
        )
