"""``npu-sim run``: compute an operator on data from files."""

from typing import Any

from npu_sim.cli.json_output import print_json
from npu_sim.cli.options import (
    DEFAULT_PRODUCT,
    CoreOrderOption,
    Deterministic,
    Json,
    LimitsOption,
    Out,
    Product,
    Release,
    Report,
    Seed,
    Soc,
    Threads,
    Trace,
)


def run_command(
    operator: str,
    arguments: dict[str, Any],
    product: Product = DEFAULT_PRODUCT,
    soc: Soc = None,
    release: Release = None,
    deterministic: Deterministic = False,
    core_order: CoreOrderOption = "sequential",
    seed: Seed = 0,
    limits: LimitsOption = "documented",
    out: Out = None,
    threads: Threads = None,
    report: Report = None,
    trace: Trace = None,
    json_output: Json = False,
) -> None:
    """Compute an operator on data from .npy files, or on generated data where shapes are given, in the product's accumulation order."""
    from npu_sim.cli.arguments import typed_arrays
    from npu_sim.cli.console import print_result
    from npu_sim.cli.pictures import write_pictures
    from npu_sim.cores import load_profile
    from npu_sim.files.tensors import write_tensors
    from npu_sim.kernels.engine.threads import limit_threads
    from npu_sim.operators import run

    loaded = load_profile(product, soc, release)
    arrays = typed_arrays(operator, arguments, loaded, limits, seed)  # type: ignore[arg-type]
    limit_threads(threads)
    result = run(
        operator,
        profile=loaded,
        deterministic=deterministic,
        core_order=core_order,  # type: ignore[arg-type]
        seed=seed,
        limits=limits,  # type: ignore[arg-type]
        **arrays,
    )
    if out is not None:
        write_tensors(out, result.outputs)
    pictures = write_pictures(result, loaded, product, report, trace)
    if json_output:
        print_json("run", {"outcome": "ran", **result.as_dict(), **pictures})
    else:
        print_result(result)
