"""First steps: ``demo``, ``products`` and ``new-operator``."""

import time
from collections.abc import Mapping
from importlib import resources
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from string import Template
from typing import Annotated, Any

import typer

from npu_sim.cli.lazy import cores, files, framework, kernels, operators, questions, show, studies
from npu_sim.cli.options import Options, command
from npu_sim.cli.output import print_json, print_text
from npu_sim.language import Text, say
from npu_sim.registry import OPERATOR_NAMES
from npu_sim.status import UsageError, shown

ROWS, DIM, NUM_WEIGHTS = 16384, 1024, 32000
"""A batch of 8 sequences of 2048 tokens, hidden size 1024, vocabulary 32000."""


@command("", "product soc release deterministic seed threads json")
def demo_command(options: Options) -> None:
    """Plan, compute and check an embedding gradient of a Zipf-distributed batch."""
    kernels.engine.compile.limit_threads(options.threads)
    operator = "embedding_dense_backward"
    call: dict[str, Any] = {
        "grad": f"{ROWS}x{DIM}:fp32",
        "indices": f"{ROWS}:int32",
        "num_weights": NUM_WEIGHTS,
    }
    data = operators.shared.generate.generate(
        operator,
        framework.inference.arguments_of(operators.loading.load_operator(operator), call),
        options.seed,
    )
    inputs = {**call, **data}
    call_options: dict[str, Any] = {
        "product": options.profile(),
        "deterministic": options.deterministic,
    }
    start = time.perf_counter()
    first = operators.run(operator, core_order="sequential", **call_options, **inputs)
    cold_seconds = time.perf_counter() - start
    second = operators.run(
        operator, core_order="random", seed=options.seed + 1, **call_options, **inputs
    )
    warm = operators.run(
        operator,
        core_order="random",
        seed=options.seed + 1,
        out=second.outputs["grad_weight"],
        **call_options,
        **inputs,
    )
    check = compare(first, second, data)
    if options.json:
        print_json(
            "demo",
            {"outcome": "ran", **warm.as_dict(), "check": check, "first_run_seconds": cold_seconds},
        )
        return

    print_text(
        say(
            "A batch of {rows} tokens; token ids drawn from a Zipf distribution over {num_weights} "
            "rows of the weight: grad {grad}",
            rows=ROWS,
            num_weights=NUM_WEIGHTS,
            grad=call["grad"],
        ),
        "",
        show.plans.plan_view(first.plan),
        "",
        show.layout.lines_table(_result_lines(check, warm.seconds, cold_seconds)),
        "",
        show.layout.Paragraph(
            "next: npu-sim plan --help, npu-sim run --help, npu-sim products", "dim"
        ),
    )


def _result_lines(
    check: Mapping[str, Any], seconds: Mapping[str, float], cold_seconds: float
) -> list[tuple[str, str, str]]:
    """Return the results as lines; ``seconds`` are those of the warm run by stage."""
    stages = ", ".join(
        say("{name} {seconds:.1f} ms", name=name, seconds=1000 * value)
        for name, value in seconds.items()
    )
    passes = check["passes_mixed_tolerance"]
    outside = "against a sum in float64; outside the fp32 tolerance"
    within = "against a sum in float64; within the fp32 tolerance"
    moved, masked = check["rows_that_moved"], check["order_dependent_rows"]
    return [
        (
            "check",
            say("largest error {error:.2g}", error=check["max_absolute_error"]),
            within if passes else outside,
        ),
        (
            "two runs",
            say("{moved} of {num_weights} rows differ", moved=moved, num_weights=NUM_WEIGHTS),
            _order_text(masked, check["rows_that_moved_outside_the_mask"]),
        ),
        ("time", say("{milliseconds:.1f} ms", milliseconds=1000 * sum(seconds.values())), stages),
        ("first run", f"{cold_seconds:.1f} s", "compiling or loading the kernel included"),
    ]


def _order_text(order_dependent: int, unexpected: int) -> str:
    """Return which rows may differ between runs, and how many others did."""
    if not order_dependent and not unexpected:
        return say("the order of additions is fixed")
    return say(
        "{order_dependent} can: cores add to them in any order; {unexpected} other rows differ",
        order_dependent=order_dependent,
        unexpected=unexpected,
    )


def compare(first: Any, second: Any, data: dict[str, Any]) -> dict[str, Any]:
    """Compare two orders of one call with each other and with a float64 sum."""
    import numpy as np

    a, b = first.outputs["grad_weight"], second.outputs["grad_weight"]
    reference = np.zeros(a.shape, np.float64)
    np.add.at(reference, data["indices"], data["grad"].astype(np.float64))
    moved = np.any(a.view(np.uint32) != b.view(np.uint32), axis=1)
    mask = first.order_dependent["grad_weight"].mask
    return {
        "max_absolute_error": float(np.abs(b - reference).max()),
        "passes_mixed_tolerance": studies.precision.mixed_tolerance(b, reference, "float32").passed,
        "rows_that_moved": int(np.count_nonzero(moved)),
        "order_dependent_rows": int(np.count_nonzero(mask)),
        "rows_that_moved_outside_the_mask": int(np.count_nonzero(moved & ~mask)),
    }


ProductArgument = Annotated[
    list[str] | None,
    typer.Argument(help="Products or profile files; all shipped ones when left out."),
]


@command("", "json")
def products_command(options: Options, products: ProductArgument = None) -> None:
    """List products, SoCs, cores, buffers, dtypes and supported operators."""
    profiles = [cores.load_profile(name) for name in products or cores.shipped_products()]
    if options.json:
        print_json(
            "products",
            {
                "products": [
                    profile.product.model_dump(mode="json")
                    | {"operators": questions.varied_calls.operators_of(profile)[0]}
                    for profile in profiles
                ]
            },
        )
        return

    print_text(show.products.products_view(profiles))


Name = Annotated[str, typer.Argument(help="Name in lower case, such as scale_rows.")]
Folder = Annotated[
    Path, typer.Option("--out", help="Folder for the new folder NAME with the two files.")
]
FILES = {"operator.txt": "{name}.py", "operator_test.txt": "test_{name}.py"}
"""Templates, and the files made from them."""


def new_operator_command(name: Name, out: Folder = Path()) -> None:
    """Write a working operator with its tests, as a template to edit."""
    is_name = name.isidentifier() and not iskeyword(name) and name == name.lower()
    if not is_name or name in OPERATOR_NAMES or find_spec(name) is not None:
        raise UsageError(
            "name",
            Text("name = {name} cannot be used", name=shown(name)),
            "a Python name in lower case that neither an operator nor an installed module has",
        )
    folder = out / name
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise files.writing.cannot_write("out", folder, error) from None
    fields = {"name": name, "title": "".join(part.capitalize() for part in name.split("_"))}
    for template, file in FILES.items():
        text = (resources.files("npu_sim.cli") / "templates" / template).read_text(encoding="utf-8")
        files.writing.write_text(folder / file.format(name=name), Template(text).substitute(fields))
    print(f"npu-sim --operators {folder / name}.py plan {name} --x 4096x1000:bf16")
    print(f"python -m pytest {folder}")
