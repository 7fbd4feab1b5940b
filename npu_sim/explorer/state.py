"""The state of the page, which is also the link in the address bar, as a call of the library.

A state is a flat mapping of text: ``operator``, ``product``, ``soc``, ``release``, ``deterministic``, ``limits``, and for every axis,
attribute or tensor of the operator its value under its name. Axes (:mod:`npu_sim.sweeps`) are what the sliders move; a tensor given as text
replaces the one that the axes imply. Numbers are texts as :mod:`npu_sim.explorer.numerals` reads them. An axis that is left out takes its
default, which a page that shows it has in the field; one that is empty is refused.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from npu_sim.cores import Profile, load_profile
from npu_sim.explorer.numerals import whole_number
from npu_sim.framework.arguments import Attribute, IntArray, Tensor
from npu_sim.framework.axes import Axis, Number, Switch, Value, Values, Word
from npu_sim.framework.operator import Operator
from npu_sim.language import LANGUAGES, language
from npu_sim.numbers.formats import TensorSpec
from npu_sim.registry import all_operators, load_operator
from npu_sim.releases import default_release, release_names
from npu_sim.status import UsageError

State = Mapping[str, str]
TRUE_WORDS = ("true", "1", "yes", "on")
FALSE_WORDS = ("false", "0", "no", "off", "")
OTHER = "other."
"""Begins the names of what a second pane has instead of the first one's."""
TOP_OF_SLIDER = 256
"""A slider ends at this many times the default; the field beside it takes any value."""


@dataclass(frozen=True)
class Call:
    """A state turned into what :func:`npu_sim.plan` takes."""

    operator: str
    profile: Profile
    product: str
    deterministic: bool
    limits: str
    arguments: dict[str, Any]

    @property
    def options(self) -> dict[str, Any]:
        """The call as keyword arguments, the operator left out."""
        return {
            "product": self.profile,
            "deterministic": self.deterministic,
            "limits": self.limits,
            **self.arguments,
        }


def call_of(state: State, products: Mapping[str, Profile]) -> Call:
    """Return the call of a state.

    Raises
    ------
    UsageError
        For a value that is none, with the message the command line gives.
    """
    declared: Operator = load_operator(state.get("operator", ""))
    return Call(
        operator=declared.name,
        profile=profile_of(state, products),
        product=state.get("product", ""),
        deterministic=_switch("deterministic", state.get("deterministic", "false")),
        limits=state.get("limits") or "documented",
        arguments=_arguments(declared, state),
    )


def profile_of(state: State, products: Mapping[str, Profile]) -> Profile:
    """Return the product of a state, with its SoC and release.

    Raises
    ------
    UsageError
        For a product, SoC or release that is none.
    """
    product, soc = state.get("product", ""), state.get("soc") or None
    if product not in products:  # a link that somebody wrote: any name that the command line takes
        product = load_profile(product or None, soc).name
    return products[product].with_soc(soc).with_release(state.get("release") or None)


def panes(state: State) -> list[State]:
    """Return the states of the page's panes: what begins with ``other.`` is what the second one has instead, when there is one."""
    first = {name: value for name, value in state.items() if not name.startswith(OTHER)}
    other = {
        name.removeprefix(OTHER): value for name, value in state.items() if name.startswith(OTHER)
    }
    return [first, {**first, **other}] if other else [first]


def language_of(state: State) -> str:
    """Return the language that a page asks for; that of the server's user when it asks for none."""
    asked = state.get("lang", "")
    return asked if asked in LANGUAGES else language()


def _arguments(operator: Operator, state: State) -> dict[str, Any]:
    values: Values = operator.defaults()
    for axis in operator.axes:
        if axis.name in state:
            values[axis.name] = axis_value(axis, state[axis.name])
    arguments = {
        name: str(value) if isinstance(value, TensorSpec) else value
        for name, value in operator.call(values).items()
    }
    axes = {axis.name for axis in operator.axes}
    for one in operator.arguments:
        if one.name in state and one.name not in axes and state[one.name] != "":
            text = state[one.name]
            arguments[one.name] = text if isinstance(one, Tensor) else _attribute(one, text)
    return arguments


def axis_value(axis: Axis, text: str) -> Value:
    """Return the value of an axis that a text says.

    Raises
    ------
    UsageError
        For a text that is empty or says none.
    """
    if not text.strip():
        raise UsageError(axis.name, f"{axis.name} is empty", f"{axis.default} is its default")
    return axis.value(
        axis.code(whole_number(axis.name, text) if isinstance(axis, Number) else text)
    )


def axis_numbers(state: State) -> dict[str, int]:
    """Return what the texts of an operator's number axes say, as far as they say numbers: what sliders stand at."""
    found = {}
    with suppress(UsageError):
        for axis in load_operator(state.get("operator", "")).axes:
            if isinstance(axis, Number) and axis.name in state:
                with suppress(UsageError):
                    found[axis.name] = whole_number(axis.name, state[axis.name])
    return found


def _switch(name: str, text: str) -> bool:
    lowered = text.lower()
    if lowered not in TRUE_WORDS + FALSE_WORDS:
        raise UsageError(name, f"{name} = {text!r} is not a switch", "true or false")
    return lowered in TRUE_WORDS


def _attribute(attribute: Attribute, text: str) -> Any:
    if attribute.kind is bool:
        return _switch(attribute.name, text)
    if attribute.kind is int:
        return whole_number(attribute.name, text)
    try:
        return attribute.kind(text)
    except ValueError:
        wanted = (
            "whole numbers with commas between them" if attribute.kind is IntArray else "a number"
        )
        raise UsageError(
            attribute.name, f"{attribute.name} = {text!r} is not {wanted}", wanted
        ) from None


def catalog(products: Mapping[str, Profile]) -> dict[str, Any]:
    """Return what can be chosen: products with their SoCs, releases, operators with their axes, attributes and tensors."""
    return {
        "products": [
            {
                "name": name,
                "title": profile.product.title,
                "socs": list(profile.product.socs),
                "default_soc": profile.product.default_soc,
            }
            for name, profile in products.items()
        ],
        "releases": list(release_names()),
        "default_release": default_release(),
        "operators": [_operator(load_operator(entry.name)) for entry in all_operators()],
    }


def _operator(operator: Operator) -> dict[str, Any]:
    axes = {axis.name for axis in operator.axes}
    attributes = []
    for one in operator.attributes:
        if one.name not in axes:
            default = "" if one.required or one.optional else str(one.default)
            attributes.append(
                {
                    "name": one.name,
                    "help": one.help,
                    "default": default.lower() if one.kind is bool else default,
                }
            )
    return {
        "name": operator.name,
        "title": operator.title,
        "axes": [_axis(axis) for axis in operator.axes],
        "tensors": [{"name": one.name, "help": one.help} for one in operator.tensors],
        "attributes": attributes,
    }


def _axis(axis: Axis) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": axis.name,
        "help": axis.help,
        "kind": type(axis).__name__.lower(),
    }
    if isinstance(axis, Word):
        return {**entry, "default": axis.default, "words": list(axis.words)}
    if isinstance(axis, Switch):
        return {**entry, "default": str(axis.default).lower()}
    top = min(axis.high, max(axis.default * TOP_OF_SLIDER, TOP_OF_SLIDER))
    return {**entry, "default": str(axis.default), "low": axis.low, "high": axis.high, "top": top}
