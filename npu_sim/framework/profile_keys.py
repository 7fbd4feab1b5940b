"""Keys of a profile of one's own that change nothing: found by planning the call with each of them at the shipped product's value."""

from collections.abc import Iterator

from npu_sim.cores import Device, Profile, load_profile
from npu_sim.framework.case import Case
from npu_sim.plans.profile_keys import ProfileKey
from npu_sim.product import Chip
from npu_sim.status import AclnnError, UsageError

PRODUCT_KEYS = ("ub_reserved_bytes", "system_workspace_bytes")
CORE_COUNTS = ("ai_core_count", "cube_core_count", "vector_core_count")
CHIP_KEYS = (*(name for name in Chip.model_fields if name in Device._fields), *CORE_COUNTS)
"""What planners get of a profile; clock and rates belong to timelines."""


def keys_without_effect(case: Case) -> tuple[ProfileKey, ...]:
    """Return the keys in which a profile differs from the shipped one of the same SoC and that change nothing in the tiling of a call."""
    own = case.profile
    if case.empty:
        return ()
    try:
        shipped = load_profile(soc=own.soc, release=own.release)
    except UsageError:
        return ()  # a SoC of one's own: there is nothing to compare with
    return () if own.product is shipped.product else tuple(_without_effect(case, shipped))


def _without_effect(case: Case, shipped: Profile) -> Iterator[ProfileKey]:
    assumed = {one.key: one for one in case.operator.assumed}
    for key, value, before, other in _differing(case.profile, shipped):
        if not _same_tiling(case, other):
            continue
        known = assumed.get(key)
        asked = known.if_asked(case) if known is not None and known.if_asked is not None else ""
        yield ProfileKey(
            key=key,
            value=value,
            shipped=before,
            product=shipped.name,
            assumed=known.value if known is not None else None,
            source=known.source if known is not None else "",
            if_asked=asked,
        )


def _differing(own: Profile, shipped: Profile) -> Iterator[tuple[str, int, int, Profile]]:
    """Yield every key whose value is another: its value, the shipped one, and the profile with that."""
    product = own.product
    for key in CHIP_KEYS:
        value, before = getattr(own.chip, key), getattr(shipped.chip, key)
        if value != before and value is not None and before is not None:
            socs = {**product.socs, own.soc: own.chip.model_copy(update={key: before})}
            yield (
                key,
                value,
                before,
                own.model_copy(update={"product": product.model_copy(update={"socs": socs})}),
            )
    for key in PRODUCT_KEYS:
        value, before = getattr(product, key), getattr(shipped.product, key)
        if value != before:
            yield (
                key,
                value,
                before,
                own.model_copy(update={"product": product.model_copy(update={key: before})}),
            )


def _same_tiling(case: Case, other: Profile) -> bool:
    """Whether a call is tiled the same on another profile."""
    try:
        changed = case.operator.checked(case.arguments, other, case.deterministic, case.limits)
    except AclnnError:
        return False
    return bool(changed.tiling == case.tiling)
