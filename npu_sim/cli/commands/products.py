"""``npu-sim products``: what can be simulated."""

from typing import Annotated

import typer

from npu_sim.cli.options import Json
from npu_sim.cli.output import print_json, print_text

ProductArgument = Annotated[
    list[str] | None,
    typer.Argument(help="Products or profile files; all shipped ones when left out."),
]


def products_command(products: ProductArgument = None, json_output: Json = False) -> None:
    """List products, SoCs, cores, buffers, dtypes and supported operators."""
    from npu_sim.cores import load_profile, shipped_products

    profiles = [load_profile(name) for name in products or shipped_products()]
    if json_output:
        print_json(
            "products",
            {"products": [profile.product.model_dump(mode="json") for profile in profiles]},
        )
        return
    from npu_sim.show.products import products_view

    print_text(products_view(profiles))
