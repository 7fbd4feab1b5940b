"""A call with some of its sizes left open: what limits, explanations and comparisons build their calls from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from npu_sim.cores import DEFAULT_PRODUCT, Profile, all_socs, shipped_products, with_socs
from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators.contract.axes import Value, Values
from npu_sim.operators.contract.operator import Operator
from npu_sim.releases import chosen_releases


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
    UsageError
        For an unknown name.
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
