"""One measured launch of a kernel, as recorded by the vendor's profilers."""

from dataclasses import dataclass
from itertools import zip_longest

from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.status import UsageError

MISSING = ("", "N/A", "NA", "NULL")
"""Texts that profilers write for a missing value."""
DTYPES = {
    "FLOAT": "float32",
    "FLOAT32": "float32",
    "FLOAT16": "float16",
    "BF16": "bfloat16",
    "BFLOAT16": "bfloat16",
} | {name.upper(): name for name in ("float64", "int8", "uint8", "int16", "int32", "int64", "bool")}
"""dtypes by the profiler's name, without the prefix ``DT_`` of some rows."""


COUNTERS = (
    "aiv_total_cycles",
    "aiv_time",
    "aiv_vec_time",
    "aiv_mte2_time",
    "aiv_mte3_time",
    "aiv_scalar_time",
)
"""Hardware counters that are read: cycles, and times in microseconds; others are ignored."""
MOST_LAUNCHES = 2_000_000
"""Most launches of a profile; each takes about 500 bytes of memory."""


@dataclass(frozen=True, slots=True)
class MeasuredLaunch:
    """One launch of a kernel on a device."""

    line: int
    """Line in the file, or row number in a database."""
    kernel: str
    """Type of the kernel."""
    name: str
    """Name of the launch."""
    duration_us: float
    """Measured time in microseconds."""
    start_us: float = 0.0
    """Start time in microseconds; 0 if not recorded."""
    block_dim: int | None = None
    """Number of blocks; None if not recorded."""
    inputs: tuple[TensorSpec | None, ...] | None = None
    """Input tensors; None if not recorded, an element None for an unsupported dtype."""
    outputs: tuple[TensorSpec | None, ...] | None = None
    """Output tensors, likewise."""
    stream: str = ""
    """Device and stream, as ``device/stream``."""
    core: str = ""
    """Kind of core, as the profiler names it."""
    counters: tuple[float, ...] = ()
    """Hardware counters in the order of ``COUNTERS``, 0 where not recorded; empty without any."""

    @property
    def is_vector(self) -> bool:
        """Whether the launch ran on vector cores.

        True also when the core is not recorded, since most modelled kernels run on vector cores.
        """
        return "CUBE" not in self.core.upper() and self.core.upper() not in (
            "AI_CORE",
            "MIX_AIC",
            "AI_CPU",
            "COMMUNICATION",
            "HCCL",
        )

    def counter(self, name: str) -> float:
        """Return a counter; 0 if not recorded."""
        return self.counters[COUNTERS.index(name)] if self.counters else 0.0


def tensors_of(shapes: str, dtypes: str, formats: str) -> tuple[TensorSpec | None, ...] | None:
    """Return the tensors of a row; None if not recorded, an element None for an unsupported dtype.

    Axes are separated by commas and tensors by semicolons, in quotes or brackets; an empty shape is
    a scalar.

    Raises ValueError for a malformed shape, or a different number of shapes and dtypes.
    """
    if shapes.strip().upper() in MISSING or dtypes.strip().upper() in MISSING:
        return None
    texts = shapes.strip().strip('"').split(";")
    names = [
        name.strip().upper().removeprefix("DT_") for name in dtypes.strip().strip('"').split(";")
    ]
    if len(texts) != len(names):
        raise ValueError(
            Text("{shapes} shapes for {dtypes} dtypes", shapes=len(texts), dtypes=len(names))
        )
    layouts = [name.strip().upper() for name in formats.strip().strip('"').split(";")]
    tensors: list[TensorSpec | None] = []
    for text, name, layout in zip_longest(texts, names, layouts[: len(names)], fillvalue=""):
        shape, layout = _shape(text), "ND" if layout in MISSING else layout
        known = name in DTYPES
        tensors.append(TensorSpec(shape, DTYPES[name], storage_format=layout) if known else None)
    return tuple(tensors)


def _shape(text: str) -> tuple[int, ...]:
    axes = [axis.strip() for axis in text.strip().strip('"').strip("[]()").split(",")]
    if axes == [""]:
        return ()
    if any(not axis.isdecimal() for axis in axes):
        raise ValueError(Text("{text} is not a shape", text=repr(text)))
    return tuple(map(int, axes))


def refuse_more_launches(file: object, launches: int) -> None:
    """Raise a usage error when a profile has more than ``MOST_LAUNCHES`` launches."""
    if launches > MOST_LAUNCHES:
        message = Text("{file}: more than {most} launches", file=file, most=MOST_LAUNCHES)
        raise UsageError("file", message, "a part of the file, such as a few steps of the training")


def counter_name(name: str) -> str:
    """Return the name of a counter without its unit."""
    return name.partition("(")[0].strip()
