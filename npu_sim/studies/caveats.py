"""Caveats of the product documents as experiments: ``npu-sim caveats NAME``.

An experiment generates small data, runs the simulator, and returns the numbers that show the
effect. The experiments of an operator are ``CAVEATS`` in its module ``study``.
"""

from importlib import import_module
from importlib.util import find_spec

from npu_sim.language import Text
from npu_sim.operators.shared.study import Caveat
from npu_sim.registry import OPERATORS
from npu_sim.status import UsageError, closest


def caveats_of(package: str) -> tuple[Caveat, ...]:
    """Return the experiments of an operator, given the name of its package."""
    home = f"{package}.study"
    return getattr(import_module(home), "CAVEATS", ()) if find_spec(home) is not None else ()


CAVEATS: tuple[Caveat, ...] = tuple(
    caveat for entry in OPERATORS for caveat in caveats_of(f"npu_sim.operators.{entry.name}")
)


def find_caveat(name: str) -> Caveat:
    """Return a caveat by its name, or by a code of plans and runs.

    Raises UsageError for an unknown name.
    """
    for caveat in CAVEATS:
        if name in (caveat.name, *caveat.codes):
            return caveat
    codes = [code for caveat in CAVEATS for code in caveat.codes]
    names = [caveat.name for caveat in CAVEATS]
    raise UsageError(
        "name",
        Text("name = {name}: no experiment shows such a caveat", name=repr(name)),
        Text(
            "experiments: {names}{hint}; the plan that prints another code explains it",
            names=", ".join(names),
            hint=closest(name, [*names, *codes]),
        ),
    )
