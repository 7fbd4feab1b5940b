"""Hardware profiles and releases: products, their SoCs, and the integers that planners take.

A profile file (``configs/*.yaml``, or a user's own in the same format) describes one product: the
facts of all its SoCs, the SoCs with their differences, and the limits that the product
documents state. :mod:`npu_sim.product` has the schema. Facts come from the vendor's public platform
configuration files; the usable Unified Buffer and the system workspace follow the vendor's
programming documents.

A call selects the release of the product's software independently of the chip. Differences between
releases are data in ``configs/releases.yaml``: a switch of an operator has an integer value since a
release, with its source. Planners and kernels take these integers (:func:`release_switches`), never
the name of the release.
"""

import re
from collections import namedtuple
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import yaml
from pydantic import Field, ValidationError, model_validator

from npu_sim.files.reading import YamlDocument, read_yaml
from npu_sim.language import Text, Verbatim
from npu_sim.product import Chip, DocumentedLimits, Facts, Product, ProductNames, near_soc
from npu_sim.registry import family_of
from npu_sim.status import UsageError, shown, tip

RELEASES_FILE = "releases.yaml"
"""Name of the file among the profiles."""


class ReleaseFacts(Facts):
    """Sources of a release."""

    stands_for: str
    """The published tags and sources that it represents."""
    evidence: str
    """Kind of evidence."""
    also: tuple[str, ...] = ()
    """Versions of the toolkit that it represents although their numbers are those of another."""


class ReleaseSwitch(Facts):
    """One fact of an operator that depends on the release."""

    help: str
    """Description."""
    source: str
    """Origin of the values."""
    since: Annotated[dict[str, int], Field(min_length=1)]
    """Its value by the first release that has it."""
    bits: str = ""
    """The part of a result that it changes; empty when it changes no bit."""
    architectures: tuple[int, ...] = ()
    """Architectures (``npu_arch``) on which it changes anything; empty for all."""
    keys: tuple[int, ...] = ()
    """Tiling keys whose results it changes."""
    caveats: tuple[str, ...] = ()
    """Caveats of wrong results: it changes the bits of calls that one of them concerns at one of
    the two releases only."""
    decision: str = ""
    """Decision of the plan that shows the difference. Without keys, caveats and decision, path or
    tiling key do."""

    def acts_on(self, architecture: int) -> bool:
        """Return whether it changes anything on an architecture."""
        return not self.architectures or architecture in self.architectures


class ReleaseTable(Facts):
    """Contents of ``configs/releases.yaml``."""

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

    def changed(
        self, before: str, after: str, operator: str, architecture: int
    ) -> tuple[ReleaseSwitch, ...]:
        """Return the switches of an operator that differ between two releases of a product."""
        old, new = (self.values(name, operator, architecture) for name in (before, after))
        return tuple(
            switch
            for name, switch in self.switches.get(operator, {}).items()
            if old[name] != new[name]
        )

    def values(self, release: str, operator: str, architecture: int) -> dict[str, int]:
        """Return the switches of an operator at a release.

        One that changes nothing on the architecture keeps its value of the default release, so that
        releases which do not differ there are equal.
        """
        names = list(self.releases)
        found = {}
        for name, switch in self.switches.get(operator, {}).items():
            at = release if switch.acts_on(architecture) else self.default
            earlier = names[names.index(at) :: -1]  # the newest first
            found[name] = next(switch.since[known] for known in earlier if known in switch.since)
        return found


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


TOOLKIT_VERSION = re.compile(
    r"(?:cann[ _-]{0,3})?v?(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)"
    r"(?:[.-]?(?:rc|alpha|beta|pre|t)[.\d]{0,9}){0,3}",
    re.IGNORECASE,
)
"""A version as a toolkit states it: ``9.1.1``, ``8.3.RC1``, ``V9.1.0``, ``CANN 8.5.0``."""


def require_release(release: str | float) -> str:
    """Return the name of a release, which may be given as a number or as a toolkit states it.

    A version of the toolkit is the newest known release of its first two numbers that is not
    newer: ``8.5`` for ``CANN 8.5.1``, ``9.1.1`` for ``9.1.2``.

    Raises UsageError when there is no such release; the hint lists them.
    """
    name = str(release) if isinstance(release, float) else release
    if isinstance(name, str) and name in release_names():
        return name
    version = _toolkit_version(name) if isinstance(name, str) else ""
    known = version and _release_of(version)
    if not known:
        raise _unknown_release(name, version)
    return known


