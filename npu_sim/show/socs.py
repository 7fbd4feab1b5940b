"""Names of SoCs in a row of a table."""

from collections.abc import Sequence

FAMILY = "Ascend"


def socs_text(names: Sequence[str]) -> str:
    """Return SoCs as they can be typed, the name of the family once: ``Ascend910B1, 910B2, 910B2C``."""
    return ", ".join(
        name if number == 0 else name.removeprefix(FAMILY) for number, name in enumerate(names)
    )
