"""Products as text."""

from collections.abc import Sequence

from rich.console import Group, RenderableType

from npu_sim.cores import Profile
from npu_sim.language import Verbatim, joined
from npu_sim.questions.varied_calls import operators_of
from npu_sim.show.layout import Column, Paragraph, Table, lines_table, stack

KIB = 1024
SOC_COLUMNS = (
    Column("SoC", key=True),
    *(
        Column(name, right=True)
        for name in ("vector", "cube", "UB KiB", "L1 KiB", "L0C KiB", "L2 MiB", "HBM GiB", "MHz")
    ),
)


def products_view(profiles: Sequence[Profile]) -> Group:
    """Return products as a rich renderable."""
    parts: list[RenderableType] = []
    for profile in profiles:
        product = profile.product
        modelled, others = operators_of(profile)
        overflow = "saturates: no inf, no nan" if profile.saturates else "inf and nan kept"
        parts += [
            Paragraph(
                f"{product.name}: {product.title} ({product.title_zh})", "bold", is_line=True
            ),
            Table(
                SOC_COLUMNS,
                [
                    _soc_row(profile.with_soc(name), default=name == product.default_soc)
                    for name in product.socs
                ],
            ),
            lines_table(
                [
                    ("dtypes", joined((Verbatim(", ".join(product.dtypes)), overflow))),
                    ("operators", ", ".join(modelled)),
                    *([("not modelled", ", ".join(others))] if others else []),
                    *([("rules", product.rules_source)] if product.rules_source else []),
                ]
            ),
            "",
        ]
    return stack(
        *parts,
        Paragraph(
            "vector, cube: cores a vector or cube operator is spread over; * the default SoC; ? "
            "not published",
            "dim",
        ),
    )


def _soc_row(profile: Profile, default: bool) -> list[str]:
    chip = profile.chip
    return [
        profile.soc + (" *" if default else ""),
        str(chip.vector_cores),
        str(chip.cube_cores),
        f"{chip.ub_bytes / KIB:g}",
        f"{chip.l1_bytes / KIB:g}",
        f"{chip.l0c_bytes / KIB:g}",
        f"{chip.l2_bytes / KIB**2:g}",
        f"{chip.memory_bytes / KIB**3:.0f}" if chip.memory_bytes is not None else "?",
        f"{chip.cube_clock_mhz:g}",
    ]