def _unknown_release(name: Any, version: str) -> UsageError:
    """Return the error for a name that is no release; ``version`` is that of the toolkit in it."""
    names = release_names()
    given, known = shown(name), ", ".join(names)
    if version and version == ".".join(map(str, _numbers(version))):  # not 9.04
        if _numbers(version) > _numbers(names[-1]):
            return UsageError(
                "release",
                "release = {release} is newer than every release that npu_sim knows",
                "{newest} is the newest, what later ones change is not known; releases: "
                "{release_names}",
                newest=names[-1],
                release=given,
                release_names=known,
            )
        if _numbers(version) < _numbers(names[0]):
            return UsageError(
                "release",
                "release = {release} is older than every release that npu_sim knows",
                "{oldest} is the oldest, whether its rules held before is not known; releases: "
                "{release_names}",
                oldest=names[0],
                release=given,
                release_names=known,
            )
    same_major = [one for one in reversed(names) if version and one[0] == version[0]]
    near: Any = name
    if same_major:
        near = min(same_major, key=lambda one: round(abs(_number(one) - _number(version)), 6))
    return UsageError(
        "release",
        "release = {release}: no such release of the product's software",
        "{tip}releases: {release_names}",
        tip=tip(near, same_major),
        release=given,
        release_names=known,
    )


def _toolkit_version(text: str) -> str:
    """Return the version as a toolkit writes it, in lower case; empty for another text."""
    stated = text.strip()
    match = TOOLKIT_VERSION.fullmatch(stated)
    if match is None:
        return ""
    whole = stated[match.start(1) :].lower()
    special = (one for facts in release_table().releases.values() for one in facts.also)
    return whole if whole in special else match[1]


def _release_of(version: str) -> str:
    """Return the newest release of the same first two numbers that is not newer; or nothing."""
    for name, facts in release_table().releases.items():
        if version in facts.also:
            return name
    numbers = _numbers(version)
    older = [
        name
        for name in release_names()
        if _numbers(name)[:2] == numbers[:2] and _numbers(name) <= numbers
    ]
    return older[-1] if older else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _number(version: str) -> float:
    return float(".".join(version.split(".")[:2]))


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
def release_switches(release: str, operator: str, architecture: int) -> dict[str, int]:
    """Return the integer switches of an operator at a release; treat the dict as read-only."""
    return release_table().values(release, operator, architecture)


@cache
def release_rules(release: str, operator: str, architecture: int) -> Any:
    """Return the switches of an operator at a release as planners take them, a NamedTuple."""
    switches = release_switches(release, operator, architecture)
    return namedtuple("Rules", switches)(**switches)


def release_assumption(release: str, operator: str) -> str:
    """Return the assumption of an operator's plans at a release, or an empty string."""
    return release_table().assumed.get(operator, {}).get(release, "")


NPU_ARCH_ATLAS_TRAIN = 1001
NPU_ARCH_ATLAS_INFERENCE = 2002
NPU_ARCH_A2_A3 = 2201

DEFAULT_PRODUCT = "atlas_a2"
"""Product of a call that names neither product nor SoC."""


class Device(NamedTuple):
    """Integers of a SoC that tiling planners take.

    Attributes
    ----------
    npu_arch
        Architecture number: 2201 Atlas A2 and A3, 1001 Atlas training series, 2002 Atlas inference
        series, 3510 Ascend 950 and 350.
    vector_cores
        Cores that run a vector operator: vector cores on split chips, AI cores on fused ones.
    cube_cores
        Cores that run a cube operator.
    ub_bytes
        Unified Buffer of one core that a planner may use: the physical size minus the reserve.
    l1_bytes, l0a_bytes, l0b_bytes, l0c_bytes
        On-chip buffers of one cube core.
    system_workspace_bytes
        Workspace that the runtime reserves in every Ascend C kernel.
    """

    npu_arch: int
    vector_cores: int
    cube_cores: int
    ub_bytes: int
    l1_bytes: int
    l0a_bytes: int
    l0b_bytes: int
    l0c_bytes: int
    system_workspace_bytes: int


