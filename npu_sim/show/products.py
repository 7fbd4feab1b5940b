"""Products as text."""

from rich.console import Group, RenderableType

from npu_sim.cores import Profile, config_directory
from npu_sim.language import Text, Verbatim, grouped, joined, say
from npu_sim.questions.products import Products
from npu_sim.questions.varied_calls import operators_of
from npu_sim.show import view_of
from npu_sim.show.forms.layout import Column, Paragraph, Table, lines_table, stack

KIB = 1024
SOC_COLUMNS = (
    Column("SoC", lambda profile: profile.soc + _default_mark(profile), key=True),
    Column("vector", lambda profile: str(profile.chip.vector_cores), right=True),
    Column("cube", lambda profile: str(profile.chip.cube_cores), right=True),
    Column("UB KiB", lambda profile: f"{profile.chip.ub_bytes / KIB:g}", right=True),
    Column("L1 KiB", lambda profile: f"{profile.chip.l1_bytes / KIB:g}", right=True),
    Column("L0C KiB", lambda profile: f"{profile.chip.l0c_bytes / KIB:g}", right=True),
    Column("L2 MiB", lambda profile: f"{profile.chip.l2_bytes / KIB**2:g}", right=True),
    Column("HBM GiB", lambda profile: _memory(profile.chip.memory_bytes), right=True),
    Column("MHz", lambda profile: f"{profile.chip.cube_clock_mhz:g}", right=True),
)


@view_of.register
def products_view(answer: Products) -> Group:
    """Return products as a rich renderable."""
    parts: list[RenderableType] = []
    for profile in answer.profiles:
        product = profile.product
        modelled, others = operators_of(profile)
        overflow = "saturates: no inf, no nan" if profile.saturates else "inf and nan kept"
        lines = [
            ("dtypes", joined((Verbatim(", ".join(product.dtypes)), overflow))),
            ("operators", ", ".join(modelled)),
        ]
        for reason, names in grouped((why, name) for name, why in others.items()).items():
            without = Text("{names}: {reason}", names=Verbatim(", ".join(names)), reason=reason)
            lines.append(("not modelled", without))
        if product.oldest_release:
            lines.append(("releases", say("from {release} on", release=product.oldest_release)))
        if product.rules_source:
            lines.append(("rules", product.rules_source))
        parts += [
            Paragraph(
                f"{product.name}: {product.title} ({product.title_zh})", "bold", is_line=True
            ),
            Table(SOC_COLUMNS, [profile.with_soc(name) for name in product.socs]),
            lines_table(lines),
            "",
        ]
    return stack(
        *parts,
        Paragraph(
            "vector, cube: cores a vector or cube operator is spread over; * the default SoC; ? "
            "not published",
            "dim",
        ),
        Paragraph(
            say(
                "a chip of your own: copy a file of {folder}, change it, and name it: {option}",
                folder=Verbatim(config_directory()),
                option=Verbatim("--product my_chip.yaml"),
            ),
            "dim",
        ),
    )


def _default_mark(profile: Profile) -> str:
    return " *" if profile.soc == profile.product.default_soc else ""


def _memory(memory_bytes: int | None) -> str:
    return f"{memory_bytes / KIB**3:.0f}" if memory_bytes is not None else "?"
