"""The devices of a question: products, SoCs and releases by their names, and those that plan alike."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from npu_sim.cores import DEFAULT_PRODUCT, Profile, all_socs, shipped_products, with_socs
from npu_sim.releases import chosen_releases


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
    UsageError
        For an unknown product, SoC or release.
    """
    profiles = [profile for name in product_names("all" if products is None else products) for profile in all_socs(name)]
    kept = with_socs(profiles, _names(socs)) if socs not in (None, "all") else profiles
    return [profile.with_release(release) for profile in kept for release in chosen_releases(releases)]


def device_groups(
    products: str | Path | Sequence[str | Path] | None, socs: str | Sequence[str] | None = None, release: str | None = None
) -> list[tuple[Profile, tuple[str, ...]]]:
    """Return one profile for all SoCs of a product that have the same cores and buffers, with their names; all at one release."""
    groups: dict[tuple[Any, ...], list[Profile]] = {}
    for profile in chosen_profiles(products, socs, release):
        groups.setdefault((profile.name, profile.device), []).append(profile)
    return [(group[0], tuple(profile.soc for profile in group)) for group in groups.values()]


def product_names(given: str | Path | Sequence[str | Path] | None) -> list[str]:
    """Return the products that are meant: ``"all"`` shipped ones, names, a text with commas between them; the default when None."""
    if given == "all":
        return list(shipped_products())
    return [DEFAULT_PRODUCT] if given is None else _names(given)


def _names(given: Any) -> list[str]:
    if isinstance(given, str | Path):
        return [name.strip() for name in str(given).split(",") if name.strip()]
    return [str(name) for name in given]
