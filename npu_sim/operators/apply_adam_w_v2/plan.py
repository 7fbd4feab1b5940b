"""The plan of ApplyAdamWV2: path, launches, workspace and warnings.

Source: specification page ``apply_adam_w_v2``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from npu_sim.framework.vocabulary import (
    FORMATS,
    SHORT_NAMES,
    SYSTEM_WORKSPACE,
    Case,
    Caveat,
    Condition,
    Description,
    Evidence,
    Launch,
    Text,
    caveat,
    counted,
    decision,
    joined,
    to_fp32,
    vector_plan,
)
from npu_sim.operators.shared.launches import Executor
from npu_sim.tiling.apply_adam_w_v2 import (
    CAST,
    MIXED,
    NATIVE,
    STATE,
    TILE_ELEMENTS,
    buffers,
    path_of,
    vendor_structure,
)

PATHS = {NATIVE: "native", MIXED: "mixed", CAST: "cast"}

ONE_DTYPE = Condition(
    "one dtype",
    "var, m, v, grad, and max_grad_norm where it is given, have one dtype",
    lambda row, *_: path_of(row) == NATIVE,
    "the kernel of this dtype",
    "mixed dtypes, or Casts",
    ("grad_dtype",),
)
CASTS = Condition(
    "casts",
    "the dtypes differ, and are not an fp32 state with 16-bit grad and max_grad_norm",
    lambda row, *_: path_of(row) == CAST,
    "every tensor that is not fp32 passes through a Cast",
    "the kernel reads the tensors as they are",
    ("grad_dtype",),
)


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    tiling = case.tiling
    return description(
        case,
        path_reason=Text(
            "tiles of {elements}, whatever the dtype", elements=counted(TILE_ELEMENTS, "element")
        ),
        per_core=Text("core c takes the tiles c, c + {cores}, ...", cores=tiling.block_dim),
        buffers=buffers(tiling.tiling_key),
        ranges=[
            (0, tiling.tiles_per_core + (core < tiling.longer_cores))
            for core in range(tiling.block_dim)
        ],
        unit="tile",
        fields=vendor_structure(tiling, case.arguments, case.rules),
        caveats=(*caveats(case), *_idle_cores(case)),
    )


def description(case: Case, **fields: Any) -> Description:
    """Return what a plan states on every product, and ``fields`` of :func:`vector_plan`."""
    nodes, path = launches(case), path_of(case.row)
    dtypes = {
        case.operator.argument(name).dtype: SHORT_NAMES[dtype]
        for name, dtype in _dtypes(case).items()
        if name != "max_grad_norm"
    }
    described = vector_plan(
        case,
        path=PATHS[path],
        workspace=(SYSTEM_WORKSPACE,),
        launches=nodes if path == CAST else None,
        conditions=lambda: [
            decision(case, condition, **dtypes) for condition in (ONE_DTYPE, CASTS)
        ],
        **fields,
    )
    return replace(described, launches=nodes)


def _dtypes(case: Case) -> Mapping[str, str]:
    """Return the dtypes of the tensors of one shape, in the order of their copies and Casts."""
    return {name: case.specs[name].dtype for name in (*STATE, "grad") if name in case.specs}


def launches(case: Case) -> tuple[Launch, ...]:
    """Return the launches: copies, Casts, the kernel, Casts back, and copies back."""
    executor = Executor(case)
    current = {name: executor.contiguous(name, case.specs[name]) for name in _dtypes(case)}
    if path_of(case.row) == CAST:
        current = {
            name: executor.cast(
                tensor, Text("fp32 {name}", name=name), "float32", evidence=Evidence.MODEL
            )
            for name, tensor in current.items()
        }
    results = {name: case.tensor(f"{name}_out") for name in STATE if name in current}
    updated = STATE if case.row.amsgrad else STATE[:3]
    written = (current[name] if current[name].intermediate else results[name] for name in updated)
    executor.launches.append(
        Launch(
            kernel=case.operator.title,
            inputs=(*current.values(), case.tensor("step")),
            outputs=tuple(written),
            block_dim=case.tiling.block_dim,
            workspace=(SYSTEM_WORKSPACE,),
        )
    )
    for names in (STATE[:3], [name for name in STATE[3:] if name in results]):
        for name in names:
            if current[name].dtype != results[name].dtype:
                executor.run("Cast", (current[name],), results[name], evidence=Evidence.MODEL)
        for name in names:
            if not case.specs[name].contiguous:
                executor.run("ViewCopy", (current[name],), results[name], evidence=Evidence.UNKNOWN)
    return tuple(executor.launches)


def caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan on every product (page, "Warnings a plan gives")."""
    arguments = case.arguments
    yield caveat(
        "step_counts_from_zero", "step", "the kernel uses step + 1: the first update wants step = 0"
    )
    dtypes, path = _dtypes(case), path_of(case.row)
    if path != NATIVE:
        yield caveat(
            "dtypes_differ_from_document",
            "grad",
            "the dtypes are not all one, as the document asks: {dtypes}; the product takes them",
            dtypes=joined(f"{name} {SHORT_NAMES[dtype]}" for name, dtype in dtypes.items()),
        )
    if path == CAST:
        cast = [name for name, dtype in dtypes.items() if dtype != "float32"]
        elements = case.row.elements * (2 * len(cast) - ("grad" in cast))
        yield caveat(
            "cast_path",
            cast[0],
            "{names} pass through Casts, which move {bytes} bytes; without: one dtype, or an fp32 "
            "state with grad and max_grad_norm of one 16-bit dtype",
            names=joined(cast),
            bytes=6 * elements,
        )
    if case.row.with_norm and not case.row.amsgrad:
        yield caveat(
            "max_grad_norm_unused",
            "max_grad_norm",
            "max_grad_norm is given without amsgrad: it is never read, and only costs its copy, "
            "its Cast, and perhaps the path",
        )
    v_format = FORMATS[case.specs["v"].dtype]
    rest = float(1 - to_fp32(arguments.beta2))
    if v_format.name != "float32" and 0 < rest <= 2.0 ** -(v_format.mantissa_bits + 2):
        yield caveat(
            "moments_never_decay",
            "v",
            "v is {dtype} and 1 - beta2 is {rest}: v*beta2 rounds back to v, so v never falls",
            dtype=v_format.short_name,
            rest=f"{rest:.3g}",
        )
    for name in ("beta1", "beta2"):
        if to_fp32(arguments[name]) == 1:
            yield caveat(
                "correction_is_zero",
                name,
                "{name} is 1 in fp32: its correction 1 - {name}^t is 0, and var inf, nan, or only "
                "decaying",
                name=name,
            )
    if to_fp32(arguments.eps) == 0:
        yield caveat(
            "zero_eps", "eps", "eps is 0 in fp32: an element with v = 0 becomes inf or nan"
        )


def _idle_cores(case: Case) -> Iterator[Caveat]:
    used, cores = case.tiling.block_dim, case.device.vector_cores
    if used < cores:
        yield caveat(
            "cores_idle",
            "var",
            "{used} of {cores} cores work; {elements} elements use all of them",
            used=used,
            cores=cores,
            elements=cores * TILE_ELEMENTS,
        )
    needed = sum(buffers(case.tiling.tiling_key).values())
    if needed > case.device.ub_bytes:
        yield caveat(
            "buffer_too_small",
            "product",
            "the kernel takes {needed} bytes of the Unified Buffer, which has {there}: the call "
            "is planned, and cannot run",
            needed=needed,
            there=case.device.ub_bytes,
        )
