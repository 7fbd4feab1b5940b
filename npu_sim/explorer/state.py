"""The state of the page, which is also the link in the address bar, as a call of the library.

A state is a flat mapping of text: ``operator``, ``product``, ``soc``, ``deterministic``, ``limits``, and for every axis, attribute
or tensor of the operator its value under its name. Axes (:mod:`npu_sim.sweeps`) are what the sliders move; a tensor given as text
replaces the one that the axes imply.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npu_sim.cores import Profile
from npu_sim.formats import TensorSpec
from npu_sim.ops import operator_module
from npu_sim.profile_file import closest
from npu_sim.status import INVALID, AclnnError
from npu_sim.sweeps.declaration import Declaration, Number, Switch, Values, Word, find_declaration

State = Mapping[str, str]
TRUE_WORDS = ("true", "1", "yes", "on")
FALSE_WORDS = ("false", "0", "no", "off", "")
FIXED_KEYS = ("operator", "product", "soc", "deterministic", "limits")
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
        return {"profile": self.profile, "deterministic": self.deterministic, "limits": self.limits, **self.arguments}


def call_of(state: State, products: Mapping[str, Profile]) -> Call:
    """Return the call of a state.

    Raises
    ------
    AclnnError
        161002 for a value that is none, with the message the command line gives.
    """
    operator = state.get("operator", "")
    declaration = find_declaration(operator)
    product = state.get("product", "")
    if product not in products:
        message = f"profile = {product!r}: no such product"
        raise AclnnError(INVALID, "profile", message, f"products: {', '.join(products)}{closest(product, products)}")
    profile = products[product].with_soc(state.get("soc") or None)
    return Call(
        operator=declaration.operator,
        profile=profile,
        product=product,
        deterministic=_switch("deterministic", state.get("deterministic", "false")),
        limits=state.get("limits") or "documented",
        arguments=_arguments(declaration, state),
    )


def _arguments(declaration: Declaration, state: State) -> dict[str, Any]:
    module = operator_module(declaration.operator)
    values: Values = declaration.defaults()
    for axis in declaration.axes:
        if axis.name in state:
            values[axis.name] = axis.value(axis.code(state[axis.name]))
    arguments = {name: str(value) if isinstance(value, TensorSpec) else value for name, value in declaration.call(values).items()}
    axes = {axis.name for axis in declaration.axes}
    for one in dataclasses.fields(module.Arguments):
        if one.name in state and one.name not in axes and state[one.name] != "":
            text = state[one.name]
            arguments[one.name] = text if one.metadata["kind"] == "tensor" else _attribute(one.name, one.type, text)
    return arguments


def _switch(name: str, text: str) -> bool:
    lowered = text.lower()
    if lowered not in TRUE_WORDS + FALSE_WORDS:
        raise AclnnError(INVALID, name, f"{name} = {text!r} is not a switch", "true or false")
    return lowered in TRUE_WORDS


def _attribute(name: str, kind: Any, text: str) -> Any:
    type_name = getattr(kind, "__name__", str(kind))
    if type_name.startswith("bool"):
        return _switch(name, text)
    converters: dict[str, type[int] | type[float]] = {"int": int, "float": float}
    convert = next((converters[word] for word in converters if type_name.startswith(word)), str)
    try:
        return convert(text)
    except ValueError:
        raise AclnnError(INVALID, name, f"{name} = {text!r} is not a number", "a whole number" if convert is int else "a number") from None


def catalog(products: Mapping[str, Profile]) -> dict[str, Any]:
    """Return what can be chosen: products with their SoCs, operators with their axes, attributes and tensors."""
    from npu_sim.registry import OPERATORS

    return {
        "products": [
            {"name": name, "title": profile.product.title, "socs": list(profile.product.socs), "default_soc": profile.product.default_soc}
            for name, profile in products.items()
        ],
        "operators": [_operator(entry.name, entry.title) for entry in OPERATORS if _is_declared(entry.name)],
    }


def _is_declared(operator: str) -> bool:
    try:
        find_declaration(operator)
    except ModuleNotFoundError as error:  # an operator that is registered but cannot be varied has no page
        if error.name is None or not error.name.startswith("npu_sim."):
            raise
        return False
    return True


def _operator(name: str, title: str) -> dict[str, Any]:
    declaration, arguments = find_declaration(name), operator_module(name).Arguments
    axes = {axis.name for axis in declaration.axes}
    tensors, attributes = [], []
    for one in dataclasses.fields(arguments):
        entry = {"name": one.name, "help": one.metadata["help"]}
        if one.metadata["kind"] == "tensor":
            tensors.append(entry)
        elif one.name not in axes:
            default = "" if one.default is dataclasses.MISSING else str(one.default)
            attributes.append({**entry, "default": default.lower() if one.default in (True, False) else default})
    return {"name": name, "title": title, "axes": [_axis(axis) for axis in declaration.axes], "tensors": tensors, "attributes": attributes}


def _axis(axis: Number | Word | Switch) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": axis.name, "help": axis.help, "kind": type(axis).__name__.lower()}
    if isinstance(axis, Word):
        return {**entry, "default": axis.default, "words": list(axis.words)}
    if isinstance(axis, Switch):
        return {**entry, "default": str(axis.default).lower()}
    top = min(axis.high, max(axis.default * TOP_OF_SLIDER, TOP_OF_SLIDER))
    return {**entry, "default": str(axis.default), "low": axis.low, "high": axis.high, "top": top}


def flip_key(operator: str, argument: str) -> str | None:
    """Return the state's name of what a flip changes; None when the page has no field for it."""
    declaration = find_declaration(operator)
    try:
        return declaration.axis(argument).name
    except AclnnError:
        return argument if argument in operator_module(operator).Arguments.attributes() else None
