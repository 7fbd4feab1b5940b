"""``npu-sim products``."""

from typing import Annotated

import typer

from npu_sim.cli.options import Json, command
from npu_sim.cli.printing import print_json, print_text
from npu_sim.cores import load_profile, shipped_products
from npu_sim.questions.varied_calls import operators_of
from npu_sim.show.products import products_view

Products = Annotated[
    list[str] | None,
    typer.Argument(help="Products or profile files; all shipped ones when left out."),
]


@command()
def products_command(products: Products = None, *, json: Json = False) -> None:
    """List products, SoCs, cores, buffers, dtypes and supported operators."""
    profiles = [load_profile(name) for name in products or shipped_products()]
    if json:
        listed = [
            profile.product.model_dump(mode="json") | {"operators": operators_of(profile)[0]}
            for profile in profiles
        ]
        print_json("products", {"products": listed})
    else:
        print_text(products_view(profiles))
