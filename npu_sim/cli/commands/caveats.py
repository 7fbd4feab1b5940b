"""``npu-sim caveats``."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from npu_sim.cli.options import Json, command
from npu_sim.cli.printing import print_json, print_text
from npu_sim.language import Text, Verbatim, joined
from npu_sim.operators.shared.study import Experiment
from npu_sim.show.forms.layout import lines_table
from npu_sim.studies.caveats import CAVEATS, find_caveat, statements, statements_of

Name = Annotated[
    str | None,
    typer.Argument(help="Caveat to run, or the code of one in a plan; the list when left out."),
]


@dataclass(frozen=True, kw_only=True)
class CaveatsOptions:
    """Options of ``npu-sim caveats``."""

    json: Json = False


@command()
def caveats_command(options: CaveatsOptions, name: Name = None) -> None:
    """List the documented caveats, or run one and print what it shows."""
    if name is None:
        codes = sorted({statement.code for statement in statements()})
        if options.json:
            listed = [_data(caveat) for caveat in CAVEATS]
            print_json("caveats", {"caveats": listed, "codes": codes})
            return
        print_text(
            lines_table((Verbatim(caveat.name), caveat.title, caveat.source) for caveat in CAVEATS),
            "",
            Text("codes of plans and runs: {codes}", codes=", ".join(codes)),
        )
        return
    caveat = find_caveat(name)
    if caveat is None:
        _print_statements(name, options.json)
        return
    numbers, lines = caveat.experiment()
    if options.json:
        print_json("caveat", {**_data(caveat), "numbers": numbers})
        return
    print_text(Text("{title} ({source})", title=caveat.title, source=caveat.source), "", *lines)


def _print_statements(code: str, as_json: bool) -> None:
    """Print how plans and runs state a caveat that no experiment shows."""
    found = statements_of(code)
    if as_json:
        print_json("caveat", {"codes": [code], "statements": [item._asdict() for item in found]})
        return
    for statement in found:
        place = (statement.operator or "several operators", statement.argument.strip("*"))
        print_text(
            Text(
                "{message} ({place})",
                message=statement.message,
                place=joined(filter(None, place), ", "),
            )
        )
    print_text(
        "",
        Text(
            "no experiment shows it: npu-sim plan and run state it with the numbers of the call, "
            "npu-sim preflight FILE --fail-on caveat finds the calls that have it"
        ),
    )


def _data(caveat: Experiment) -> dict[str, Any]:
    return {name: getattr(caveat, name) for name in ("name", "title", "source", "codes")}
