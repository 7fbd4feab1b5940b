"""The data model of a workspace: its parts, the kernels that use it, and what lies where and how long."""

from typing import Literal

from npu_sim.plans.answers import Evidence, Frozen
from npu_sim.plans.printing import Printed


class WorkspacePart(Frozen):
    """One part of the workspace in global memory.

    Attributes
    ----------
    name
        What it is.
    bytes
        Size as it counts in the total; 0 for ``unknown`` parts.
    kind
        ``system``, ``kernel`` (the kernel's own areas), ``intermediate`` (a tensor between two kernels) or ``alignment``.
    evidence
        How sure the size is.
    note
        Remark, for instance which tensors share the bytes.
    """

    name: str
    bytes: int
    kind: Literal["system", "kernel", "intermediate", "alignment"]
    evidence: Evidence = Evidence.EXACT
    note: str = ""


class WorkspaceNode(Frozen):
    """One kernel of a call, in launch order; nodes are numbered from 0.

    Attributes
    ----------
    name
        Name of the kernel.
    inputs
        Tensors it reads; those that no earlier node wrote belong to the user.
    outputs
        Intermediate tensors it writes; what goes to the user's own memory is not listed.
    workspace
        Its own workspace by part; empty when it has none.
    """

    name: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    workspace: tuple[WorkspacePart, ...] = ()


class WorkspaceArea(Frozen):
    """Where a tensor or a kernel's own area lies in the workspace, and how long.

    Attributes
    ----------
    name
        What lies there: the name of a tensor, or of a part of a kernel's own workspace.
    offset, bytes
        Place, from the start of the workspace, and size without padding.
    bucket
        Position in :attr:`Workspace.buckets`.
    first_node, last_node
        The nodes between which it lives, both included.
    """

    name: str
    offset: int
    bytes: int
    bucket: int
    first_node: int
    last_node: int


class WorkspaceBucket(Frozen):
    """Memory that areas use one after the other: place and size with padding."""

    offset: int
    bytes: int


class Workspace(Printed, Frozen):
    """What the first-stage call returns, with its parts.

    Attributes
    ----------
    total_bytes
        Size a user must allocate, without the unknown parts.
    kernel_bytes
        The main kernel's own workspace, from its tiling.
    parts
        The parts; their bytes add up to ``total_bytes``.
    nodes
        The kernels of the call; empty when nothing runs.
    areas
        What lies where and how long; areas of one bucket share its memory.
    buckets
        The memory the areas share; their bytes add up to ``total_bytes``.
    """

    total_bytes: int
    kernel_bytes: int
    parts: tuple[WorkspacePart, ...]
    nodes: tuple[WorkspaceNode, ...] = ()
    areas: tuple[WorkspaceArea, ...] = ()
    buckets: tuple[WorkspaceBucket, ...] = ()

    @property
    def unknown(self) -> tuple[WorkspacePart, ...]:
        """Parts whose size is not published."""
        return tuple(part for part in self.parts if part.evidence is Evidence.UNKNOWN)
