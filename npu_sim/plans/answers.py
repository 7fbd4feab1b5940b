"""What all answers share: they are frozen, and they say how sure they are."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Base of answers and of their parts: nothing in them changes, and nothing unknown is in them."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Evidence(StrEnum):
    """How sure a result is."""

    EXACT = "exact"
    """The product's published rule, reproduced."""
    MODEL = "model"
    """Our model of something the vendor does not publish."""
    UNKNOWN = "unknown"
    """Not published and not modelled; counted as 0 and named."""
