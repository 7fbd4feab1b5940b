"""One launch of a kernel on a device, as profilers write it."""

from collections.abc import Mapping
from dataclasses import dataclass

from npu_sim.numbers.formats import TensorSpec

MISSING = ("", "N/A", "NA", "NULL")
"""What profilers write where they have no value."""
DTYPES = {
    "FLOAT": "float32",
    "FLOAT32": "float32",
    "FLOAT16": "float16",
    "BF16": "bfloat16",
    "BFLOAT16": "bfloat16",
} | {name.upper(): name for name in ("float64", "int8", "uint8", "int16", "int32", "int64", "bool")}
"""Names of dtypes, without the ``DT_`` that some rows put before them."""


@dataclass(frozen=True)
class MeasuredLaunch:
    """One launch of a kernel on a device.

    Attributes
    ----------
    line
        Line of the file it stands in; the number of the row in a database.
    kernel, name
        Type of the kernel, and name of the launch.
    duration_us, start_us
        Measured time, and when it began; 0 where the file does not say.
    block_dim
        Blocks it ran on; None where the file does not say.
    inputs, outputs
        Tensors; None where the file does not say, and for a dtype that is none of ours.
    stream
        Stream it ran in, on which device.
    core
        Kind of core that it ran on, in the profiler's words.
    counters
        The file's counters by name: times in microseconds, cycles, ratios.
    """

    line: int
    kernel: str
    name: str
    duration_us: float
    start_us: float = 0.0
    block_dim: int | None = None
    inputs: tuple[TensorSpec | None, ...] | None = None
    outputs: tuple[TensorSpec | None, ...] | None = None
    stream: str = ""
    core: str = ""
    counters: Mapping[str, float] | None = None

    @property
    def is_vector(self) -> bool:
        """Whether its blocks are vector cores, as far as the file says it."""
        return "CUBE" not in self.core.upper() and self.core.upper() not in (
            "AI_CORE",
            "MIX_AIC",
            "AI_CPU",
            "COMMUNICATION",
            "HCCL",
        )

    def counter(self, name: str) -> float:
        """Return a counter; 0 where the file does not have it."""
        return (self.counters or {}).get(name, 0.0)


def tensors_of(shapes: str, dtypes: str, formats: str) -> tuple[TensorSpec | None, ...] | None:
    """Return the tensors of a row; None where it does not say them.

    Shapes stand with commas between the axes and semicolons between tensors, within quotes or brackets; nothing is a scalar.

    Raises
    ------
    ValueError
        For a shape that is none.
    """
    if shapes.strip().upper() in MISSING or dtypes.strip().upper() in MISSING:
        return None
    texts = shapes.strip().strip('"').split(";")
    names = [
        name.strip().upper().removeprefix("DT_") for name in dtypes.strip().strip('"').split(";")
    ]
    kinds = [name.strip().upper() for name in formats.strip().strip('"').split(";")]
    found: list[TensorSpec | None] = []
    for place, name in enumerate(names):
        shape = _shape(texts[place] if place < len(texts) else "")
        kind = kinds[place] if place < len(kinds) and kinds[place] not in MISSING else "ND"
        found.append(
            TensorSpec(shape, DTYPES[name], storage_format=kind) if name in DTYPES else None
        )
    return tuple(found)


def _shape(text: str) -> tuple[int, ...]:
    axes = [axis.strip() for axis in text.strip().strip('"').strip("[]()").split(",")]
    if axes == [""]:
        return ()
    if any(not axis.isdecimal() for axis in axes):
        raise ValueError(f"{text!r} is not a shape")
    return tuple(map(int, axes))


def counter_name(name: str) -> str:
    """Return the name of a counter without its unit."""
    return name.partition("(")[0].strip()
