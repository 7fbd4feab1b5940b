"""RmsNormGrad: the ordered checks of the contract.

Source: product document aclnnRmsNormGrad; specification page ``rms_norm_grad``, "Contract".
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from npu_sim.cores import NPU_ARCH_ATLAS_A2, Profile
from npu_sim.formats import SHORT_NAMES, TensorSpec
from npu_sim.ops import base
from npu_sim.ops.base import Limits
from npu_sim.planning.rms_norm_grad import Case
from npu_sim.status import INVALID, TILING_FAILURE, AclnnError
from npu_sim.tiling import rms_norm_grad as tiler
from npu_sim.tiling.rms_norm_grad_shapes import MAX_RANK, Fault, Shapes, shape_fault

if TYPE_CHECKING:
    from npu_sim.ops.rms_norm_grad import Arguments

NAME = "rms_norm_grad"
TITLE = "RmsNormGrad"
SUPPORTING = ("atlas_a2", "atlas_a3", "atlas_inference")
INPUTS = ("dy", "x", "rstd", "gamma")

DTYPE_ROWS = (
    ("float16", "float16", "float32", "float32", "float16", "float32"),
    ("bfloat16", "bfloat16", "float32", "float32", "bfloat16", "float32"),
    ("float16", "float16", "float32", "float16", "float16", "float32"),
    ("float32", "float32", "float32", "float32", "float32", "float32"),
    ("bfloat16", "bfloat16", "float32", "bfloat16", "bfloat16", "float32"),
)
"""dtypes of (dy, x, rstd, gamma, dx, dgamma) that A2 and A3 take ("各产品支持数据类型说明")."""
PLAIN_FORMATS = ("ND", "NCL", "NCHW", "NCDHW", "NHWC", "NDHWC")
"""Formats without a private layout: the document names ND, its own program ("调用示例") passes NCDHW."""
SIZE_LIMIT = 2**32
"""The product computes rows and columns in 32 bits; the contract refuses what would wrap around."""


def check(arguments: "Arguments", profile: Profile, limits: Limits = "documented") -> Case:
    """Run the contract's checks in the product's order; return the call reduced to what planning needs.

    The limits of this operator have no published physical reason, so that they hold with both values of ``limits``.

    Raises
    ------
    AclnnError
        With the status of the first check that fails.
    """
    base.require_tensors(arguments)
    base.require_product(NAME, TITLE, profile, SUPPORTING)
    specs = all_specs(arguments)
    for name in INPUTS:
        if not specs[name].contiguous:
            raise AclnnError(
                INVALID, name, f"{name} is not contiguous, which {TITLE} does not support", f"pass a contiguous copy of {name}"
            )
    _check_dtypes(specs, profile)
    for name, spec in specs.items():
        if spec.storage_format not in PLAIN_FORMATS:
            message = f"{name} has the private format {spec.storage_format}"
            raise AclnnError(TILING_FAILURE, name, message, f"formats: {', '.join(PLAIN_FORMATS)}")
    shapes = Shapes(*(specs[name].shape for name in Shapes._fields))
    fault = (
        shape_fault(shapes)
        or _rank_fault(shapes)
        or _size_fault(shapes)
        or _last_axis_fault(specs, profile)
        or _ascend_910_fault(shapes, profile)
    )
    if fault is not None:
        raise AclnnError(TILING_FAILURE, *fault)
    return Case(
        rows=shapes.rows,
        columns=shapes.columns,
        dtype=specs["x"].dtype,
        gamma_dtype=specs["gamma"].dtype,
        deterministic=False,
        profile=profile,
    )


def all_specs(arguments: "Arguments") -> dict[str, TensorSpec]:
    """Return all six tensors, outputs that were left out as the inputs imply them."""
    dy, x, rstd, gamma = (getattr(arguments, name) for name in INPUTS)
    dx = arguments.dx or TensorSpec(dy.shape, dy.dtype)
    dgamma = arguments.dgamma or TensorSpec(gamma.shape, "float32")
    return {"dy": dy, "x": x, "rstd": rstd, "gamma": gamma, "dx": dx, "dgamma": dgamma}


def dtype_rows(profile: Profile) -> tuple[tuple[str, ...], ...]:
    """Return the dtype combinations that a product takes: gamma in another dtype than x on A2 and A3 only."""
    mixed = profile.npu_arch == NPU_ARCH_ATLAS_A2
    return tuple(row for row in DTYPE_ROWS if row[0] in profile.product.dtypes and (mixed or row[3] == row[0]))


def _check_dtypes(specs: Mapping[str, TensorSpec], profile: Profile) -> None:
    given = tuple(spec.dtype for spec in specs.values())
    rows = dtype_rows(profile)
    if given in rows:
        return
    # The argument at fault is the first one that no row has together with those before it.
    names = tuple(specs)
    fault = next(end for end in range(1, len(given) + 1) if not any(row[:end] == given[:end] for row in rows)) - 1
    agreeing = [sum(a == b for a, b in zip(row, given, strict=True)) for row in rows]
    nearest = [_dtypes_text(names, row) for row, count in zip(rows, agreeing, strict=True) if count == max(agreeing)]
    message = f"{names[fault]} is {given[fault]}: {profile.product.title} does not take the dtypes {_dtypes_text(names, given)}"
    raise AclnnError(INVALID, names[fault], message, f"nearest: {'; or '.join(nearest) or 'none'}")


def _dtypes_text(names: tuple[str, ...], dtypes: tuple[str, ...]) -> str:
    return ", ".join(f"{name} {SHORT_NAMES[dtype]}" for name, dtype in zip(names, dtypes, strict=True))


def _rank_fault(shapes: Shapes) -> Fault | None:
    rank = len(shapes.rstd)
    return None if rank <= MAX_RANK else Fault("rstd", f"rstd has rank {rank}", f"rank at most {MAX_RANK}")


def _size_fault(shapes: Shapes) -> Fault | None:
    for argument, name, size in (("x", "row", shapes.rows), ("gamma", "col", shapes.columns)):
        if size >= SIZE_LIMIT:
            message = f"{name} = {size}: the product computes it in 32 bits, where it would become {size % SIZE_LIMIT}"
            return Fault(argument, message, f"{name} <= {SIZE_LIMIT - 1}")
    return None


def _last_axis_fault(specs: Mapping[str, TensorSpec], profile: Profile) -> Fault | None:
    """The 32-byte last axis of the Atlas inference series ("约束与限制"); no reason is published, so it always holds."""
    least_bytes = profile.limits.rms_norm_last_axis_bytes_at_least
    for name in ("x", "dy", "gamma") if least_bytes is not None else ():
        spec = specs[name]
        size = spec.shape[-1] * spec.itemsize
        if least_bytes is not None and size < least_bytes:
            least = -(-least_bytes // spec.itemsize)
            message = (
                f"the last axis of {name} has {spec.shape[-1]} elements of {spec.itemsize} bytes = {size} bytes; "
                f"{profile.product.title} needs {least_bytes} bytes or more"
            )
            reason = (
                f"the Unified Buffer moves blocks of {profile.chip.ub_block_bytes} bytes; the planner itself takes any length and no "
                "physical reason is published, so the limit holds with limits=hardware too"
            )
            return Fault(name, message, f"last axis of {name} >= {least}; {reason}")
    return None


def _ascend_910_fault(shapes: Shapes, profile: Profile) -> Fault | None:
    step = tiler.ASCEND_910_COLUMNS
    if tiler.columns_fit(shapes.columns, profile.npu_arch):
        return None
    below = shapes.columns // step * step
    nearest = f"{below} or {below + step}" if below else f"{step}"
    return Fault("gamma", f"col = {shapes.columns} is not a multiple of {step}, which Ascend 910 chips need", f"nearest: {nearest}")
