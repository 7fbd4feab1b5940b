"""Cost of deterministic computation: launches, workspace and bound of a call in both modes."""

from collections import Counter

from npu_sim.plans.model import Plan
from npu_sim.timelines.model import ModePrice, Timeline


def mode_prices(
    modes: tuple[tuple[Plan, Timeline], tuple[Plan, Timeline]],
) -> tuple[ModePrice, ...]:
    """Return launches, workspace and bound of a call in both modes, the default mode first.

    A mode has no bound if it launches kernels that the other mode does not and of which only the
    traffic is known. Its bound would lack their computation and make the mode look fast.

    - ``modes``: the plan and the timeline in both modes.
    """
    launched = [Counter(launch.kernel for launch in plan.launches) for plan, _ in modes]
    prices = []
    for (plan, timeline), times, others in zip(modes, launched, reversed(launched), strict=True):
        planned = {launch.kernel for launch in timeline.launches if launch.planned}
        unbounded = tuple(sorted((times - others).keys() - planned))
        prices.append(
            ModePrice(
                deterministic=plan.deterministic,
                launches=len(plan.launches),
                workspace_bytes=plan.workspace.total_bytes,
                workspace_unknown=tuple(part.name for part in plan.workspace.unknown),
                bound_us=None if unbounded else timeline.bound_us,
                unbounded=unbounded,
            )
        )
    return tuple(sorted(prices, key=lambda price: price.deterministic))
