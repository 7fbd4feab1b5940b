"""What calls are checked for: products, their SoCs, and releases of their software."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npu_sim.cores import Profile, load_profile, profile_of_soc
from npu_sim.questions.varied_calls import chosen_profiles
from npu_sim.releases import default_release
from npu_sim.status import INVALID, AclnnError


@dataclass(frozen=True)
class Target:
    """One column of the matrix.

    Attributes
    ----------
    profile
        Product, SoC and release.
    label
        What tells it from the others: the product, and where several of one are asked for, SoC and release.
    """

    profile: Profile
    label: str


def chosen_targets(products: str = "atlas_a2", socs: str | None = None, releases: str | None = None) -> tuple[Target, ...]:
    """Return what was asked for.

    Parameters
    ----------
    products
        Names or profile files with commas between them, or ``all``.
    socs
        SoCs, with commas, which imply their products; ``all`` for every one; the default SoC of every product when None.
    releases
        Releases, with commas; the newest when None.

    Raises
    ------
    AclnnError
        161002 for an unknown product, SoC or release.
    """
    profiles = _profiles(products, socs)
    wanted: Sequence[str | None] = [one.strip() for one in releases.split(",") if one.strip()] if releases else [None]
    profiles = list({(one.name, one.soc, one.release): one for base in profiles for one in map(base.with_release, wanted)}.values())
    if not profiles:
        raise AclnnError(INVALID, "products", f"products = {products!r} names no product", "for example --products all")
    return tuple(Target(profile, _label(profile, profiles)) for profile in profiles)


def _profiles(products: str, socs: str | None) -> list[Profile]:
    if socs == "all":
        return chosen_profiles(products)
    if socs is not None:
        return [profile_of_soc(soc.strip()) for soc in socs.split(",") if soc.strip()]
    return [profile for profile in chosen_profiles(products) if profile.soc == profile.product.default_soc]


def _label(profile: Profile, profiles: Sequence[Profile]) -> str:
    parts = [profile.name]
    if len({one.soc for one in profiles if one.name == profile.name}) > 1:
        parts = [profile.soc]
    if len({one.release for one in profiles}) > 1:
        parts.append(profile.release)
    return " ".join(parts)


def profile_of_line(values: Mapping[str, Any], default: str, directory: Path | None) -> Profile:
    """Return the profile that a line names, or the default product's.

    Raises
    ------
    AclnnError
        161002 for an unknown product, SoC or release.
    """
    product, soc, release = values.get("product"), values.get("soc"), values.get("release")
    if product is None and soc is not None:
        return profile_of_soc(soc, release)
    name = product or default
    if directory is not None and name.endswith((".yaml", ".yml")) and not Path(name).is_absolute():
        name = str(directory / name)
    return load_profile(name, soc, release)


def own_target(profile: Profile, targets: Sequence[Target]) -> Target:
    """Return the target of a line that names it: one of those that were asked for, or one of its own."""
    for target in targets:
        if target.profile == profile:
            return target
    label = profile.name if profile.soc == profile.product.default_soc else f"{profile.name} {profile.soc}"
    return Target(profile, label if profile.release == default_release() else f"{label} {profile.release}")


def is_named(values: Mapping[str, Any]) -> bool:
    """Whether a line says itself what it is for."""
    return values.get("product") is not None or values.get("soc") is not None
