"""The plan of ApplyAdamWV2: path, launches, workspace and warnings.

Source: specification page ``apply_adam_w_v2``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from npu_sim.framework.vocabulary import (
    FORMATS,
    SHORT_NAMES,
    Case,
    Caveat,
    Condition,
    Description,
    Evidence,
    Launch,
    Text,
    caveat,
    contiguous_copy,
    counted,
    decision,
    intermediate,
    joined,
    vector_plan,
)
from npu_sim.operators.apply_adam_w_v2.compute import ONE, STATE, F
from npu_sim.operators.shared.normalised_rows import SYSTEM
from npu_sim.tiling import apply_adam_w_v2 as tiler
from npu_sim.tiling.apply_adam_w_v2 import CAST, MIXED, NATIVE, path_of, rounded

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
    tiling, nodes = case.tiling, launches(case)
    description = vector_plan(
        case,
        path=PATHS[path_of(case.row)],
        path_reason=Text(
            "tiles of {elements}, whatever the dtype",
            elements=counted(tiler.TILE_ELEMENTS, "element"),
        ),
        per_core=Text("core c takes the tiles c, c + {cores}, ...", cores=tiling.block_dim),
        buffers=tiler.buffers(tiling.tiling_key),
        ranges=[(0, len(tiler.tiles_of_core(tiling, core))) for core in range(tiling.block_dim)],
        unit="tile",
        fields=tiler.vendor_structure(tiling, case.arguments, case.rules),
        workspace=(SYSTEM,),
        launches=nodes if path_of(case.row) == CAST else None,
        conditions=lambda: decisions(case),
        caveats=(*caveats(case), *_idle_cores(case)),
    )
    return replace(description, launches=nodes)


def decisions(case: Case) -> list[Any]:
    """Return the decisions of the call on every product: its dtypes."""
    tensors = {"dtype": "var", "m_dtype": "m", "v_dtype": "v", "grad_dtype": "grad"}
    values = {axis: SHORT_NAMES[case.specs[name].dtype] for axis, name in tensors.items()}
    return [decision(case, condition, **values) for condition in (ONE_DTYPE, CASTS)]


def _dtypes(case: Case) -> Mapping[str, str]:
    """Return the dtypes of the tensors of one shape, in the order of their copies and Casts."""
    return {name: case.specs[name].dtype for name in (*STATE, "grad") if name in case.specs}


def launches(case: Case) -> tuple[Launch, ...]:
    """Return the launches: copies, Casts, the kernel, Casts back, and copies back."""
    dtypes, is_cast = _dtypes(case), path_of(case.row) == CAST
    copies = {
        name: contiguous_copy(name, case.specs[name].shape, dtype)
        for name, dtype in dtypes.items()
        if not case.specs[name].contiguous
    }
    current = {name: case.tensor(name) for name in (*dtypes, "step")}
    current |= {name: copy.outputs[0] for name, copy in copies.items()}
    casts = {
        name: _step(
            "Cast",
            current[name],
            intermediate(Text("fp32 {name}", name=name), case.specs[name].shape, "float32"),
        )
        for name, dtype in dtypes.items()
        if is_cast and dtype != "float32"
    }
    current |= {name: cast.outputs[0] for name, cast in casts.items()}
    written = [name for name in STATE if name in dtypes and (name in STATE[:3] or case.row.amsgrad)]
    kernel = Launch(
        kernel=case.operator.title,
        inputs=tuple(current.values()),
        outputs=tuple(
            current[name] if current[name].intermediate else case.tensor(f"{name}_out")
            for name in written
        ),
        block_dim=case.tiling.block_dim,
        evidence=Evidence.EXACT,
        workspace=(SYSTEM,),
    )
    back = (*_back(case, current, STATE[:3]), *_back(case, current, STATE[3:]))
    return (*copies.values(), *casts.values(), kernel, *back)


def _back(case: Case, current: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[Launch]:
    """Yield the Casts back, then the copies back, of some tensors of the state."""
    given = [name for name in names if name in case.specs]
    for name in given:
        if current[name].dtype != case.specs[name].dtype:
            yield _step("Cast", current[name], case.tensor(f"{name}_out"))
    for name in given:
        if not case.specs[name].contiguous:
            yield _step("ViewCopy", current[name], case.tensor(f"{name}_out"), Evidence.UNKNOWN)


def _step(kernel: str, source: Any, target: Any, evidence: Evidence = Evidence.MODEL) -> Launch:
    return Launch(kernel=kernel, inputs=(source,), outputs=(target,), evidence=evidence)


def caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan on every product (page, "Warnings a plan gives")."""
    arguments = case.arguments
    yield caveat(
        "step_counts_from_zero", "step", "the kernel uses step + 1: the first update wants step = 0"
    )
    yield from _dtype_caveats(case)
    if case.row.with_norm and not case.row.amsgrad:
        yield caveat(
            "max_grad_norm_unused",
            "max_grad_norm",
            "max_grad_norm is given without amsgrad: it is never read, and only costs its copy, "
            "its Cast, and perhaps the path",
        )
    v_format = FORMATS[case.specs["v"].dtype]
    rest = float(ONE - rounded(arguments.beta2))
    if v_format.name != "float32" and 0 < rest <= 2.0 ** -(v_format.mantissa_bits + 2):
        yield caveat(
            "moments_never_decay",
            "v",
            "v is {dtype} and 1 - beta2 is {rest}: v*beta2 rounds back to v, so v never falls",
            dtype=v_format.short_name,
            rest=f"{rest:.3g}",
        )
    for name in ("beta1", "beta2"):
        if rounded(arguments[name]) == 1:
            yield caveat(
                "correction_is_zero",
                name,
                "{name} is 1 in fp32: its correction 1 - {name}^t is 0, and var inf, nan, or only "
                "decaying",
                name=name,
            )
    if rounded(arguments.eps) == F(0):
        yield caveat(
            "zero_eps", "eps", "eps is 0 in fp32: an element with v = 0 becomes inf or nan"
        )


def _dtype_caveats(case: Case) -> Iterator[Caveat]:
    dtypes = _dtypes(case)
    if path_of(case.row) != NATIVE:
        yield caveat(
            "dtypes_differ_from_document",
            "grad",
            "the dtypes are not all one, as the document asks: {dtypes}; the product takes them",
            dtypes=joined(f"{name} {SHORT_NAMES[dtype]}" for name, dtype in dtypes.items()),
        )
    if path_of(case.row) == CAST:
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


def _idle_cores(case: Case) -> Iterator[Caveat]:
    used, cores = case.tiling.block_dim, case.device.vector_cores
    if used < cores:
        yield caveat(
            "cores_idle",
            "var",
            "{used} of {cores} cores work; {elements} elements use all of them",
            used=used,
            cores=cores,
            elements=cores * tiler.TILE_ELEMENTS,
        )
    needed = sum(tiler.buffers(case.tiling.tiling_key).values())
    if needed > case.device.ub_bytes:
        yield caveat(
            "buffer_too_small",
            "product",
            "the kernel takes {needed} bytes of the Unified Buffer, which has {there}: the call "
            "is planned, and cannot run",
            needed=needed,
            there=case.device.ub_bytes,
        )
