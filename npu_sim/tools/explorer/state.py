"""State of the page, which is also the link in the address bar, and the call it describes.

A state maps names to text: ``operator``, ``product``, ``soc``, ``release``, ``deterministic``,
``limits``, and each axis, attribute or tensor of the operator. Sliders move axes
(:mod:`npu_sim.framework.arguments`); a tensor given as text replaces the one that the axes imply.
Integers are written in the notations of sizes: ``4096``, ``4K``, ``7168*2``, ``1e4``. A missing
axis takes its default; an empty one is refused.

The fixed texts of the page are at the end.
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from types import MappingProxyType
from typing import Any

from npu_sim.cores import Profile, default_release, load_profile, release_names
from npu_sim.framework.arguments import (
    Attribute,
    Axis,
    IntArray,
    Number,
    Switch,
    Tensor,
    Value,
    Word,
)
from npu_sim.framework.inference import call_with
from npu_sim.framework.operator import Operator
from npu_sim.framework.target import Target, require_limits
from npu_sim.language import LANGUAGES, language, translated, using_language
from npu_sim.language.text import VARIABLE
from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators.loading import load_operator, loadable_operators
from npu_sim.status import UsageError, shown

UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
"""Factor of a letter after a number: 4K is 4096."""
FACTOR = re.compile(
    r"\s*(\d{1,20}(?:\.\d{1,20})?(?:e\d{1,2})?)\s*([kmg]?)\s*", re.ASCII | re.IGNORECASE
)
MAX_CHARACTERS = 100
"""Longest text that is read as an integer."""
EXAMPLES = "an integer, such as 4096, 4K (4096), 7168*2 or 1e4"


def whole_number(name: str, text: str) -> int:
    """Return the integer that a text denotes.

    Factors are separated by ``*``; each is a decimal number, optionally with an exponent and with
    K, M or G for powers of 1024.

    Raises UsageError if the text denotes no integer.
    """
    digits = text.strip()
    if len(text) <= MAX_CHARACTERS:
        factors = [FACTOR.fullmatch(part) for part in digits.removeprefix("-").split("*")]
        numbers = [Fraction(found[1]) * UNITS[found[2].lower()] for found in factors if found]
        product = prod(numbers, start=Fraction(1))
        if all(factors) and product.denominator == 1:
            return -product.numerator if digits.startswith("-") else product.numerator
    raise UsageError(
        name, "{name} = {text} is not an integer", EXAMPLES, name=name, text=shown(text)
    )


State = Mapping[str, str]
TRUE_WORDS = ("true", "1", "yes", "on")
FALSE_WORDS = ("false", "0", "no", "off", "")
OTHER = "other."
"""Prefix of the values that a second pane has in place of the first one's."""
TOP_OF_SLIDER = 256
"""A slider ends at this multiple of the default; its field takes any value."""


