"""The devices of a question: products, SoCs and releases by their names, and those that plan alike."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from npu_sim.cores import Profile, load_profile, shipped_products
from npu_sim.releases import chosen_releases
from npu_sim.status import INVALID, AclnnError


def chosen_profiles(
    products: str | Path | Sequence[str | Path] | None,
    socs: str | Sequence[str] | None = None,
    releases: str | Sequence[str] | None = None,
) -> list[Profile]:
    """Return every SoC of the chosen products, each at every chosen release.

    Parameters
    ----------
    products
        Names or YAML files, a text with commas between them, ``"all"`` or None for all shipped ones.
    socs
        Names of SoCs to keep; None keeps all.
    releases
        Names, a text with commas between them, ``"all"``, or None for the newest.

    Raises
    ------
    AclnnError
        161002 for an unknown product, SoC or release.
    """
    names = list(shipped_products()) if products in (None, "all") else _names(products)
    profiles = [profile.with_soc(soc) for profile in map(load_profile, names) for soc in profile.product.socs]
    wanted = _names(socs) if socs not in (None, "all") else [profile.soc for profile in profiles]
    for soc in wanted:
        if all(profile.soc != soc for profile in profiles):
            raise AclnnError(INVALID, "soc", f"soc = {soc!r}: not among the chosen products", f"SoCs: {', '.join(p.soc for p in profiles)}")
    kept = [profile for profile in profiles if profile.soc in wanted]
    return [profile.with_release(release) for profile in kept for release in chosen_releases(releases)]


def device_groups(
    products: str | Path | Sequence[str | Path] | None, socs: str | Sequence[str] | None = None, release: str | None = None
) -> list[tuple[Profile, tuple[str, ...]]]:
    """Return one profile for all SoCs of a product that have the same cores and buffers, with their names; all at one release."""
    groups: dict[tuple[Any, ...], list[Profile]] = {}
    for profile in chosen_profiles(products, socs, release):
        groups.setdefault((profile.name, profile.device), []).append(profile)
    return [(group[0], tuple(profile.soc for profile in group)) for group in groups.values()]


def _names(given: Any) -> list[str]:
    if isinstance(given, str | Path):
        return [name.strip() for name in str(given).split(",") if name.strip()]
    return [str(name) for name in given]
