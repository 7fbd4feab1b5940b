"""What the device starts in a call: kernels in launch order, with the tensors that each reads and writes.

One list serves all: the workspace is laid out from the launches that are nodes of the executor, a timeline bounds every launch.
"""

from math import prod

from pydantic import Field

from npu_sim.numbers.formats import itemsize
from npu_sim.plans.answers import Evidence, Frozen
from npu_sim.plans.workspace_model import WorkspacePart


class LaunchTensor(Frozen):
    """A tensor as a kernel sees it.

    Attributes
    ----------
    name
        Name of the argument, or of the tensor between two kernels; views of one storage have one name.
    shape, dtype
        As the kernel sees it.
    intermediate
        Whether it lies in the workspace, not in the user's memory.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    intermediate: bool = False

    @property
    def bytes(self) -> int:
        """Bytes of all elements."""
        return prod(self.shape) * itemsize(self.dtype)

    def viewed(self, shape: tuple[int, ...], dtype: str = "") -> "LaunchTensor":
        """Return the same storage with another shape, and another dtype of the same size."""
        return LaunchTensor(
            name=self.name, shape=shape, dtype=dtype or self.dtype, intermediate=self.intermediate
        )


class Launch(Frozen):
    """One kernel that the device starts.

    Attributes
    ----------
    kernel
        Its name, as profilers print it.
    inputs, outputs
        Tensors it reads and writes; one that it adds to in place is an output.
    block_dim
        AI cores it is started on; None where that is not published, 0 where none runs it.
    is_node
        Whether it is a node of the executor; what a kernel's own launch starts besides it is none.
    evidence
        How sure it is that this kernel is launched here.
    note
        Remark.
    workspace
        The kernel's own workspace by part; empty when it has none. Printed with the workspace.
    """

    kernel: str
    inputs: tuple[LaunchTensor, ...] = ()
    outputs: tuple[LaunchTensor, ...] = ()
    block_dim: int | None = None
    is_node: bool = True
    evidence: Evidence = Evidence.EXACT
    note: str = ""
    workspace: tuple[WorkspacePart, ...] = Field(default=(), exclude=True)

    @property
    def read_bytes(self) -> int:
        """Bytes of the tensors it reads, every element once."""
        return sum(tensor.bytes for tensor in self.inputs)

    @property
    def written_bytes(self) -> int:
        """Bytes of the tensors it writes, every element once."""
        return sum(tensor.bytes for tensor in self.outputs)


def contiguous_copy(name: str, shape: tuple[int, ...], dtype: str, copy: str = "") -> Launch:
    """Return the launch that copies a tensor of the user to a contiguous one, by default named ``contiguous NAME``.

    Which kernel copies depends on the strides, which a plan does not know: the launch carries the name of the executor's step.
    """
    source = LaunchTensor(name=name, shape=shape, dtype=dtype)
    target = LaunchTensor(
        name=copy or f"contiguous {name}", shape=shape, dtype=dtype, intermediate=True
    )
    return Launch(kernel="Contiguous", inputs=(source,), outputs=(target,), evidence=Evidence.MODEL)
