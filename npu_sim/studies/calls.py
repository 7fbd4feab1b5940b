"""A call split into what studies change: arguments, tensors, and options."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from npu_sim.cores import Profile, load_profile
from npu_sim.formats import as_array
from npu_sim.ops import operator_module, run
from npu_sim.ops.base import Arguments, Result


def room(operator: str) -> ModuleType:
    """Return what an operator declares for studies: ``npu_sim.studies.<operator>``."""
    return import_module(f"npu_sim.studies.{operator}")


def floating_tensors(operator: str) -> tuple[str, ...]:
    """Return the tensors that have the operator's dtype; the others keep theirs."""
    names: tuple[str, ...] = room(operator).FLOATING_TENSORS
    return names


@dataclass(frozen=True)
class StudyCall:
    """One call of an operator.

    Attributes
    ----------
    operator
        Its name.
    tensors, attributes
        Input tensors and attributes by name.
    profile
        Product and SoC.
    options
        ``deterministic``, ``core_order``, ``seed``, ``limits``.
    """

    operator: str
    tensors: Mapping[str, np.ndarray]
    attributes: Mapping[str, Any]
    profile: Profile
    options: Mapping[str, Any]

    @property
    def arguments(self) -> Arguments:
        """The call as its contract takes it."""
        built: Arguments = operator_module(self.operator).Arguments.build({**self.tensors, **self.attributes})
        return built

    def run(self) -> Result:
        """Compute the call."""
        call: dict[str, Any] = {**self.options, **self.tensors, **self.attributes}
        return run(self.operator, profile=self.profile, **call)

    def with_tensors(self, **changed: np.ndarray) -> "StudyCall":
        """Return the call with some tensors replaced."""
        return replace(self, tensors={**self.tensors, **changed})

    def with_options(self, **changed: Any) -> "StudyCall":
        """Return the call with some options replaced."""
        return replace(self, options={**self.options, **changed})


def study_call(operator: str, call: Mapping[str, Any]) -> StudyCall:
    """Split a call as :func:`npu_sim.run` takes it."""
    module = operator_module(operator)
    inputs = module.Arguments.tensors(inputs_only=True)
    tensors = {name: as_array(call[name]) for name in inputs if call.get(name) is not None}
    attributes = {name: call[name] for name in module.Arguments.attributes() if name in call}
    known = (*module.Arguments.tensors(), *attributes, "profile", "soc")
    options = {name: value for name, value in call.items() if name not in known}
    return StudyCall(module.NAME, tensors, attributes, load_profile(call.get("profile", "atlas_a2"), call.get("soc")), options)
