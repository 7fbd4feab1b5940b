"""Workspace of a call: its layout, and arrays over its areas.

An operator made of several kernels keeps its intermediate tensors in the workspace; areas whose
lifetimes do not overlap share a bucket. Source: specification page ``workspace``.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from npu_sim.language import Text, joined
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import (
    Launch,
    Workspace,
    WorkspaceArea,
    WorkspaceBucket,
    WorkspaceNode,
    WorkspacePart,
)

ALIGNMENT_BYTES = 512
"""Every area starts at a multiple of this (page, "Align")."""
PADDING_BYTES = 32
"""Bytes added before rounding up (page, "Align")."""


class Entry(NamedTuple):
    """An area of the workspace and the nodes between which it lives, both included.

    ``kernel_parts`` are the parts of a kernel's workspace; None for a tensor, which is one part.
    """

    name: str
    bytes: int
    first_node: int
    last_node: int
    kernel_parts: tuple[WorkspacePart, ...] | None = None

    def parts(self, note: str) -> tuple[WorkspacePart, ...]:
        """Return the parts, with a note if there is one."""
        if self.kernel_parts is None:
            part = WorkspacePart(name=self.name, bytes=self.bytes, kind="intermediate", note=note)
            return (part,)
        if not note:
            return self.kernel_parts
        return tuple(part.model_copy(update={"note": note}) for part in self.kernel_parts)


class Bucket(NamedTuple):
    """Memory that entries use one after the other: its largest entry, and its size with padding."""

    entries: tuple[Entry, ...]
    largest: Entry
    bytes: int


def bucket_of(entries: Sequence[Entry]) -> Bucket:
    """Return the bucket of some entries: as large as the largest of them, aligned."""
    largest = max(entries, key=lambda entry: entry.bytes)
    return Bucket(tuple(entries), largest, aligned_bytes(largest.bytes))


def aligned_bytes(size: int) -> int:
    """Return ``n + 32 + 511`` rounded down to a multiple of 512; an empty tensor takes 512."""
    return (size + PADDING_BYTES + ALIGNMENT_BYTES - 1) // ALIGNMENT_BYTES * ALIGNMENT_BYTES


def executor_entries(nodes: Sequence[Launch]) -> tuple[Entry, ...]:
    """Return the areas node by node: a kernel's workspace, then its intermediate outputs."""
    last_use = {
        tensor.name: index
        for index, node in enumerate(nodes)
        for tensor in (*node.inputs, *node.outputs)
    }
    entries, placed = [], set()
    for index, node in enumerate(nodes):
        known = tuple(part for part in node.workspace if part.evidence is not Evidence.UNKNOWN)
        if known:
            entries.append(
                Entry(
                    Text("workspace of {kernel}", kernel=node.kernel),
                    _bytes_of(known),
                    index,
                    index,
                    known,
                )
            )
        for tensor in node.outputs:
            # A later node may write a tensor in place, which already has its area.
            if tensor.intermediate and tensor.name not in placed:
                placed.add(tensor.name)
                entries.append(Entry(tensor.name, tensor.bytes, index, last_use[tensor.name]))
    return tuple(entries)


def _bytes_of(parts: Sequence[WorkspacePart]) -> int:
    return sum(part.bytes for part in parts)


def place(entries: Sequence[Entry]) -> tuple[Bucket, ...]:
    """Assign entries in order to the last bucket whose latest entry has ended, or a new one."""
    buckets: list[list[Entry]] = []
    for entry in entries:
        free = [earlier for earlier in buckets if earlier[-1].last_node < entry.first_node]
        if free:
            free[-1].append(entry)
        else:
            buckets.append([entry])
    return tuple(map(bucket_of, buckets))


def _laid_out(
    placed: Sequence[Bucket],
    nodes: Iterable[WorkspaceNode],
    kernel_bytes: int,
    unknown: Iterable[WorkspacePart] = (),
) -> Workspace:
    """Return the workspace of buckets at consecutive offsets.

    ``unknown`` are the parts whose size is not known. Areas are in order of first use.
    """
    parts: list[WorkspacePart] = []
    areas, buckets, start, alignment = [], [], 0, 0
    for number, (entries, largest, size) in enumerate(placed):
        for entry in entries:
            offset = start
            for part in (entry,) if entry.kernel_parts is None else entry.kernel_parts:
                areas.append(
                    WorkspaceArea(
                        name=part.name,
                        offset=offset,
                        bytes=part.bytes,
                        bucket=number,
                        first_node=entry.first_node,
                        last_node=entry.last_node,
                    )
                )
                offset += part.bytes
        others = [entry.name for entry in entries if entry is not largest]
        parts += largest.parts(
            Text("shares its memory with: {others}", others=joined(others, ", ")) if others else ""
        )
        alignment += size - largest.bytes
        buckets.append(WorkspaceBucket(offset=start, bytes=size))
        start += size
    if alignment:
        parts.append(WorkspacePart(name="alignment", bytes=alignment, kind="alignment"))
    return Workspace(
        total_bytes=start,
        kernel_bytes=kernel_bytes,
        parts=(*parts, *unknown),
        nodes=tuple(nodes),
        areas=tuple(sorted(areas, key=lambda area: area.first_node)),
        buckets=tuple(buckets),
    )


def executor_workspace(launches: Sequence[Launch], kernel_bytes: int) -> Workspace:
    """Return size and parts of the workspace of several kernels.

    - ``launches``: the kernels in launch order; launches that are not nodes need no workspace.
    - ``kernel_bytes``: workspace of the main kernel alone, from its tiling.
    """
    nodes = [launch for launch in launches if launch.is_node]
    unknown = [
        part for node in nodes for part in node.workspace if part.evidence is Evidence.UNKNOWN
    ]
    placed = place(executor_entries(nodes))
    return _laid_out(placed, map(workspace_node, nodes), kernel_bytes, unknown)


def workspace_node(node: Launch) -> WorkspaceNode:
    """Return a node as the workspace shows it."""
    return WorkspaceNode(
        name=node.kernel,
        inputs=tuple(tensor.name for tensor in node.inputs),
        outputs=tuple(tensor.name for tensor in node.outputs if tensor.intermediate),
        workspace=node.workspace,
    )


def kernel_workspace(
    parts: Sequence[WorkspacePart], copies: Sequence[Launch], kernel: str = "kernel"
) -> Workspace:
    """Return the workspace of a single kernel, with a copy of every non-contiguous input.

    - ``parts``: the kernel's own workspace by part.
    - ``copies``: launches that make inputs contiguous, each copy aligned and never sharing memory.
    - ``kernel``: name of the kernel.
    """
    last = len(copies)
    copied = [
        Entry(tensor.name, tensor.bytes, index, last)
        for index, copy in enumerate(copies)
        for tensor in copy.outputs
    ]
    entry = Entry(kernel, _bytes_of(parts), last, last, tuple(parts))
    node = WorkspaceNode(
        name=kernel, inputs=tuple(entry.name for entry in copied), workspace=tuple(parts)
    )
    placed = [Bucket((entry,), entry, entry.bytes), *(bucket_of([copy]) for copy in copied)]
    return _laid_out(placed, [*map(workspace_node, copies), node], entry.bytes)
