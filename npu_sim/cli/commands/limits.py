"""``npu-sim limits``: how large an argument may be, given the others."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from npu_sim.cli.options import Deterministic, Json, Release, Report
from npu_sim.cli.output import print_json, print_text
from npu_sim.cli.report_files import reproducing_command, write_report
from npu_sim.language import Text
from npu_sim.status import UsageError

Vary = Annotated[
    list[str] | None,
    typer.Option(
        "--vary",
        help="Name of the size or number to bound, such as dim; every size when left out. "
        "Twice for a frontier: the second may list values, num_weights=1,1000.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="A size, dtype or switch by its natural name, such as rows=4096; repeatable."
    ),
]
Products = Annotated[
    str,
    typer.Option(
        "--products", "--product", help="all, names with commas, or profile files ending in .yaml."
    ),
]
Socs = Annotated[
    str | None,
    typer.Option("--socs", "--soc", help="SoCs, with commas; one of every kind when left out."),
]


@dataclass(frozen=True)
class LimitsOptions:
    """Options of ``npu-sim limits``."""

    vary: Vary = None
    set_: Set = None
    products: Products = "all"
    soc: Socs = None
    release: Release = None
    deterministic: Deterministic = False
    report: Report = None
    json_output: Json = False


def limits_command(operator: str, arguments: dict[str, Any], options: LimitsOptions) -> None:
    """Find the documented and the hardware bounds of an argument on every product."""
    from npu_sim.cli.arguments import typed_specs
    from npu_sim.questions.limits import limits

    natural = named_values("set", options.set_ or [])
    for name in sorted({"operator", "product", "soc", "release", "deterministic"} & natural.keys()):
        message = Text("{name} is not set by --set", name=name)
        hint = "--set changes sizes, dtypes and attributes; product and switches are options"
        raise UsageError("set", message, hint)
    table = limits(
        operator,
        options.vary,
        product=options.products,
        soc=options.soc,
        release=options.release,
        deterministic=options.deterministic,
        **{**typed_specs(operator, arguments), **natural},
    )
    if options.report is not None:
        from npu_sim.releases import default_release
        from npu_sim.show.reports.comparisons import limits_report

        release = options.release or default_release()
        command = reproducing_command(
            {("--products", "--product"): options.products, ("--release",): release}
        )
        write_report(options.report, limits_report(table, command))
    if options.json_output:
        print_json("limits", table.as_dict())
        return
    from npu_sim.show.limits import limits_view

    print_text(limits_view(table))


def named_values(option: str, texts: list[str]) -> dict[str, str]:
    """Read ``name=value`` options.

    Raises UsageError when one has another form.
    """
    named = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        if not name or not value:
            message = Text("{text} is not of the form name=value", text=repr(text))
            raise UsageError(option, message, "write name=value, such as rows=4096")
        named[name.replace("-", "_")] = value
    return named
