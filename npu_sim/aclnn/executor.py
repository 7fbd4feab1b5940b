"""The C functions of an operator, and executors: checked calls between their two stages.

As in the product, the second stage releases an executor unless
:func:`aclSetAclOpExecutorRepeatable` made it repeatable. Using a released executor returns 161002;
the documents do not define the behaviour. An error before the computation (workspace missing or too
small) leaves the executor usable; data out of bounds (361001) releases it.
"""

import inspect
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from operator import index
from typing import Any, NamedTuple

import numpy as np

from npu_sim.aclnn.runtime import ACL_SUCCESS, AclTensor, report
from npu_sim.framework.arguments import Attribute, IntArray, Output, Tensor
from npu_sim.framework.case import Case
from npu_sim.framework.checking import check
from npu_sim.framework.execution import Result, compute_case
from npu_sim.framework.inference import arguments_of
from npu_sim.framework.operator import Operator
from npu_sim.framework.planning import plan_of
from npu_sim.framework.target import current_device
from npu_sim.language import Text
from npu_sim.numbers.arrays import Array
from npu_sim.plans.model import Plan, Workspace
from npu_sim.status import (
    ACLNN_SUCCESS,
    INNER_NULL_POINTER,
    INVALID,
    NULL_POINTER,
    AclnnError,
    Status,
)

_computing = threading.Lock()
"""Held while a call computes: calls of several threads may use one workspace."""
WORKSPACE_ALIGNMENT = 8
"""Bytes: the size of the largest element stored in it."""


@dataclass(eq=False, repr=False)
class AclOpExecutor:
    """A call that the first stage accepted."""

    case: Case
    """The checked call: operator, arguments and device."""
    inputs: dict[str, Array | None]
    """Memory of the inputs; None for a tensor described without memory."""
    outputs: tuple[Array | None, ...]
    """Memory of the outputs, likewise."""
    plan: Plan
    """Plan of the call."""
    repeatable: bool = False
    """Whether the second stage may be called more than once."""
    result: Result | None = None
    """Result of the last run, with order-dependent parts, data warnings and times; None before the
    first run."""
    released: bool = False
    """Whether the executor was used or destroyed, and cannot run again."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __repr__(self) -> str:
        """Return the function and the state; the call's arrays would fill screens."""
        state = f"repeatable={self.repeatable}, released={self.released}"
        return f"AclOpExecutor(aclnn{self.operator.title}, {state})"

    @property
    def operator(self) -> Operator:
        """The operator."""
        operator: Operator = self.case.operator
        return operator

    @property
    def workspace(self) -> Workspace:
        """Size and areas of the workspace, and the kernels that use them; prints as a table."""
        return self.plan.workspace

    def run(self, workspace: Any, workspace_size: int) -> None:
        """Run the call in a workspace; nothing is written if it raises.

        Raises
        ------
        AclnnError
            161001 for missing memory, 161002 for a workspace that is too small, 361001 for data out
            of bounds.
        """
        self._check_workspace(workspace, workspace_size)
        inputs = {name: self._require_memory(name, array) for name, array in self.inputs.items()}
        outputs = tuple(
            self._require_memory(output.output, array) if output in self.case.outputs else None
            for output, array in zip(self.operator.outputs, self.outputs, strict=True)
        )
        self._release_unless_repeatable()
        with _computing:
            self.result = compute_case(self.case, inputs, outputs)

    def _release_unless_repeatable(self) -> None:
        """Release the executor unless it is repeatable; raise if it is already released."""
        with self._lock:
            if self.released:
                raise AclnnError(
                    INVALID,
                    "executor",
                    "executor was released: the second stage ran it, or it was destroyed",
                    "call the first stage again, or aclSetAclOpExecutorRepeatable after it",
                )
            self.released = not self.repeatable

    def _check_workspace(self, workspace: Any, workspace_size: int) -> None:
        """Check the memory of the workspace, which the simulator neither reads nor writes."""
        needed = self.workspace.total_bytes
        if needed == 0:
            return
        hint = "the first stage returned {needed} bytes"
        if workspace is None:
            raise AclnnError(
                NULL_POINTER,
                "workspace",
                "workspace is missing: {needed} bytes are needed",
                hint,
                needed=needed,
            )
        memory = _writable_bytes(workspace)
        if workspace_size < needed:
            raise AclnnError(
                INVALID,
                "workspaceSize",
                "workspaceSize = {workspace_size} is too small",
                hint,
                workspace_size=workspace_size,
                needed=needed,
            )
        if memory.size < workspace_size:
            raise AclnnError(
                INVALID,
                "workspace",
                "workspace has {size} bytes, but workspaceSize is {workspace_size}",
                hint,
                size=memory.size,
                workspace_size=workspace_size,
                needed=needed,
            )
        if memory.ctypes.data % WORKSPACE_ALIGNMENT:
            raise AclnnError(
                INVALID,
                "workspace",
                "workspace does not start at a multiple of {address_bytes} bytes",
                "use aclrtMalloc",
                address_bytes=WORKSPACE_ALIGNMENT,
            )
        for name, array in self._tensors():
            if np.may_share_memory(memory, array):
                raise AclnnError(
                    INVALID,
                    "workspace",
                    "workspace shares memory with {name}",
                    "use separate memory",
                    name=name,
                )

    def _tensors(self) -> list[tuple[str, Array]]:
        named = [
            *self.inputs.items(),
            *zip((output.output for output in self.operator.outputs), self.outputs, strict=True),
        ]
        return [(name, array) for name, array in named if array is not None]

    def _require_memory(self, name: str, array: Array | None) -> Array:
        if array is None:
            raise AclnnError(
                NULL_POINTER,
                name,
                "{name} was described without memory",
                "give the tensor its data before the first stage",
                name=name,
            )
        return array


