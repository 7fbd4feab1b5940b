"""The one loader of declarations: each is imported when it is first needed.

:mod:`npu_sim.registry` lists the operators by name, and where those of other packages stand.
"""

import copyreg
import importlib
import warnings
from functools import cache
from typing import Any

from npu_sim.framework.operator import Operator
from npu_sim.registry import (
    ENTRY_POINTS,
    OperatorEntry,
    all_operators,
    called_operator,
    registered_declaration,
    unknown_operator,
)
from npu_sim.status import NpuSimError, UsageError


class OperatorLoadError(UsageError, AttributeError):
    """An operator that another package offers cannot be loaded.

    It is an AttributeError too: ``hasattr(npu_sim, name)`` is False for such an operator.
    """


def load_operator(name: str) -> Operator:
    """Return the declaration of an operator by its name, as people write it.

    Raises UsageError when there is no such operator, or its package cannot be loaded.
    """
    entry = called_operator(name)
    if entry is None:
        raise unknown_operator(name)
    registered: Operator | None = registered_declaration(entry.name)
    return _load(entry) if registered is None else registered


def loadable_operators() -> list[Operator]:
    """Return the declarations of all operators; those that cannot be loaded cause a warning."""
    declarations = []
    for entry in all_operators():
        try:
            declarations.append(load_operator(entry.name))
        except OperatorLoadError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)
    return declarations


@cache
def _load(entry: OperatorEntry) -> Operator:
    declaration: Operator
    if not entry.home:
        module = importlib.import_module(f"npu_sim.operators.{entry.name}.declaration")
        declaration = module.OPERATOR
        return declaration
    from npu_sim.framework.registration import check_declaration  # not needed for our own

    name, _, attribute = entry.home.partition(":")
    try:
        declaration = getattr(importlib.import_module(name), attribute)
        check_declaration(declaration)
    except NpuSimError as error:
        raise OperatorLoadError(error.argument, error.message, error.hint) from error
    except (Exception, SystemExit) as error:  # errors of a package concern its operator alone
        raise OperatorLoadError(
            "operator",
            "{name} cannot be loaded from {home}: {error_type}: {error}",
            "fix the package, or its entry point in the group {entry_points}",
            name=entry.name,
            home=entry.home,
            error_type=type(error).__name__,
            error=error,
            entry_points=ENTRY_POINTS,
        ) from error
    return declaration


def _pickled(operator: Operator) -> tuple[Any, ...]:
    """Pickle a declaration by name: every process has the same operators."""
    return _loaded, (operator.name, operator.family)


def _loaded(name: str, family: str) -> Operator:
    """Return an operator by name, as it serves a family."""
    declared = load_operator(name)
    return declared.on_family(family)


copyreg.pickle(Operator, _pickled)
