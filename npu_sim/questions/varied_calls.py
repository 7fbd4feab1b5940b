"""Chosen products, SoCs and releases, groups of SoCs that plan identically, and example calls."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from npu_sim.cores import (
    DEFAULT_PRODUCT,
    Profile,
    all_socs,
    chosen_releases,
    load_profile,
    names_a_file,
    shipped_products,
    with_socs,
)
from npu_sim.framework import patterns
from npu_sim.framework.arguments import Attribute, Number, plain_text
from npu_sim.framework.inference import arguments_of, inferred
from npu_sim.framework.operator import Operator
from npu_sim.framework.planning import FixedCall, fixed_call
from npu_sim.language import Argument, Text, grouped, joined
from npu_sim.operators.loading import load_operator
from npu_sim.status import UsageError


def number_of(call: FixedCall, name: str) -> Number:
    """Return the axis of a size or number by name.

    Raises UsageError for any other name; for a tensor the hint lists its sizes.
    """
    operator = call.operator
    for tensor in operator.tensors:
        if tensor.name == name.replace("-", "_") and all(
            axis.name != tensor.name for axis in operator.all_axes
        ):
            named = patterns.names(tensor.pattern(call.arguments()))
            sizes = ", ".join(
                axis.name
                for axis in operator.sizes
                if axis.name in named or axis.name in operator.expressions
            )
            raise UsageError(
                "vary",
                "{name} is a tensor: its sizes are {sizes}",
                "vary one of: {sizes}",
                name=tensor.name,
                sizes=sizes,
            )
    axis = operator.axis(name)
    if not isinstance(axis, Number):
        numbers = [axis.name for axis in operator.all_axes if isinstance(axis, Number)]
        raise UsageError(
            "vary",
            "vary: {name} is not a number",
            "numbers: {numbers}",
            name=name,
            numbers=", ".join(numbers),
        )
    return axis


def one_spelling(name: str, one: Any, several: Any) -> Any:
    """Return the value of an argument that has a second name, such as product and products.

    True stands for all: ``releases=True``. Raises UsageError if both are given.
    """
    if isinstance(several, bool):
        several = "all" if several else None
    if one is not None and several is not None:
        raise UsageError(
            f"{name}s",
            "{option} is given twice",
            "leave one of the two out",
            option=joined((Argument(f"{name}s"), Argument(name)), " / "),
        )
    return one if several is None else several


def chosen_profiles(
    products: str | Path | Sequence[str | Path] | None,
    socs: str | Sequence[str] | None = None,
    releases: str | Sequence[str] | None = None,
    *,
    every_soc: bool = True,
) -> list[Profile]:
    """Return SoCs of the chosen products, each at every chosen release, which varies fastest.

    - ``products``: names or YAML files, also separated by commas; ``"all"`` for all shipped ones.
    - ``socs``: names of SoCs to keep, which imply their products; ``"all"`` for all.
    - ``releases``: names, also as text separated by commas; ``"all"``, or None for the default.
    - ``every_soc``: whether None stands for all products and all SoCs, or for the default ones.

    Raises UsageError for an unknown product, SoC or release, and when none is named.
    """
    wanted = ["all"] if socs is None else items_of(socs)
    if products is None and (every_soc or wanted != ["all"]):
        products = "all"
    profiles = list(
        dict.fromkeys(load_distinct(product_names(products), every_soc or socs is not None))
    )
    selected = profiles if wanted == ["all"] else with_socs(profiles, wanted)
    releases_of = chosen_releases(None if releases is None else items_of(releases))
    return require_devices(
        [profile.with_release(release) for profile in selected for release in releases_of],
        product=products,
        soc=socs,
        release=releases,
    )


def require_devices(profiles: list[Profile], **given: Any) -> list[Profile]:
    """Return these devices; raise UsageError when there are none, for the argument without names.

    - ``given``: the arguments that chose them.
    """
    if not profiles:
        empty = [name for name, value in given.items() if value is not None and not items_of(value)]
        raise UsageError(
            (empty or ["product"])[0],
            "no product, SoC or release is named",
            "all, or names separated by commas",
        )
    return profiles


def load_distinct(names: Sequence[Any], every_soc: bool = True) -> list[Profile]:
    """Return loaded products with distinct names.

    A product file with the name of another product, such as an edited copy, gets its file name
    appended.

    - ``names``: products, by name or file.
    - ``every_soc``: whether to return all SoCs of a product or its default one.

    Raises UsageError for an unknown product.
    """
    loaded = [(name, all_socs(name) if every_soc else [load_profile(name)]) for name in names]
    titles = Counter(
        title for _, title in {(str(name), profiles[0].name) for name, profiles in loaded}
    )
    return [
        _renamed(profile, f"{profile.name} ({name})")
        if titles[profile.name] > 1 and names_a_file(str(name))
        else profile
        for name, profiles in loaded
        for profile in profiles
    ]


def _renamed(profile: Profile, name: str) -> Profile:
    renamed = profile.product.model_copy(update={"name": name})
    return profile.model_copy(update={"product": renamed})


def device_groups(
    products: str | Path | Sequence[str | Path] | None,
    socs: str | Sequence[str] | None = None,
    release: str | None = None,
) -> list[tuple[Profile, tuple[str, ...]]]:
    """Return a profile and SoC names for each group of SoCs with equal cores and buffers."""
    return [
        (group[0], tuple(profile.soc for profile in group))
        for group in grouped(
            ((profile.name, profile.device), profile)
            for profile in chosen_profiles(products, socs, release)
        ).values()
    ]


def operators_of(profile: Profile) -> tuple[list[str], dict[str, str]]:
    """Return the operators that npu_sim models on a product, and why it does not model others."""
    product = profile.product
    not_yet = {
        name: Text("npu_sim does not model it there yet")
        for name in product.operators
        if profile.family in load_operator(name).families_not_modelled
    }
    modelled = [name for name in product.operators if name not in not_yet]
    return modelled, not_yet | product.not_modelled


def product_names(given: Any) -> list[Any]:
    """Return the named products; the default one for None, all shipped ones for ``"all"``."""
    names = [DEFAULT_PRODUCT] if given is None else items_of(given)
    return list(shipped_products()) if names == ["all"] else names


def items_of(given: Any) -> list[Any]:
    """Return the items of one value, a sequence, or a text separated by commas."""
    if isinstance(given, str):
        return [item.strip() for item in given.split(",") if item.strip()]
    if isinstance(given, np.ndarray):
        return list(given.ravel().tolist())
    return (
        list(given) if isinstance(given, Iterable) and not isinstance(given, Profile) else [given]
    )


SMALL_SIZE = 64
"""Largest size in an example that is computed."""


class ExampleCall(NamedTuple):
    """One call of an operator."""

    values: dict[str, str]
    """Example text of every tensor, including outputs, and of every attribute."""
    needed: tuple[str, ...]
    """Names of the arguments that a call needs; the other inputs follow from them."""

    @property
    def options(self) -> str:
        """The needed arguments as options: ``--dy 1024x4096:bf16 --gamma 4096:bf16``."""
        return " ".join(f"--{name.replace('_', '-')} {self.values[name]}" for name in self.needed)


def example_call(operator: Operator, *, small: bool = False) -> ExampleCall:
    """Return an example call with default sizes, or with sizes to compute if ``small``."""
    call = fixed_call(operator, {})
    sizes = (
        {axis.name: min(int(call.values[axis.name]), SMALL_SIZE) for axis in operator.sizes}
        if small
        else {}
    )
    given = call.arguments({**sizes, **dict.fromkeys(operator.switches, True)})
    whole = inferred(operator, arguments_of(operator, given), operator.outputs)
    return ExampleCall(
        {name: plain_text(value) for name, value in whole.items() if value is not None},
        _needed(operator, call.arguments(sizes)),
    )


def _needed(operator: Operator, given: dict[str, Any]) -> tuple[str, ...]:
    """Return the needed arguments: inputs are left out, last first, if the rest implies them."""
    inputs = {
        tensor.name: given[tensor.name]
        for tensor in operator.inputs
        if not tensor.optional and given.get(tensor.name) is not None
    }
    attributes = {
        attribute.name: given[attribute.name]
        for attribute in operator.attributes
        if attribute.name in given
    }
    tensors = {tensor.name: tensor for tensor in operator.inputs}
    for name in [*inputs][::-1]:
        rest = {other: value for other, value in inputs.items() if other != name}
        if (
            inferred(operator, arguments_of(operator, {**rest, **attributes}), [tensors[name]])[
                name
            ]
            is not None
        ):
            inputs = rest
    return tuple(
        argument.name
        for argument in operator.arguments
        if argument.name in inputs or (isinstance(argument, Attribute) and argument.required)
    )
