"""The devices of a sweep: products, SoCs and releases, its slowest axis."""

from collections.abc import Sequence
from typing import Any

from npu_sim.cores import DEFAULT_PRODUCT, Profile, all_socs, load_profile, shipped_products, with_socs
from npu_sim.questions.varied_calls import items_of
from npu_sim.releases import chosen_releases, release_words


def chosen_devices(products: Any, socs: Any, releases: Any) -> tuple[Profile, ...]:
    """Choose the devices of a sweep: products, SoCs and releases are ``all`` or names; a product without a named SoC takes its default.

    Releases vary fastest.

    Raises
    ------
    UsageError
        For an unknown product, SoC or release.
    """
    names = chosen_releases(None if releases is None else items_of(releases))
    return tuple(profile.with_release(release) for profile in _socs(products, socs) for release in names)


def _socs(products: Any, socs: Any) -> tuple[Profile, ...]:
    names = (
        items_of(products)
        if products is not None
        else [DEFAULT_PRODUCT]
        if socs is None or items_of(socs) == ["all"]
        else list(shipped_products())
    )
    if names == ["all"]:
        names = list(shipped_products())
    if socs is None:
        return tuple(map(load_profile, names))
    found = [profile for name in names for profile in all_socs(name)]
    wanted = items_of(socs)
    return tuple(found if wanted == ["all"] else with_socs(found, wanted))


def places_of(profiles: Sequence[Profile]) -> dict[str, tuple[tuple[str, ...], tuple[int, ...]]]:
    """Return what tells devices apart, by column: its words, and for every device the position of its word."""
    names = {
        "product": [profile.name for profile in profiles],
        "soc": [profile.soc for profile in profiles],
        "release": [profile.release for profile in profiles],
    }
    words = {place: tuple(dict.fromkeys(given)) for place, given in names.items()}
    return {place: (words[place], tuple(map(words[place].index, given))) for place, given in names.items()}


def device_name(profile: Profile) -> str:
    """Return a device as a sweep's own record names it."""
    return f"{profile.name}/{profile.soc}{release_words(profile.release)}"
