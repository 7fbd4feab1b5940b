"""Products with their SoCs, dtypes and operators: ``npu_sim.products``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npu_sim.cores import Profile, load_profile, shipped_products
from npu_sim.plans.answers import Printed
from npu_sim.questions.varied_calls import operators_of
from npu_sim.status import without_internal_frames


@dataclass(frozen=True, repr=False)
class Products(Printed):
    """Products, each with all its SoCs."""

    profiles: tuple[Profile, ...]
    """Each product with its default SoC; ``product.socs`` has the others."""

    def as_dict(self) -> dict[str, Any]:
        """Return the products as plain data, the form ``--json`` prints."""
        rows = []
        for profile in self.profiles:
            modelled, others = operators_of(profile)
            row = profile.product.model_dump(mode="json")
            rows.append(row | {"operators": modelled, "not_modelled": others})
        return {"products": rows}


@without_internal_frames
def products(*names: str | Path) -> Products:
    """Return products, SoCs, cores, buffers, dtypes and supported operators.

    Parameters
    ----------
    *names
        Products or profile files; all shipped ones when left out.

    Raises
    ------
    UsageError
        For an unknown product, and for a file that cannot be read.
    """
    return Products(tuple(load_profile(name) for name in names or shipped_products()))
