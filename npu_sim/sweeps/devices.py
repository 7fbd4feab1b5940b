"""The devices of a sweep: products, SoCs and releases, its slowest axis."""

from collections.abc import Sequence
from typing import Any

from npu_sim.cores import Profile, with_socs
from npu_sim.questions.varied_calls import items_of, product_names, told_apart
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
    return tuple(
        profile.with_release(release) for profile in _socs(products, socs) for release in names
    )


def _socs(products: Any, socs: Any) -> tuple[Profile, ...]:
    wanted = None if socs is None else items_of(socs)
    implied = None if wanted in (None, ["all"]) else "all"
    names = product_names(implied if products is None else products)
    if wanted is None:
        return tuple(told_apart(names, every_soc=False))
    found = told_apart(names)
    return tuple(found if wanted == ["all"] else with_socs(found, wanted))


def places_of(profiles: Sequence[Profile]) -> dict[str, tuple[tuple[str, ...], tuple[int, ...]]]:
    """Return what tells devices apart, by column: its words, and for every device the position of its word."""
    names = {
        "product": [profile.name for profile in profiles],
        "soc": [profile.soc for profile in profiles],
        "release": [profile.release for profile in profiles],
    }
    words = {place: tuple(dict.fromkeys(given)) for place, given in names.items()}
    return {
        place: (words[place], tuple(map(words[place].index, given)))
        for place, given in names.items()
    }


def device_name(profile: Profile) -> str:
    """Return a device as a sweep's own record names it."""
    return f"{profile.name}/{profile.soc}{release_words(profile.release)}"
