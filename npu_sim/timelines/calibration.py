"""Calibration of estimates from a profile of a device: clock, memory ceilings, vector factor.

Source: specification page ``estimate``, "A user's own profile".
"""

from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from npu_sim.cores import Profile
from npu_sim.files.yaml_document import read_yaml
from npu_sim.language import Text
from npu_sim.plans.answers import Frozen
from npu_sim.status import UsageError

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]

READS_AND_WRITES, READS_ONLY, WRITES_ONLY = "reads and writes", "reads only", "writes only"
KINDS = (READS_AND_WRITES, READS_ONLY, WRITES_ONLY)
"""Kinds of launches that stream through memory; each has its own ceiling (page, "Streaming
launches")."""


class Ceiling(Frozen):
    """Memory throughput of launches of one kind."""

    tb_per_s: Positive
    """Bytes read and written over duration, in 10^12 bytes per second; the median over shapes."""
    shapes: Annotated[int, Field(ge=1)]
    """Number of shapes."""
    low_error: float | None = None
    """Smallest error of a shape's duration predicted from the other shapes; None with one shape."""
    high_error: float | None = None
    """Largest such error."""


class Calibration(Frozen):
    """A calibration, as written by ``npu-sim profile --calibrate``."""

    source: str
    """Name of the profile's file."""
    soc: str
    """SoC assumed for the profile."""
    release: str
    """Release assumed for the profile."""
    vector_cores: Annotated[int, Field(ge=1)]
    """Vector cores of the device."""
    clock_mhz: Positive
    """Clock of the vector cores."""
    vector_shapes: Annotated[int, Field(ge=0)] = 0
    """Number of shapes whose counters agree on the error of vector estimates; 0 when they differ or
    are too few."""
    vector_factor: Positive | None = None
    """Factor for vector cycles; None when the published numbers are used."""
    ceilings: dict[str, Ceiling] = Field(default_factory=dict)
    """Memory ceilings by kind of launch."""

    def require_device(self, profile: Profile) -> None:
        """Check that the calibration can belong to a SoC.

        Raises UsageError when the SoC has a different number of vector cores.
        """
        cores = profile.chip.vector_cores
        if cores != self.vector_cores:
            message = Text(
                "the calibration from {source} is of a device with {vector_cores} vector cores, "
                "{soc} has {cores}",
                source=self.source,
                vector_cores=self.vector_cores,
                soc=profile.soc,
                cores=cores,
            )
            hint = Text(
                'soc="{soc}", or calibrate on a profile of {device}',
                soc=self.soc,
                device=profile.soc,
            )
            raise UsageError("calibration", message, hint)


def load_calibration(file: str | Path) -> Calibration:
    """Read a calibration.

    Raises UsageError for a file that is unreadable or no calibration; the message names file, line
    and key.
    """
    document = read_yaml(Path(file), "calibration", "name what npu-sim profile --calibrate wrote")
    try:
        return Calibration.model_validate(dict(document.data))
    except ValidationError as error:
        raise document.validation_error(
            error, Calibration.model_fields, Ceiling.model_fields
        ) from None
