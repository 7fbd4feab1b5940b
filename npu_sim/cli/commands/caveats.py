"""``npu-sim caveats``: the documented caveats as experiments."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from npu_sim.cli.options import Json
from npu_sim.cli.output import print_json, print_text
from npu_sim.language import Text, Verbatim

if TYPE_CHECKING:
    from npu_sim.studies.caveats.experiment import Caveat

Name = Annotated[
    str | None,
    typer.Argument(help="Caveat to run, or the code of one in a plan; the list when left out."),
]


def caveats_command(name: Name = None, json_output: Json = False) -> None:
    """List the documented caveats, or run one and print what it shows."""
    from npu_sim.studies.caveats import CAVEATS, find_caveat

    if name is None:
        if json_output:
            print_json("caveats", {"caveats": [_data(caveat) for caveat in CAVEATS]})
            return
        from npu_sim.show.layout import lines_table

        print_text(
            lines_table((Verbatim(caveat.name), caveat.title, caveat.source) for caveat in CAVEATS)
        )
        return
    caveat = find_caveat(name)
    numbers = caveat.experiment()
    if json_output:
        print_json("caveat", {**_data(caveat), "numbers": numbers})
        return
    print_text(Text("{title} ({source})", caveat), "", *caveat.explain(numbers))


def _data(caveat: "Caveat") -> dict[str, Any]:
    names = ("name", "title", "source", "codes")
    return {name: getattr(caveat, name) for name in names}
