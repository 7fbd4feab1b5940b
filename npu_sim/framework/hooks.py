"""Hooks: the functions of an operator that each serve one purpose.

A declaration gives a hook as the field of its name, or names its package: then the hook is the
function of that name in the module listed here, which is imported when the hook is first needed,
or in the module ``declaration`` of an operator with few lines of its own. The module of a family
of products (``registry.FAMILIES``) comes before both; a hook that is None there does not hold for
the family.
"""

from __future__ import annotations  # hooks have types that planning does not import

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    import numpy as np

    from npu_sim.orders.claims import Claim, LastWrites, OpenRule, Parts
    from npu_sim.plans.model import Plan
    from npu_sim.timelines.program import Program
    from npu_sim.timelines.vector_pipe import InstructionLists

Function = TypeVar("Function")


@dataclass(frozen=True, eq=False)
class Hook(Generic[Function]):
    """One purpose that a function of an operator may serve.

    Attributes
    ----------
    name
        Field of the declaration, and name in the module.
    module
        Module of the operator's package that has it.
    noun
        What it gives, for the message of an operator without it; the name when empty.
    attribute
        Name in the module where it is not a function; the name when empty.
    """

    name: str
    module: str
    noun: str = ""
    attribute: str = ""


COMPUTE: Hook[Callable[[Any], None]] = Hook("compute", "compute")
FILL: Hook[Callable[[Any], None]] = Hook("fill", "compute")
FORMULA: Hook[
    Callable[[Mapping[str, Any], Mapping[str, np.ndarray], np.dtype[Any]], dict[str, np.ndarray]]
] = Hook("formula", "compute", "formula to compare with")
DATA: Hook[Callable[[Mapping[str, Any], int | np.random.Generator], dict[str, np.ndarray]]] = Hook(
    "data", "compute"
)
PROGRAM: Hook[Callable[[Plan], Program]] = Hook("program", "timeline", "timeline")
INSTRUCTIONS: Hook[Callable[[Plan], InstructionLists]] = Hook("instructions", "timeline")
CLAIMS: Hook[Callable[[Any], Iterator[Claim]]] = Hook("claims", "study", "summation trees")
TERMS: Hook[Callable[[Any, str, tuple[int, ...]], list[tuple[str, float]]]] = Hook(
    "terms", "study", "terms of an element"
)
PARTS: Hook[Callable[[Any, Any, str], Iterator[Parts]]] = Hook("parts", "study")
WRITES: Hook[Callable[[Any, Any, str], Iterator[LastWrites]]] = Hook("writes", "study")
OPEN_RULES: Hook[Callable[[Any, Any], Iterable[OpenRule]]] = Hook("open_rules", "study")
MISCOUNTED: Hook[Callable[[Any, str, tuple[int, ...], np.ndarray], Iterator[tuple[str, Any]]]] = (
    Hook("miscounted", "study")
)
CAUSES: Hook[Callable[[Any, str, np.ndarray], list[tuple[str, float, str]]]] = Hook(
    "causes", "study"
)
VARIANTS: Hook[Callable[[Any], Iterable[tuple[str, str, Any]]]] = Hook("variants", "study")
CHANGES: Hook[Any] = Hook("changes", "study", attribute="CHANGES")
IN_DUMPS: Hook[Any] = Hook("in_dumps", "study", attribute="IN_DUMPS")


@cache
def find_hook(operator: Any, hook: Hook[Any]) -> Any:
    """Return a hook of a declaration, or None."""
    given = getattr(operator, hook.name)
    if given is not None or not operator.package:
        return given
    for module in filter(None, (operator.family, hook.module, "declaration")):
        name, attribute = f"{operator.package}.{module}", hook.attribute or hook.name
        found = vars(import_module(name)) if find_spec(name) is not None else {}
        if attribute in found:
            return found[attribute]
    return None
