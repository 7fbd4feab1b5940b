"""The two stages of a call, for every operator: from the parameters of the C prototype to arguments, and back to a status.

An operator's own module (``npu_sim.aclnn.<operator>``) says how the parameters are called in its product document.
"""

import dataclasses
import operator as number
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from npu_sim.aclnn.errors import report
from npu_sim.aclnn.executor import AclOpExecutor
from npu_sim.aclnn.tensor import AclTensor
from npu_sim.ops import operator_module
from npu_sim.ops.base import Arguments
from npu_sim.registry import find_operator
from npu_sim.settings import current_device
from npu_sim.status import INVALID, MISSING, SUCCESS, AclnnError, Status

Tensor = Any
"""An AclTensor; an array or a CPU tensor of another library is described as one. None is the null pointer."""


class FirstStage(NamedTuple):
    """What a first stage returns: the status, and what the C function writes to its last two parameters."""

    status: Status
    workspaceSize: int  # noqa: N815 (the document's name)
    executor: AclOpExecutor | None


class Prototype:
    """Names of one operator's parameters.

    Parameters
    ----------
    operator
        Name of the operator.
    parameters
        Parameters of the first stage in the order of the C prototype, each with the name of its argument here.
    """

    def __init__(self, operator: str, parameters: Mapping[str, str]) -> None:
        entry = find_operator(operator)
        assert entry is not None, operator
        self.operator = entry.name
        self.name = f"aclnn{entry.title}"
        self.parameters = dict(parameters)

    def first_stage(self, *values: Any) -> FirstStage:
        """Check and plan a call; ``values`` are in the order of the parameters."""
        try:
            executor = self._executor(dict(zip(self.parameters, values, strict=True)))
        except AclnnError as error:
            return FirstStage(report(f"{self.name}GetWorkspaceSize", error, self._documented(error.argument)), 0, None)
        return FirstStage(SUCCESS, executor.workspace.total_bytes, executor)

    def second_stage(self, workspace: Any, workspaceSize: int, executor: AclOpExecutor | None, stream: Any) -> Status:
        """Run a call of the first stage."""
        try:
            if executor is None:
                raise AclnnError(MISSING, "executor", "executor is missing", f"{self.name}GetWorkspaceSize returns it")
            if executor.plan.operator != self.operator:
                message = f"executor belongs to aclnn{executor.plan.title}"
                raise AclnnError(INVALID, "executor", message, f"{self.name}GetWorkspaceSize returns the right one")
            executor.run(workspace, workspaceSize)
        except AclnnError as error:
            return report(self.name, error, self._documented(error.argument))
        return SUCCESS

    def _documented(self, argument: str) -> str:
        return next((name for name, own in self.parameters.items() if own == argument), argument)

    def _executor(self, values: dict[str, Any]) -> AclOpExecutor:
        module = operator_module(self.operator)
        fields = {one.name: one for one in dataclasses.fields(module.Arguments)}
        named = [(name, fields[own], values[name]) for name, own in self.parameters.items()]
        for name, one, value in named:
            if value is None and not (one.metadata.get("optional") and not one.metadata.get("output")):
                raise AclnnError(MISSING, one.name, f"{name} is missing", f"{name}: {one.metadata['help']}")
        tensors = {one.name: _tensor(name, value) for name, one, value in named if one.metadata["kind"] == "tensor" and value is not None}
        attributes = {one.name: _converted(name, one, value) for name, one, value in named if one.metadata["kind"] == "attribute"}
        specs = {name: tensor.spec(self._documented(name)) for name, tensor in tensors.items()}
        arguments: Arguments = module.Arguments.build({**specs, **attributes})
        settings = current_device()
        plan = module.make_plan(arguments, settings.profile, settings.deterministic, settings.limits)
        inputs = {name: tensors[name].array for name in arguments.tensors(inputs_only=True) if name in tensors}
        outputs = {one.name: tensors[one.name].array for _, one, _ in named if one.metadata.get("output")}
        self._check_memory(inputs, outputs)
        return AclOpExecutor(module, arguments, inputs, tuple(outputs.values()), settings, plan)

    def _check_memory(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Refuse an output that cannot be written, or whose memory another tensor uses too."""
        others = dict(inputs)
        for name, array in outputs.items():
            documented = self._documented(name)
            if array is not None and not array.flags.writeable:
                raise AclnnError(INVALID, name, f"{documented} cannot be written", "give writable memory")
            for other, values in others.items():
                if array is not None and values is not None and np.may_share_memory(array, values):
                    message = f"{documented} shares memory with {self._documented(other)}"
                    raise AclnnError(INVALID, name, message, "give memory of its own")
            others[name] = array


def _tensor(name: str, value: Any) -> AclTensor:
    if isinstance(value, AclTensor):
        return value
    if isinstance(value, np.ndarray) or hasattr(value, "__dlpack__") or hasattr(value, "__array_interface__"):
        return AclTensor.from_array(value)
    raise TypeError(f"{name} is a {type(value).__name__}, not an AclTensor or an array")


def _converted(name: str, one: dataclasses.Field[Any], value: Any) -> Any:
    """Convert an attribute as C does for a parameter of its type; what C would not compile raises TypeError."""
    kind = one.type if isinstance(one.type, str) else one.type.__name__
    if kind == "bool":
        return bool(number.index(value))
    if kind == "int":
        return number.index(value)
    if kind == "float":
        return float(np.float32(value))
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if not isinstance(value, str):
        raise TypeError(f"{name} is a {type(value).__name__}, not a str")
    return value
