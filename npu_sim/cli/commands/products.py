"""``npu-sim products``."""

from dataclasses import dataclass
from typing import Annotated

import typer

from npu_sim.cli.options import Json, command
from npu_sim.cli.output import print_answer
from npu_sim.questions.products import products

Names = Annotated[
    list[str] | None,
    typer.Argument(
        help="Products or profile files; all shipped ones when left out.", metavar="products"
    ),
]


@dataclass(frozen=True, kw_only=True)
class ProductsOptions:
    """Options of ``npu-sim products``."""

    json: Json = False


@command(products)
def products_command(options: ProductsOptions, names: Names = None) -> None:
    """List products, SoCs, cores, buffers, dtypes and supported operators."""
    print_answer("products", products(*names or ()), json=options.json)
