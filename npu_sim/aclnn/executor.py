"""Executors: checked and planned calls between the two stages.

As in the product, the second stage releases an executor unless
:func:`aclSetAclOpExecutorRepeatable` made it repeatable. Using a released executor returns 161002;
the documents do not define the behaviour. An error before the computation (workspace missing or too
small) leaves the executor usable; data out of bounds (361001) releases it.
"""

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npu_sim.aclnn.enums import ACL_SUCCESS
from npu_sim.framework.case import Case
from npu_sim.framework.execution import Result, compute_case
from npu_sim.framework.operator import Operator
from npu_sim.language import Text
from npu_sim.plans.model import Plan, Workspace
from npu_sim.status import INNER_NULL_POINTER, INVALID, NULL_POINTER, AclnnError

Array = np.ndarray[Any, Any]
_computing = threading.Lock()
"""Held while a call computes: calls of several threads may use one workspace."""
WORKSPACE_ALIGNMENT = 8
"""Bytes: the size of the largest element stored in it."""


@dataclass(eq=False)
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
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

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
            self._require_memory(output.output, array)
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
                    "executor was released by an earlier call of the second stage",
                    "call the first stage again, or aclSetAclOpExecutorRepeatable after it",
                )
            self.released = not self.repeatable

    def _check_workspace(self, workspace: Any, workspace_size: int) -> None:
        """Check the memory of the workspace, which the simulator neither reads nor writes."""
        needed = self.workspace.total_bytes
        if needed == 0:
            return
        hint = Text("the first stage returned {needed} bytes", needed=needed)
        if workspace is None:
            raise AclnnError(
                NULL_POINTER,
                "workspace",
                Text("workspace is missing: {needed} bytes are needed", needed=needed),
                hint,
            )
        memory = _writable_bytes(workspace)
        if workspace_size < needed:
            raise AclnnError(
                INVALID,
                "workspaceSize",
                Text(
                    "workspaceSize = {workspace_size} is too small", workspace_size=workspace_size
                ),
                hint,
            )
        if memory.size < workspace_size:
            raise AclnnError(
                INVALID,
                "workspace",
                Text(
                    "workspace has {size} bytes, but workspaceSize is {workspace_size}",
                    size=memory.size,
                    workspace_size=workspace_size,
                ),
                hint,
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