def _writable_bytes(workspace: Any) -> Array:
    """Return an array of any dtype, or an object with a writable buffer, as bytes."""
    memory = workspace if isinstance(workspace, np.ndarray) else np.frombuffer(workspace, np.uint8)
    if not memory.flags.c_contiguous or not memory.flags.writeable:
        raise AclnnError(
            INVALID,
            "workspace",
            "workspace is not contiguous, writable memory",
            "use aclrtMalloc or numpy.empty(size, 'uint8')",
        )
    return memory.reshape(-1).view(np.uint8)


def aclSetAclOpExecutorRepeatable(executor: AclOpExecutor | None) -> int:
    """Allow more than one second stage; return 561103 for a missing or released executor."""
    if executor is None or executor.released:
        return INNER_NULL_POINTER
    executor.repeatable = True
    return ACL_SUCCESS


def aclDestroyAclOpExecutor(executor: AclOpExecutor | None) -> int:
    """Release an executor; return 561103 for a missing one."""
    if executor is None:
        return INNER_NULL_POINTER
    executor.released = True
    return ACL_SUCCESS


class FirstStage(NamedTuple):
    """Result of a first stage: status, and the values of the C function's two output pointers."""

    status: Status
    workspaceSize: int  # noqa: N815 (the document's name)
    executor: AclOpExecutor | None