@dataclass(frozen=True)
class Call:
    """The arguments of :func:`npu_sim.plan` that a state describes."""

    operator: str
    product: str
    target: Target
    arguments: dict[str, Any]

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of the call, without the operator."""
        return {
            "product": self.target.profile,
            "deterministic": self.target.deterministic,
            "limits": self.target.limits,
            **self.arguments,
        }


def call_of(state: State, products: Mapping[str, Profile]) -> Call:
    """Return the call of a state.

    Raises UsageError if a value is invalid, with the message of the command line.
    """
    declared = load_operator(state.get("operator", ""))
    return Call(
        operator=declared.name,
        product=state.get("product", ""),
        target=Target(
            profile_of(state, products),
            _switch("deterministic", state.get("deterministic", "false")),
            limits=require_limits(state.get("limits") or "documented"),
        ),
        arguments=_arguments(declared, state),
    )


def profile_of(state: State, products: Mapping[str, Profile]) -> Profile:
    """Return the product of a state, with its SoC and release.

    Raises UsageError if the product, SoC or release is unknown.
    """
    product, soc = state.get("product", ""), state.get("soc") or None
    if product not in products:  # links may name a product in any way the command line accepts
        named = load_profile(product or None, soc)
        product, soc = named.name, named.soc
    return products[product].with_soc(soc).with_release(state.get("release") or None)


def panes(state: State) -> list[State]:
    """Return the states of the panes; ``other.`` marks the values of the second pane."""
    first = {name: value for name, value in state.items() if not name.startswith(OTHER)}
    other = {
        name.removeprefix(OTHER): value for name, value in state.items() if name.startswith(OTHER)
    }
    return [first, {**first, **other}] if other else [first]


def language_of(state: State) -> str:
    """Return the language that was chosen on a page, else the first known one of its browser.

    Before the browser's stands ``NPU_SIM_LANG``; last comes the locale of the server's user.
    """
    if state.get("lang") in LANGUAGES:
        return state["lang"]
    wanted = [] if os.environ.get(VARIABLE) else state.get("browser", "").split(",")
    names = (name.partition("-")[0].lower() for name in wanted)
    return next((name for name in names if name in LANGUAGES), language())


def _arguments(operator: Operator, state: State) -> dict[str, Any]:
    given = {
        axis.name: axis_value(axis, state[axis.name])
        for axis in operator.axes
        if axis.name in state
    }
    implied = {
        name: str(value) if isinstance(value, TensorSpec) else value
        for name, value in call_with(operator, {**operator.defaults(), **given}).items()
    }
    axes = {axis.name for axis in operator.axes}
    return {
        **implied,
        **{
            argument.name: state[argument.name]
            if isinstance(argument, Tensor)
            else _attribute(argument, state[argument.name])
            for argument in operator.arguments
            if argument.name not in axes and state.get(argument.name, "") != ""
        },
    }


def axis_value(axis: Axis, text: str) -> Value:
    """Return the value of an axis given as text.

    Raises UsageError if the text is empty or invalid.
    """
    if not text.strip():
        raise UsageError(
            axis.name,
            "{name} is empty",
            "{default} is its default",
            name=axis.name,
            default=axis.default,
        )
    return axis.value(
        axis.code(whole_number(axis.name, text) if isinstance(axis, Number) else text)
    )


def axis_numbers(state: State) -> dict[str, int]:
    """Return the values of an operator's number axes for the sliders, except invalid ones."""
    numbers = {}
    with suppress(UsageError):
        for axis in load_operator(state.get("operator", "")).axes:
            if isinstance(axis, Number) and axis.name in state:
                with suppress(UsageError):
                    numbers[axis.name] = whole_number(axis.name, state[axis.name])
    return numbers


def _switch(name: str, text: str) -> bool:
    lowered = text.lower()
    if lowered not in TRUE_WORDS + FALSE_WORDS:
        raise UsageError(
            name,
            "{name} must be true or false, got {text}",
            "true or false",
            name=name,
            text=repr(text),
        )
    return lowered in TRUE_WORDS


def _attribute(attribute: Attribute, text: str) -> Any:
    if attribute.kind is bool:
        return _switch(attribute.name, text)
    if attribute.kind is int:
        return whole_number(attribute.name, text)
    try:
        return attribute.kind(text)
    except ValueError:
        wanted = "integers separated by commas" if attribute.kind is IntArray else "a number"
        raise UsageError(
            attribute.name,
            "{name} = {text} is not {wanted}",
            wanted,
            name=attribute.name,
            text=repr(text),
            wanted=wanted,
        ) from None


def catalog(products: Mapping[str, Profile]) -> dict[str, Any]:
    """Return the choices: products with SoCs, releases, operators with axes and arguments."""
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
        "operators": [_operator(declared) for declared in loadable_operators()],
    }


