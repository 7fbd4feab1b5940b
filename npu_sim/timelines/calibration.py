"""What a profile of a device says of that device, for estimates: its clock, what its memory moves, and how far its vector pipe is off.

Source: specification page ``estimate``, "A user's own profile".
"""

from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from npu_sim.cores import Profile
from npu_sim.files.yaml_document import read_yaml
from npu_sim.plans.answers import Frozen
from npu_sim.status import UsageError

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]

READS_AND_WRITES, READS_ONLY, WRITES_ONLY = "reads and writes", "reads only", "writes only"
KINDS = (READS_AND_WRITES, READS_ONLY, WRITES_ONLY)
"""Kinds of launches that stream through memory, each with a ceiling of its own (page, "Streaming
launches")."""


class Ceiling(Frozen):
    """What launches of one kind move.

    Attributes
    ----------
    tb_per_s
        Bytes read and written over duration, 10^12 bytes a second, the median over shapes.
    shapes
        Shapes it is from.
    low_error, high_error
        The least and the largest error of a shape's duration told from the other shapes; None with
        a single one.
    """

    tb_per_s: Positive
    shapes: Annotated[int, Field(ge=1)]
    low_error: float | None = None
    high_error: float | None = None


class Calibration(Frozen):
    """A calibration: what ``npu-sim profile --calibrate`` writes.

    Attributes
    ----------
    source
        Name of the profile's file.
    soc, release
        What it was read as.
    vector_cores
        Vector cores of the device.
    clock_mhz
        Clock of the vector cores.
    vector_shapes
        Shapes whose counters agree with each other on how far vector estimates are off; 0 where
        they do not, or are too few.
    vector_factor
        What vector cycles are multiplied by; None where the published numbers stay.
    ceilings
        By kind.
    """

    source: str
    soc: str
    release: str
    vector_cores: Annotated[int, Field(ge=1)]
    clock_mhz: Positive
    vector_shapes: Annotated[int, Field(ge=0)] = 0
    vector_factor: Positive | None = None
    ceilings: dict[str, Ceiling] = Field(default_factory=dict)

    def require_device(self, profile: Profile) -> None:
        """Refuse a SoC that the calibration cannot be of.

        Raises
        ------
        UsageError
            When the SoC has another number of vector cores.
        """
        cores = profile.chip.vector_cores
        if cores != self.vector_cores:
            message = f"the calibration from {self.source} is of a device with {self.vector_cores} vector cores, {profile.soc} has {cores}"
            raise UsageError(
                "calibration",
                message,
                f'soc="{self.soc}", or calibrate on a profile of {profile.soc}',
            )


def load_calibration(file: str | Path) -> Calibration:
    """Read a calibration.

    Raises
    ------
    UsageError
        For a file that cannot be read or is no calibration; the message names file, line and key.
    """
    document = read_yaml(Path(file), "calibration", "name what npu-sim profile --calibrate wrote")
    try:
        return Calibration.model_validate(dict(document.data))
    except ValidationError as error:
        raise document.validation_error(
            error, Calibration.model_fields, Ceiling.model_fields
        ) from None
