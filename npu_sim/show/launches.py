"""Launches as rows: what the device starts, with what it reads and writes."""

from collections.abc import Sequence

from npu_sim.language import joined, translated
from npu_sim.numbers.formats import TensorSpec
from npu_sim.plans.launches import Launch, LaunchTensor

HEADINGS = (
    "launch",
    "kernel",
    "reads",
    "writes",
    "bytes read",
    "bytes written",
    "cores",
    "evidence",
)


def tensors_text(tensors: Sequence[LaunchTensor]) -> str:
    """Return tensors with shape and dtype: ``grad 4096x512:bf16, indices 4096:int32``."""
    return joined(
        (
            f"{name_text(tensor.name)} {TensorSpec(tensor.shape, tensor.dtype)}"
            for tensor in tensors
        ),
        ", ",
    )


def name_text(name: str) -> str:
    """Return the name of an argument as it is, and what else a tensor is called, in the language that is spoken."""
    return translated(name) if " " in name else name


def launch_rows(launches: Sequence[Launch]) -> list[tuple[str, ...]]:
    """Return one row for every launch, under ``HEADINGS``."""
    return [
        (
            str(number),
            launch.kernel,
            tensors_text(launch.inputs),
            tensors_text(launch.outputs),
            str(launch.read_bytes),
            str(launch.written_bytes),
            "" if launch.block_dim is None else str(launch.block_dim),
            launch.evidence.value + (f"; {launch.note}" if launch.note else ""),
        )
        for number, launch in enumerate(launches)
    ]