class Profile(Facts):
    """Simulated device: a product, one of its SoCs, and the release of its software."""

    product: Product
    soc: str
    release: str = Field(default_factory=default_release)

    def __repr__(self) -> str:
        return f"Profile({self.name!r}, soc={self.soc!r}, release={self.release!r})"

    def __str__(self) -> str:
        return self.title

    @property
    def name(self) -> str:
        """Name of the product, a value of ``--product``."""
        return self.product.name

    @property
    def title(self) -> str:
        """Display name of product and SoC, and of the release where it is not the default."""
        return f"{self.product.title}, {self.soc}{release_suffix(self.release)}"

    @property
    def chip(self) -> Chip:
        """Facts of the chosen SoC."""
        return self.product.socs[self.soc]

    def documented_limits(self, operator: str) -> DocumentedLimits:
        """Return the limits that the product documents state for an operator; may be empty."""
        return self.product.documented_limits.get(operator, {})

    def release_switches(self, operator: str) -> dict[str, int]:
        """Return the integer switches of the release for an operator; may be empty."""
        return release_switches(self.release, operator, self.npu_arch)

    @property
    def npu_arch(self) -> int:
        """Architecture number of the chosen SoC."""
        return self.chip.npu_arch

    @property
    def family(self) -> str:
        """Family of products with planners and kernels of its own; empty for the others."""
        return family_of(self.npu_arch)

    @property
    def saturates(self) -> bool:
        """Whether overflow gives the largest finite value, and nan gives 0."""
        return self.product.overflow_mode == "saturation"

    def core_kind(self, on_cube: bool) -> str:
        """Return the name of the cores that a kernel runs on; fused chips have ``AI cores``."""
        if self.chip.core_layout != "split":
            return "AI cores"
        return "cube cores" if on_cube else "vector cores"

    def __hash__(self) -> int:
        """Return the hash of the names; the facts of a product are not hashable."""
        return hash((self.product.name, self.soc, self.release))

    @property
    def device(self) -> Device:
        """The integers that planners take."""
        return _device(self)

    def with_soc(self, soc: str | None) -> "Profile":
        """Return the same product with another SoC; None means the product's default.

        Raises
        ------
        UsageError
            When the product has no such SoC.
        """
        wanted = self.product.default_soc if soc is None else self.product.soc_named(soc)
        if wanted is None:
            raise UsageError(
                "soc",
                "soc = {soc}: {name} has no such SoC",
                "{tip}SoCs of {name}: {socs}",
                soc=shown(soc),
                name=self.product.name,
                socs=", ".join(self.product.socs),
                tip=_owner_of(soc) or near_soc(soc, self.product.socs),
            )
        return self if wanted == self.soc else self.model_copy(update={"soc": wanted})

    def with_release(self, release: str | None) -> "Profile":
        """Return the same SoC with another release of the product's software; None keeps it.

        Raises
        ------
        UsageError
            When there is no such release.
        """
        wanted = self.release if release is None else require_release(release)
        return self if wanted == self.release else self.model_copy(update={"release": wanted})


@lru_cache(maxsize=256)
def _device(profile: Profile) -> Device:
    chip = profile.chip
    return Device(
        npu_arch=chip.npu_arch,
        vector_cores=chip.vector_cores,
        cube_cores=chip.cube_cores,
        ub_bytes=chip.ub_bytes - profile.product.ub_reserved_bytes,
        l1_bytes=chip.l1_bytes,
        l0a_bytes=chip.l0a_bytes,
        l0b_bytes=chip.l0b_bytes,
        l0c_bytes=chip.l0c_bytes,
        system_workspace_bytes=profile.product.system_workspace_bytes,
    )


@cache
def shipped_products() -> tuple[str, ...]:
    """Return the names of the profiles that ship with the package."""
    files = config_directory().glob("*.yaml")
    return tuple(sorted(path.stem for path in files if path.name != RELEASES_FILE))


def load_profile(
    product: "str | Path | Profile | None" = None,
    soc: str | None = None,
    release: str | None = None,
) -> Profile:
    """Load a product and choose one of its SoCs.

    Parameters
    ----------
    product
        A shipped product by any of its names (``"atlas_a2"``, ``"A2"``, ``"Atlas A2
        训练系列产品"``) or by one of its SoCs (``"910B3"``); the path of a YAML file in the same
        format; or a loaded profile. None selects the product of the SoC.
    soc
        SoC of that product, with or without ``Ascend``. None selects its default, or keeps that of
        a loaded profile.
    release
        Release of the product's software. None selects the default, or keeps that of a loaded
        profile.

    Raises
    ------
    UsageError
        For an unknown product, SoC or release, and for an invalid profile file; the message names
        file, line and key.
    """
    if not isinstance(soc, str | None):
        raise UsageError(
            "soc",
            "soc = {soc} is not a name",
            "a SoC of the product, or None for its default",
            soc=shown(soc),
        )
    release = None if release is None else require_release(release)
    if isinstance(product, Profile):
        return (product if soc is None else product.with_soc(soc)).with_release(release)
    if not isinstance(product, str | Path | None):
        raise UsageError(
            "product",
            "product = {product} is not a name",
            "products: {shipped_products}",
            product=shown(product),
            shipped_products=", ".join(shipped_products()),
        )
    if product is None:
        name, soc = (DEFAULT_PRODUCT, None) if soc is None else shipped_names().soc(soc)
        return _shipped_profile(name, soc, release)
    return _named_profile(str(product), soc, release)