def _operator(operator: Operator) -> dict[str, Any]:
    axes = {axis.name for axis in operator.axes}
    return {
        "name": operator.name,
        "title": operator.title,
        "axes": [_axis(axis) for axis in operator.axes],
        "tensors": [{"name": tensor.name, "help": tensor.help} for tensor in operator.tensors],
        "attributes": [
            {"name": attribute.name, "help": attribute.help, "default": _default(attribute)}
            for attribute in operator.attributes
            if attribute.name not in axes
        ],
    }


def _default(attribute: Attribute) -> str:
    default = "" if attribute.required or attribute.optional else str(attribute.default)
    return default.lower() if attribute.kind is bool else default


def _axis(axis: Axis) -> dict[str, Any]:
    kind = type(axis).__name__.lower()
    entry: dict[str, Any] = {"name": axis.name, "help": axis.help, "kind": kind}
    if isinstance(axis, Word):
        return {**entry, "default": axis.default, "words": list(axis.words)}
    if isinstance(axis, Switch):
        return {**entry, "default": str(axis.default).lower()}
    return {
        **entry,
        "default": str(axis.default),
        "low": axis.low,
        "high": axis.high,
        "top": min(axis.high, max(axis.default * TOP_OF_SLIDER, TOP_OF_SLIDER)),
    }


LANGUAGE_NAMES = MappingProxyType({"en": "English", "zh": "中文"})
"""Languages of the page, as they call themselves."""
UNFINISHED = "the computation stopped unexpectedly; perhaps memory ran out"
"""Text of a computation whose process ended without an answer."""
TEXTS = (
    "as implied",
    "attributes",
    "back to the defaults",
    "cancel",
    "close the second pane",
    "compare with another call",
    "copied",
    "copy as command",
    "copy as Python",
    "copy link",
    "could not copy",
    "deterministic",
    "documented: limits of the product documents; hardware: limits of the buffers",
    "drop it: a product (.yaml), a profile of a device (.csv, .db), calls (.jsonl)",
    "JSON",
    "language",
    "selects {path}",
    "left out",
    "left out: {value}",
    "limits",
    "Lower bound of its time",
    "marked with ≠, different: {names}",
    "nothing is different",
    "open a file",
    "One core, step by step",
    "operator",
    "or drop it here: a product (.yaml), a profile of a device (.csv, .db), calls (.jsonl)",
    "overflows: {path}",
    "Plan",
    "planned in {milliseconds} ms",
    "product",
    "progress",
    "refused: {why}",
    "release",
    "release of the product's software",
    "Replaces what the sizes imply, such as 4096x512:bf16 or 4096x512:bf16:strided; empty: as "
    "implied.",
    "report",
    "Run on generated data",
    "run on generated data",
    "runs: {path}",
    "same path; {effect}",
    "save as one file",
    "sending",
    "Simulated, not measured on a device. To open it in npu-sim explore, put this behind its "
    "address:",
    "Sizes may be written as 4K (4096), 7168*2 or 1e4.",
    "sizes of the first call",
    "sizes, dtypes and switches",
    "SoC",
    "tensors as text",
    "the call",
    "the second call",
    "the explorer does not answer: is npu-sim explore still running?",
    "the switch of deterministic computation",
    "The trace opens in the viewer Perfetto: on ui.perfetto.dev choose Open trace file; it stays "
    "on your machine.",
    "trace",
    "Changes that select another path",
    "Nearest calls that run",
    "where",
    "Work over time",
    "{name}, slider",
    "{seconds} s",
)
"""Texts of the page and of its scripts; {names} are placeholders."""
STAGES = (
    "waiting",
    "starting",
    "planning",
    "generating data",
    "computing",
    "reading",
    "checking calls",
    "done",
    "cancelled",
    UNFINISHED,
)
"""Names of the stages of a computation."""


def page_texts(language: str) -> dict[str, str]:
    """Return the texts of the page in a language, by their English text."""
    with using_language(language):
        return {text: translated(text) for text in (*TEXTS, *STAGES)}
