"""``npu-sim products``: what can be simulated."""

from typing import TYPE_CHECKING, Annotated

import typer

from npu_sim.cli.json_output import print_json
from npu_sim.cli.options import Json

if TYPE_CHECKING:
    from npu_sim.cores import Profile

KIB = 1024

ProductArgument = Annotated[list[str] | None, typer.Argument(help="Products or profile files; all shipped ones when left out.")]


def products_command(products: ProductArgument = None, json_output: Json = False) -> None:
    """List products, SoCs, cores, buffers, dtypes and supported operators."""
    from npu_sim.cores import load_profile, shipped_products

    profiles = [load_profile(name) for name in products or shipped_products()]
    if json_output:
        print_json("products", {"products": [one.product.model_dump(mode="json") for one in profiles]})
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    for profile in profiles:
        product = profile.product
        console.print(f"{product.name}: {product.title} ({product.title_zh})", style="bold")
        table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
        for heading in ("SoC", "vector", "cube", "UB KiB", "L1 KiB", "L0C KiB", "L2 MiB", "HBM GiB", "MHz"):
            table.add_column(heading, justify="left" if heading == "SoC" else "right", overflow="fold")
        for name in product.socs:
            table.add_row(*_soc_row(profile.with_soc(name), default=name == product.default_soc))
        console.print(table)
        overflow = "saturates: no inf, no nan" if profile.saturates else "inf and nan kept"
        console.print(f"dtypes     {', '.join(product.dtypes)}; {overflow}")
        console.print(f"operators  {', '.join(product.operators)}\n")
    console.print("vector, cube: cores a vector or cube operator is spread over; * the default SoC; ? not published", style="dim")


def _soc_row(profile: "Profile", default: bool) -> list[str]:
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
