"""The caveats of the product documents as small experiments that anyone can run: ``npu-sim caveats NAME``.

Every experiment generates its own small data, runs the simulator, and returns the numbers that show the effect. Those of an operator
are in the file of its name.
"""

from importlib import import_module
from importlib.util import find_spec

from npu_sim.language import Text
from npu_sim.registry import OPERATORS
from npu_sim.status import UsageError, closest
from npu_sim.studies.caveats.experiment import Caveat

_HOMES = [f"{__name__}.{entry.name}" for entry in OPERATORS]
CAVEATS: tuple[Caveat, ...] = tuple(
    one for home in _HOMES if find_spec(home) is not None for one in import_module(home).CAVEATS
)


def find_caveat(name: str) -> Caveat:
    """Return a caveat by name.

    Raises
    ------
    UsageError
        When there is none of that name.
    """
    for one in CAVEATS:
        if one.name == name:
            return one
    names = [one.name for one in CAVEATS]
    raise UsageError(
        "name",
        Text("name = {name}: no such caveat", name=repr(name)),
        Text("caveats: {names}{hint}", names=", ".join(names), hint=closest(name, names)),
    )
