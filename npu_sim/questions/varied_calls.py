"""A call with some of its sizes left open: what limits, explanations and comparisons build their calls from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from npu_sim.cores import Profile, load_profile, shipped_products
from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators.contract import patterns
from npu_sim.operators.contract.axes import Number, Value, Values
from npu_sim.operators.contract.operator import Operator
from npu_sim.releases import chosen_releases
from npu_sim.status import INVALID, AclnnError


@dataclass(frozen=True)
class FixedCall:
    """One call, by its natural names.

    Attributes
    ----------
    operator
        The operator.
    values
        Value of every axis of the operator.
    attributes
        Arguments that are no axes.
    marks
        Of given tensors that are not contiguous or not in ND: these two facts, by tensor.
    groups
        Axes of the given tensors, where several make one size: other sizes keep their number.
    deterministic
        The determinism switch.
    """

    operator: Operator
    values: Values
    attributes: Mapping[str, Any]
    marks: Mapping[str, tuple[bool, str]]
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    deterministic: bool = False

    def with_values(self, changed: Mapping[str, Value]) -> "FixedCall":
        """Return the call with other values."""
        return replace(self, values={**self.values, **changed})

    def arguments(self, changed: Mapping[str, Value] | None = None) -> dict[str, Any]:
        """Return the arguments of the call, some values changed."""
        arguments = {**self.attributes, **self.operator.call({**self.values, **(changed or {})}, self.groups)}
        for name, (contiguous, storage_format) in self.marks.items():
            if isinstance(arguments.get(name), TensorSpec):
                arguments[name] = replace(arguments[name], contiguous=contiguous, storage_format=storage_format)
        return arguments


def fixed_call(operator: Operator, given: Mapping[str, Any], deterministic: bool = False) -> FixedCall:
    """Build a call from natural names and arguments; what is not given takes the default of its axis.

    Raises
    ------
    AclnnError
        161002 for an unknown name.
    """
    axes = {axis.name: axis for axis in operator.axes}
    known = {one.name for one in operator.arguments} - axes.keys()
    natural: Values = {}
    for name, value in given.items():
        if name not in known:
            axis = operator.axis(name)
            natural[axis.name] = axis.value(axis.code(value))
    attributes = [one.name for one in operator.attributes]
    shared = {name: natural.get(name, axes[name].default) for name in attributes if name in axes}
    built = operator.build({**shared, **{name: value for name, value in given.items() if name in known}})
    read, groups = operator.read(built)
    specs = {name: built[name] for name in operator.tensor_names}
    return FixedCall(
        operator,
        values={**operator.defaults(), **read, **natural},
        attributes={name: built[name] for name in attributes if name not in axes},
        marks={
            name: (spec.contiguous, spec.storage_format)
            for name, spec in specs.items()
            if spec and (not spec.contiguous or spec.storage_format != "ND")
        },
        groups=groups,
        deterministic=deterministic,
    )


def number_of(call: FixedCall, name: str) -> Number:
    """Return the size or number of a name, for what varies one.

    Raises
    ------
    AclnnError
        161002 for what is none; of a tensor the hint names the sizes.
    """
    operator = call.operator
    for tensor in operator.tensors:
        if tensor.name == name.replace("-", "_") and all(axis.name != tensor.name for axis in operator.all_axes):
            spoken = patterns.names(operator.pattern(tensor, call.arguments()))
            sizes = ", ".join(axis.name for axis in operator.sizes if axis.name in spoken or axis.name in operator.expressions)
            raise AclnnError(INVALID, "vary", f"{tensor.name} is a tensor: its sizes are {sizes}", f"vary one of: {sizes}")
    axis = operator.axis(name)
    if not isinstance(axis, Number):
        numbers = [one.name for one in operator.all_axes if isinstance(one, Number)]
        raise AclnnError(INVALID, "vary", f"vary: {name} is not a number", f"numbers: {', '.join(numbers)}")
    return axis


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
    profiles = [profile.with_soc(soc) for profile in _told_apart(names) for soc in profile.product.socs]
    wanted = _names(socs) if socs not in (None, "all") else [profile.soc for profile in profiles]
    for soc in wanted:
        if all(profile.soc != soc for profile in profiles):
            raise AclnnError(INVALID, "soc", f"soc = {soc!r}: not among the chosen products", f"SoCs: {', '.join(p.soc for p in profiles)}")
    kept = [profile for profile in profiles if profile.soc in wanted]
    return [profile.with_release(release) for profile in kept for release in chosen_releases(releases)]


def _told_apart(names: Sequence[str]) -> list[Profile]:
    """Load products; one that has the name of another as well, as a changed copy of its file has, gets that of its file behind it."""
    loaded = {name: load_profile(name) for name in names}
    titles = [profile.name for profile in loaded.values()]
    return [
        profile.model_copy(update={"product": profile.product.model_copy(update={"name": f"{profile.name} ({name})"})})
        if titles.count(profile.name) > 1 and name != profile.name
        else profile
        for name, profile in loaded.items()
    ]


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
