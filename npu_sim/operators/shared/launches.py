"""Launches of operators of several kernels, collected in launch order."""

from typing import Any

from npu_sim.framework.vocabulary import (
    Case,
    Launch,
    LaunchTensor,
    TensorSpec,
    WorkspacePart,
    contiguous_copy,
    intermediate,
)


class Executor:
    """Collects the launches of a call, as the product's executor does."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.launches: list[Launch] = []

    def run(
        self,
        kernel: str,
        inputs: tuple[LaunchTensor, ...],
        output: LaunchTensor,
        *parts: WorkspacePart,
        **fields: Any,
    ) -> LaunchTensor:
        """Append a kernel, with other fields of its launch; return its output."""
        self.launches.append(
            Launch(kernel=kernel, inputs=inputs, outputs=(output,), workspace=parts, **fields)
        )
        return output

    def contiguous(self, name: str, spec: TensorSpec) -> LaunchTensor:
        """Append the copy of an input that is not contiguous; return what kernels read."""
        if spec.contiguous:
            return LaunchTensor(name=name, shape=spec.shape, dtype=spec.dtype)
        self.launches.append(contiguous_copy(name, spec.shape, spec.dtype))
        return self.launches[-1].outputs[0]

    def cast(self, source: LaunchTensor, name: str, dtype: str, **fields: Any) -> LaunchTensor:
        """Append a Cast to a tensor of this name if the dtype differs."""
        if source.dtype == dtype:
            return source
        return self.run("Cast", (source,), intermediate(name, source.shape, dtype), **fields)
