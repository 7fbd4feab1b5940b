"""Releases of the product's software, which a call selects independently of the chip.

Differences between releases are data in ``configs/releases.yaml``: a switch of an operator has an
integer value since a release, with its source. Planners and kernels take these integers
(:func:`release_switches`), never the name of the release.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from npu_sim.language import Text
from npu_sim.status import UsageError, closest, shown

RELEASES_FILE = "releases.yaml"
"""Name of the file among the profiles."""


class ReleaseFacts(BaseModel):
    """Sources of a release."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stands_for: str
    """The published tags and sources that it represents."""
    evidence: str
    """Kind of evidence."""


class ReleaseSwitch(BaseModel):
    """One fact of an operator that depends on the release."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    help: str
    """Description."""
    source: str
    """Origin of the values."""
    since: Annotated[dict[str, int], Field(min_length=1)]
    """Its value by the first release that has it."""
    bits: str = ""
    """The part of a result that it changes; empty when it changes no bit."""
    keys: tuple[int, ...] = ()
    """Tiling keys whose results it changes; when empty, those of calls with different plans."""
    decision: str = ""
    """Decision of the plan that shows the difference; when empty, path or tiling key do."""


class ReleaseTable(BaseModel):
    """Contents of ``configs/releases.yaml``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    default: str
    """Default release."""
    releases: Annotated[dict[str, ReleaseFacts], Field(min_length=1)]
    """Releases, the oldest first."""
    assumed: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Assumptions of plans without a published source, by operator and release."""
    switches: dict[str, dict[str, ReleaseSwitch]]
    """Switches by operator and name."""

    @model_validator(mode="after")
    def _consistent(self) -> "ReleaseTable":
        names = list(self.releases)
        if self.default not in names:
            raise ValueError(
                Text(
                    "default: {default} is not among releases: {names}",
                    default=repr(self.default),
                    names=", ".join(names),
                )
            )
        for operator, assumptions in self.assumed.items():
            if unknown := [release for release in assumptions if release not in names]:
                given, known = ", ".join(unknown), ", ".join(names)
                raise ValueError(
                    Text(
                        "assumed.{operator}: {unknown} is not among releases: {names}",
                        operator=operator,
                        unknown=given,
                        names=known,
                    )
                )
        for operator, switches in self.switches.items():
            for name, switch in switches.items():
                unknown = [release for release in switch.since if release not in names]
                if unknown or names[0] not in switch.since:
                    wanted = Text(
                        "values since {names} and other releases: {other_names}",
                        names=names[0],
                        other_names=", ".join(names),
                    )
                    given = ", ".join(switch.since)
                    raise ValueError(
                        Text(
                            "switches.{operator}.{name}.since: {since}; {wanted}",
                            operator=operator,
                            name=name,
                            since=given,
                            wanted=wanted,
                        )
                    )
        return self

    def changed(self, before: str, after: str, operator: str) -> tuple[ReleaseSwitch, ...]:
        """Return the switches of an operator that differ between two releases."""
        old, new = self.values(before, operator), self.values(after, operator)
        return tuple(
            switch
            for name, switch in self.switches.get(operator, {}).items()
            if old[name] != new[name]
        )

    def values(self, release: str, operator: str) -> dict[str, int]:
        """Return the switches of an operator at a release."""
        names = list(self.releases)
        earlier = names[names.index(release) :: -1]  # the newest first
        return {
            name: next(switch.since[known] for known in earlier if known in switch.since)
            for name, switch in self.switches.get(operator, {}).items()
        }


def config_directory() -> Path:
    """Return the folder of the profiles and releases that ship with the package."""
    installed = Path(__file__).parent / "configs"
    return installed if installed.is_dir() else Path(__file__).parent.parent / "configs"


@cache
def release_table() -> ReleaseTable:
    """Return the releases that ship with the package."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return ReleaseTable.model_validate(
        yaml.load((config_directory() / RELEASES_FILE).read_text(encoding="utf-8"), loader)
    )


@cache
def release_names() -> tuple[str, ...]:
    """Return the names of the releases, the oldest first."""
    return tuple(release_table().releases)


def default_release() -> str:
    """Return the default release."""
    return release_table().default


def require_release(release: str | float) -> str:
    """Return the name of a release, which may be given as a number.

    Raises UsageError when there is no such release; the hint lists them.
    """
    name = str(release) if isinstance(release, float) else release
    if not isinstance(name, str) or name not in release_names():
        major = name[:1] if isinstance(name, str) else None
        same_major = [known for known in reversed(release_names()) if known[0] == major]
        near: Any = name
        with suppress(TypeError, ValueError):  # such as 8.x, or another major number
            near = min(same_major, key=lambda known: round(abs(float(known) - float(name)), 6))
        raise UsageError(
            "release",
            Text(
                "release = {release}: no such release of the product's software",
                release=shown(release),
            ),
            Text(
                "releases: {release_names}{hint}",
                release_names=", ".join(release_names()),
                hint=closest(near, same_major),
            ),
        )
    return name


def is_older(release: str, oldest: str) -> bool:
    """Return whether a release is older than another; False when there is no other."""
    names = release_names()
    return bool(oldest) and names.index(release) < names.index(oldest)


def chosen_releases(given: Sequence[Any] | None) -> tuple[str, ...]:
    """Return the releases of some names: all for ``["all"]``, the default for None.

    Raises UsageError when there is no such release.
    """
    if given is None:
        return (default_release(),)
    if list(given) == ["all"]:
        return release_names()
    return tuple(dict.fromkeys(map(require_release, given)))


def release_suffix(release: str) -> str:
    """Return ``", release X"`` for display after a chip, or nothing for the default release."""
    return "" if release == default_release() else Text(", release {release}", release=release)


@cache
def release_switches(release: str, operator: str) -> dict[str, int]:
    """Return the integer switches of an operator at a release; treat the dict as read-only."""
    return release_table().values(release, operator)


def release_assumption(release: str, operator: str) -> str:
    """Return the assumption of an operator's plans at a release, or an empty string."""
    return release_table().assumed.get(operator, {}).get(release, "")
