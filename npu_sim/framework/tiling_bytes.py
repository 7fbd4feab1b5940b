"""The tiling structure of a plan as the bytes that its kernel receives."""

from npu_sim.plans.model import Plan
from npu_sim.registry import family_of
from npu_sim.status import NotModelledError
from npu_sim.tiling.structures import find_structure, pack


def tiling_bytes(plan: Plan) -> bytes:
    """Return the bytes of the tiling structure of a plan at its release.

    Raises UsageError when the plan has no tiling, or not every field of the structure.
    """
    found = find_structure(plan.kernel)
    if found is None or not plan.tiling or family_of(plan.npu_arch):
        raise NotModelledError(
            "tiling_bytes",
            "tiling_bytes: the tiling structure of {kernel} on {product} is not known",
            "leave --tiling-bytes out",
            kernel=plan.kernel or plan.path,
            product=plan.product_title,
        )
    return pack(found.kernel, plan.tiling, plan.release)