class Prototype:
    """The parameters of one operator's C function.

    Parameters
    ----------
    operator
        Its declaration, which contains the parameters' names in the product document.
    """

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.name = f"aclnn{operator.title}"
        self.parameters = {argument.parameter: argument for argument in operator.prototype}
        """Arguments by parameter name, in the order of the C prototype."""
        self._documented = {argument.name: name for name, argument in self.parameters.items()}

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Return the two functions by name, with the signatures of the product document."""
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        first = inspect.Signature([inspect.Parameter(name, kind) for name in self.parameters])

        def get_workspace_size(*args: Any, **kwargs: Any) -> FirstStage:
            try:
                executor = self._executor(first.bind(*args, **kwargs).arguments)
            except AclnnError as error:
                return FirstStage(self._report(f"{self.name}GetWorkspaceSize", error), 0, None)
            return FirstStage(ACLNN_SUCCESS, executor.workspace.total_bytes, executor)

        def run(
            workspace: Any, workspaceSize: int, executor: AclOpExecutor | None, stream: Any
        ) -> Status:
            try:
                self._require_own(executor).run(workspace, workspaceSize)
            except AclnnError as error:
                return self._report(self.name, error)
            return ACLNN_SUCCESS

        get_workspace_size.__signature__ = first  # type: ignore[attr-defined]
        get_workspace_size.__doc__ = Text(
            "Check and plan a call of {name}; return (status, workspaceSize, executor).",
            name=self.name,
        )
        run.__doc__ = "Run a call of the first stage in its workspace; return the status."
        named: dict[str, Callable[..., Any]] = {
            f"{self.name}GetWorkspaceSize": get_workspace_size,
            self.name: run,
        }
        for name, function in named.items():
            function.__name__ = function.__qualname__ = name
            function.__module__ = "npu_sim.aclnn"
        return named

    def _report(self, function: str, error: AclnnError) -> Status:
        """Store an error with the name of its argument in the document; return its status."""
        return report(function, error, self._documented.get(error.argument, error.argument))

    def _require_own(self, executor: AclOpExecutor | None) -> AclOpExecutor:
        """Return the executor of a second stage; raise AclnnError unless it is of this operator."""
        if executor is None:
            raise AclnnError(
                NULL_POINTER,
                "executor",
                "executor is missing",
                "{name}GetWorkspaceSize returns it",
                name=self.name,
            )
        if executor.operator.title != self.operator.title:
            raise AclnnError(
                INVALID,
                "executor",
                "executor belongs to aclnn{title}",
                "{name}GetWorkspaceSize returns the right one",
                title=executor.operator.title,
                name=self.name,
            )
        return executor

    def _missing(self, name: str, argument: Tensor | Attribute) -> AclnnError:
        """Return the refusal of a call without an argument."""
        switches = current_device().profile.release_switches(self.operator.name)
        if isinstance(argument, Output) and not switches.get("checks_out", 1):
            return AclnnError(
                NULL_POINTER,
                argument.name,
                "{name} is missing",
                "{name}: {help}; at this release the product does not check it: the process ends",
                help=argument.help,
                name=name,
            )
        return AclnnError(
            NULL_POINTER,
            argument.name,
            "{name} is missing",
            "{name}: {help}",
            help=argument.help,
            name=name,
        )

    def _executor(self, values: Mapping[str, Any]) -> AclOpExecutor:
        """Check and plan a call with the values of the parameters by name."""
        words = self._words(values)
        for name, argument in self.parameters.items():
            is_left_out = isinstance(argument, Output) and not argument.is_chosen(words)
            is_optional = argument.optional and not getattr(argument, "required_in_c", False)
            if values[name] is None and not is_optional and not is_left_out:
                raise self._missing(name, argument)
        attributes = {
            argument.name: _converted(argument, name, values[name])
            for name, argument in self.parameters.items()
            if isinstance(argument, Attribute)
        } | words
        tensors = {
            argument.name: _tensor(name, values[name])
            for name, argument in self.parameters.items()
            if not isinstance(argument, Attribute) and values[name] is not None
        }
        specs = {name: tensor.spec(self._documented[name]) for name, tensor in tensors.items()}
        arguments = arguments_of(self.operator, {**specs, **attributes})
        case = check(self.operator, arguments, current_device())
        plan = plan_of(case)
        inputs = {
            name: tensors[name].array for name in self.operator.input_names if name in tensors
        }
        outputs = {
            output.name: tensors[source].array if source in tensors else None
            for output in self.operator.outputs
            for source in (output.in_place or output.name,)
        }
        self._check_memory(inputs, outputs)
        return AclOpExecutor(case, inputs, tuple(outputs.values()), plan)

    def _words(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the string attributes that follow from null pointers of outputs.

        The word is that for which exactly the given outputs are written; the default if there is
        none.
        """
        documented, words = self._documented, dict[str, Any]()
        for attribute in self.operator.attributes:
            chosen = {
                output.name: output.written_for[1]
                for output in self.operator.outputs
                if output.written_for[0] == attribute.name
            }
            given = {
                name
                for name in chosen
                if values.get(documented.get(name, name)) is not None or name not in documented
            }
            if chosen:
                axis = self.operator.axis(attribute.name)
                words[attribute.name] = next(
                    (
                        word
                        for word in getattr(axis, "words", ())
                        if given == {name for name, known in chosen.items() if word in known}
                    ),
                    attribute.default,
                )
        return words

    def _check_memory(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Raise an error for an output that is read-only or shares memory with another tensor."""
        others = dict(inputs)
        for output in self.operator.outputs:
            name, array = output.in_place or output.name, outputs[output.name]
            others.pop(output.in_place, None)
            documented = self._documented[name]
            if array is not None and not array.flags.writeable:
                raise AclnnError(
                    INVALID,
                    name,
                    "{documented} cannot be written",
                    "give writable memory",
                    documented=documented,
                )
            for other, values in others.items():
                if array is not None and values is not None and np.may_share_memory(array, values):
                    raise AclnnError(
                        INVALID,
                        name,
                        "{documented} shares memory with {other}",
                        "give separate memory",
                        documented=documented,
                        other=self._documented[other],
                    )
            others[name] = array


def _tensor(name: str, value: Any) -> AclTensor:
    if isinstance(value, AclTensor):
        return value
    if (
        isinstance(value, np.ndarray)
        or hasattr(value, "__dlpack__")
        or hasattr(value, "__array_interface__")
    ):
        return AclTensor.from_array(value)
    raise TypeError(
        Text(
            "{name} is a {type_name}, not an AclTensor or an array",
            name=name,
            type_name=type(value).__name__,
        )
    )


CONVERSIONS: dict[type, Callable[[Any], Any]] = {
    IntArray: IntArray,
    bool: lambda value: bool(index(value)),
    int: index,
    float: lambda value: float(np.float32(value)),
}
"""Functions that convert attributes as C does, by kind; text is read apart."""


def _converted(attribute: Attribute, name: str, value: Any) -> Any:
    """Convert an attribute as C does; raise TypeError for a value that C would not compile."""
    if value is None:
        return None
    if attribute.kind in CONVERSIONS:
        return CONVERSIONS[attribute.kind](value)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if not isinstance(value, str):
        raise TypeError(
            Text("{name} is a {type_name}, not a str", name=name, type_name=type(value).__name__)
        )
    return value


@cache
def functions_of(declared: Operator) -> dict[str, Callable[..., Any]]:
    """Return both functions of an operator's declaration, and of its other forms, by name."""
    functions: dict[str, Callable[..., Any]] = {}
    for form in (declared, *declared.c_forms):
        functions |= Prototype(form).functions()
    return functions