def _named_profile(text: str, soc: str | None, release: str | None) -> Profile:
    """Return the profile of a product by any of its names, or of a file."""
    if text in shipped_products():
        return _shipped_profile(text, soc, release)
    if names_a_file(text):
        own = _under_its_name(_load_product(Path(text)))
        return _default_profile(own).with_soc(soc).with_release(release)
    name, named_soc = shipped_names().product(text)
    given = None if soc is None else _shipped_product(name).soc_named(soc)
    if named_soc is not None and soc is not None and given != named_soc:
        raise UsageError(
            "soc",
            "soc = {soc}: product = {text} is another SoC",
            "name one of the two",
            soc=shown(soc),
            text=shown(text),
        )
    return _shipped_profile(name, soc if named_soc is None else named_soc, release)


def names_a_file(product: str) -> bool:
    """Return whether a text is the path of a profile file; some product names have a slash."""
    return product.endswith((".yaml", ".yml")) or (
        "/" in product and not shipped_names().meanings(product)
    )


def all_socs(product: str | Path) -> list[Profile]:
    """Return a product with each of its SoCs, or with one if the name is that of a SoC."""
    profile = load_profile(product)
    text = str(product)
    if any(soc is not None for _, soc in shipped_names().meanings(text)):
        return [profile]
    return [profile.with_soc(soc) for soc in profile.product.socs]


def with_socs(profiles: Sequence[Profile], socs: Sequence[str]) -> list[Profile]:
    """Keep the profiles whose SoC is one of these.

    Raises
    ------
    UsageError
        For a SoC that none of them has.
    """
    chosen: list[Profile] = []
    for soc in socs:
        matches = [profile for profile in profiles if profile.product.soc_named(soc) == profile.soc]
        if not matches:
            known = [profile.soc for profile in profiles]
            raise UsageError(
                "soc",
                "soc = {soc}: not among the chosen products",
                "{tip}SoCs: {known}",
                soc=shown(soc),
                known=", ".join(known),
                tip=_owner_of(soc) or near_soc(soc, known),
            )
        chosen += matches
    return [profile for profile in profiles if profile in chosen]


def _owner_of(soc: str | None) -> str:
    """Return the sentence that names the product with this SoC, or nothing."""
    for name in shipped_products():
        found = _shipped_product(name).soc_named(soc or "")
        if found in _shipped_product(name).socs:
            return Text("{soc} is a SoC of {owner}; ", soc=Verbatim(found), owner=Verbatim(name))
    return ""


@cache
def shipped_names() -> ProductNames:
    """Return the names of the products that ship with the package."""
    return ProductNames(map(_shipped_product, shipped_products()))


def _under_its_name(product: Product) -> Product:
    """Return a copied product that got a name of its own, but no title, under that name."""
    shipped = shipped_products()
    copied = product.title in (_shipped_product(name).title for name in shipped)
    if product.name in shipped or not copied:
        return product
    return product.model_copy(update={"title": product.name, "title_zh": product.name})


def _default_profile(product: Product) -> Profile:
    return Profile(product=product, soc=product.default_soc)


@lru_cache(maxsize=256)
def _shipped_profile(name: str, soc: str | None, release: str | None) -> Profile:
    """Return a cached profile: creating one validates its product, which is slower than a plan."""
    return _default_profile(_shipped_product(name)).with_soc(soc).with_release(release)


@lru_cache(maxsize=32)
def _shipped_product(name: str) -> Product:
    return _load_product(config_directory() / f"{name}.yaml")


def _load_product(path: Path) -> Product:
    document = read_yaml(path, "product", "name a product or a YAML file")
    data = _merge_chip(document)
    try:
        return Product.model_validate(data)
    except ValidationError as error:
        raise document.validation_error(error, Product.model_fields, Chip.model_fields) from None


def _merge_chip(document: YamlDocument) -> dict[str, object]:
    """Copy the shared facts of ``chip`` to every SoC that does not override them."""
    data = dict(document.data)
    shared = data.pop("chip", {})
    socs = data.get("socs")
    if not isinstance(shared, dict):
        raise document.error(("chip",), "must be a mapping of chip facts")
    if isinstance(socs, dict):
        for soc, facts in socs.items():
            if facts is not None and not isinstance(facts, dict):
                raise document.error(("socs", soc), "must be a mapping of chip facts, or empty")
        data["socs"] = {soc: {**shared, **(facts or {})} for soc, facts in socs.items()}
    return data
