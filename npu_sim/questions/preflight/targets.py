"""Columns of a preflight: products, SoCs and releases that calls are checked on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npu_sim.cores import Profile, load_profile
from npu_sim.questions.varied_calls import chosen_profiles, items_of, require_devices
from npu_sim.releases import default_release

Names = str | Sequence[str] | None


@dataclass(frozen=True)
class Column:
    """One column of the matrix."""

    profile: Profile
    """Product, SoC and release."""
    label: str
    """Distinct name: the product, with SoC and release where there are several."""


def chosen_columns(
    products: Names = None, socs: Names = None, releases: Names = None
) -> tuple[Column, ...]:
    """Return the columns of the chosen products, SoCs and releases.

    - ``products``: names or product files separated by commas, or ``all``; None for those of the
      SoCs.
    - ``socs``: SoCs separated by commas, which imply their products, or ``all``; None for default
      SoCs.
    - ``releases``: releases separated by commas; None for the newest.

    Raises UsageError for an unknown product, SoC or release.
    """
    profiles = _profiles(products, socs)
    wanted: Sequence[str | None] = items_of(releases) if releases else [None]
    profiles = require_devices(
        list(
            {
                (changed.name, changed.soc, changed.release): changed
                for base in profiles
                for changed in map(base.with_release, wanted)
            }.values()
        )
    )
    return tuple(Column(profile, _label(profile, profiles)) for profile in profiles)


def _profiles(products: Names, socs: Names) -> list[Profile]:
    if products is None and socs not in (None, "all"):
        return [load_profile(None, soc) for soc in items_of(socs)]
    return chosen_profiles(products, socs, every_soc=False)


def _label(profile: Profile, profiles: Sequence[Profile]) -> str:
    parts = [profile.name]
    if len({other.soc for other in profiles if other.name == profile.name}) > 1:
        parts = [profile.soc]
    if len({other.release for other in profiles}) > 1:
        parts.append(profile.release)
    return " ".join(parts)


def profile_of_line(values: Mapping[str, Any], default: str, directory: Path | None) -> Profile:
    """Return the profile named by a line, or the default one.

    Raises UsageError for an unknown product, SoC or release.
    """
    product, soc, release = values.get("product"), values.get("soc"), values.get("release")
    if product is None and soc is not None:
        return load_profile(None, soc, release)
    name = product or default
    if directory is not None and name.endswith((".yaml", ".yml")) and not Path(name).is_absolute():
        name = str(directory / name)
    return load_profile(name, soc, release)


def column_of_line(profile: Profile, columns: Sequence[Column]) -> Column:
    """Return the column of a line that names its product: a chosen one, or a new one."""
    for column in columns:
        if column.profile == profile:
            return column
    label = (
        profile.name
        if profile.soc == profile.product.default_soc
        else f"{profile.name} {profile.soc}"
    )
    return Column(
        profile, label if profile.release == default_release() else f"{label} {profile.release}"
    )


def is_named(values: Mapping[str, Any]) -> bool:
    """Return whether a line names its product or SoC."""
    return values.get("product") is not None or values.get("soc") is not None
