"""ConvTbcBackward: the ordered checks of the contract.

Source: product document aclnnConvTbcBackward; specification page ``conv_tbc_backward``, "Contract".
"""

from typing import TYPE_CHECKING

from npu_sim.cores import Profile
from npu_sim.formats import SHORT_NAMES, TensorSpec
from npu_sim.ops import base
from npu_sim.ops.base import Limits
from npu_sim.planning.conv_tbc_backward import Case
from npu_sim.planning.conv_tbc_backward_decisions import compute_dtype
from npu_sim.status import HARDWARE_LIMIT, INVALID, AclnnError
from npu_sim.tiling.conv_tbc_backward import plan_grad_input, plan_grad_weight
from npu_sim.tiling.conv_tbc_cube_model import BUFFER_NAMES
from npu_sim.tiling.conv_tbc_problem import ROUTE_MATMUL, ROUTE_PLANNER

if TYPE_CHECKING:
    from npu_sim.ops.conv_tbc_backward import Arguments

NAME = "conv_tbc_backward"
TITLE = "ConvTbcBackward"
SUPPORTING = ("atlas_train", "atlas_a2", "atlas_a3")
DTYPES = ("float16", "float32", "bfloat16")
FORMATS = ("ND", "NCL")
INT64_MAX = 2**63 - 1
RANKS = {"grad_output": 3, "input": 3, "weight": 3, "bias": 1, "grad_input": 3, "grad_weight": 3, "grad_bias": 1}
MODELS = {"grad_input": "input", "grad_weight": "weight", "grad_bias": "bias"}
"""Every output has the shape and dtype of the input it is the gradient of."""
CUBE_MATH_TYPES = ("KEEP_DTYPE", "ALLOW_FP32_DOWN_PRECISION", "USE_FP16", "USE_HF32")


def check(arguments: "Arguments", profile: Profile, limits: Limits = "documented") -> Case:
    """Run the contract's checks in the product's order; return the call reduced to what planning needs.

    Raises
    ------
    AclnnError
        With the status of the first check that fails.
    """
    base.require_tensors(arguments)
    base.require_product(NAME, TITLE, profile, SUPPORTING)
    specs = _specs(arguments)
    _check_dtypes(specs, profile)
    _check_formats(specs)
    if specs["grad_output"].numel == 0:
        message = f"grad_output {specs['grad_output']} is empty (self of the product document)"
        raise AclnnError(INVALID, "grad_output", message, "every axis of grad_output needs at least one element")
    for name, rank in RANKS.items():
        if specs[name].rank != rank:
            raise AclnnError(INVALID, name, f"{name} {specs[name]} has rank {specs[name].rank}", f"{name}: rank {rank}")
    pad = _check_shapes(specs, arguments.pad)
    _check_ranges(specs, pad, profile, limits)
    math_type = base.require_int("cube_math_type", arguments.cube_math_type, 0, len(CUBE_MATH_TYPES) - 1)
    dtype = specs["input"].dtype
    compute = _check_math_type(dtype, math_type, profile)
    time, batch, _ = specs["input"].shape
    taps, in_channels, out_channels = specs["weight"].shape
    return Case(
        time=time,
        batch=batch,
        in_channels=in_channels,
        out_channels=out_channels,
        taps=taps,
        pad=pad,
        dtype=dtype,
        compute=compute,
        cube_math_type=math_type,
        self_contiguous=specs["grad_output"].contiguous,
        input_contiguous=specs["input"].contiguous,
        weight_contiguous=specs["weight"].contiguous,
        bias_contiguous=specs["bias"].contiguous,
        deterministic=False,
        profile=profile,
    )


def _specs(arguments: "Arguments") -> dict[str, TensorSpec]:
    """Return the seven tensors; an output that was left out is what it must be."""
    specs: dict[str, TensorSpec] = {name: getattr(arguments, name) for name in RANKS}
    for name, model in MODELS.items():
        if specs[name] is None:
            specs[name] = TensorSpec(specs[model].shape, specs[model].dtype)
    return specs


def _check_dtypes(specs: dict[str, TensorSpec], profile: Profile) -> None:
    cube = profile.product.cube_dtypes
    allowed = [one for one in DTYPES if one in profile.product.dtypes and (one != "bfloat16" or one in cube)]
    for name in ("grad_output", "input", "weight", "bias"):
        base.require_dtype(name, specs[name], allowed, profile.product.title)
    expected = specs["input"].dtype
    for name in ("grad_output", "weight", "bias", *MODELS):
        if specs[name].dtype != expected:
            message = f"{name} is {specs[name].dtype}, input is {expected}: they must agree"
            raise AclnnError(INVALID, name, message, f"{name}: {SHORT_NAMES[expected]}")


def _check_formats(specs: dict[str, TensorSpec]) -> None:
    for name, spec in specs.items():
        allowed = ("ND",) if name in ("bias", "grad_bias") else FORMATS
        if spec.storage_format not in allowed:
            raise AclnnError(INVALID, name, f"{name} has the format {spec.storage_format}", f"formats: {', '.join(allowed)}")


def _check_shapes(specs: dict[str, TensorSpec], pad_value: object) -> int:
    grad_output, x, weight, bias = (specs[name] for name in ("grad_output", "input", "weight", "bias"))
    if x.shape[2] != weight.shape[1]:
        message = f"input {x} has {x.shape[2]} channels, weight {weight} takes {weight.shape[1]}"
        raise AclnnError(INVALID, "weight", message, f"weight: {weight.shape[0]}x{x.shape[2]}x{weight.shape[2]}")
    if bias.shape[0] != weight.shape[2]:
        message = f"bias {bias} has {bias.shape[0]} elements, weight {weight} gives {weight.shape[2]} channels"
        raise AclnnError(INVALID, "bias", message, f"bias: {weight.shape[2]}")
    pad = base.require_int("pad", pad_value, 0, INT64_MAX)
    out_time = x.shape[0] + 2 * pad - weight.shape[0] + 1
    formula = f"T + 2 * pad - K + 1 = {x.shape[0]} + 2 * {pad} - {weight.shape[0]} + 1 = {out_time}"
    if out_time < 0:
        fitting = (weight.shape[0] - x.shape[0]) // 2
        raise AclnnError(INVALID, "pad", f"the output would have a negative length: {formula}", f"pad >= {fitting}")
    expected = (out_time, x.shape[1], weight.shape[2])
    if grad_output.shape != expected:
        sizes = "x".join(map(str, expected))
        message = f"grad_output is {grad_output}, input, weight and pad give {sizes}: {formula}"
        raise AclnnError(INVALID, "grad_output", message, f"grad_output: {sizes}")
    for name, model in MODELS.items():
        if specs[name].shape != specs[model].shape:
            message = f"{name} is {specs[name]}, the gradient of {model} {specs[model]}"
            raise AclnnError(INVALID, name, message, f"{name}: {'x'.join(map(str, specs[model].shape))}")
    return pad


def _check_ranges(specs: dict[str, TensorSpec], pad: int, profile: Profile, limits: Limits) -> None:
    """The ranges that the document states for A2 and A3; an axis of 0 is the empty path's."""
    if limits == "hardware":
        return
    stated = profile.limits
    if stated.conv_dim_at_most is not None:
        for name in ("grad_output", "input", "weight", "bias"):
            for axis, size in enumerate(specs[name].shape):
                if size > stated.conv_dim_at_most:
                    message = f"{name} {specs[name]}: axis {axis} has {size} elements"
                    raise AclnnError(INVALID, name, message, f"1 <= axis <= {stated.conv_dim_at_most}")
    taps = specs["weight"].shape[0]
    if stated.conv_kernel_width_at_most is not None and taps > stated.conv_kernel_width_at_most:
        hint = f"1 <= K <= {stated.conv_kernel_width_at_most}; limits=hardware allows what fits the chip"
        raise AclnnError(INVALID, "weight", f"weight {specs['weight']} has K = {taps} taps", hint)
    if stated.conv_pad_at_most is not None and pad > stated.conv_pad_at_most:
        hint = f"0 <= pad <= {stated.conv_pad_at_most}; limits=hardware allows more"
        raise AclnnError(INVALID, "pad", f"pad = {pad} is out of range", hint)


def _check_math_type(dtype: str, math_type: int, profile: Profile) -> str:
    cube = profile.product.cube_dtypes
    compute = compute_dtype(dtype, math_type, cube)
    if compute is None:
        legal = [f"{one} ({CUBE_MATH_TYPES[one]})" for one in range(len(CUBE_MATH_TYPES)) if compute_dtype(dtype, one, cube)]
        message = (
            f"cube_math_type = {math_type} ({CUBE_MATH_TYPES[math_type]}) with {dtype}: the cube unit of {profile.product.title} "
            f"computes {', '.join(cube)} only"
        )
        hint = f"cube_math_type: {' or '.join(legal)}" if legal else f"no cube_math_type takes {dtype} on this product"
        raise AclnnError(INVALID, "cube_math_type", message, hint)
    return compute


def check_tiling(case: Case) -> None:
    """Refuse a call whose smallest tile does not fit the on-chip buffers.

    Raises
    ------
    AclnnError
        561103, with the buffer, the bytes needed and the bytes there are.
    """
    if case.route == ROUTE_MATMUL:
        return
    planned = [("gradInput", case.input_tiling)]
    if case.route != ROUTE_PLANNER:
        planned.append(("gradWeight", case.weight_tiling))
    for name, tiling in planned:
        if tiling.status != 0:
            buffer = BUFFER_NAMES[tiling.shortage]
            message = (
                f"hardware limit: the smallest tile of {name} (16 x 16, K = {case.taps}, {case.compute}) needs {tiling.bytes_needed} bytes "
                f"of {buffer}, {case.profile.title} has {tiling.bytes_available}"
            )
            raise AclnnError(HARDWARE_LIMIT, "weight", message, _fitting_taps(case, buffer))


def _fits(case: Case, taps: int) -> bool:
    problem = case.problem._replace(taps=taps)
    weight = plan_grad_weight(problem, case.profile.device, not case.deterministic)
    return plan_grad_input(problem, case.profile.device).status == 0 and weight.status == 0


def _fitting_taps(case: Case, buffer: str) -> str:
    """Say which K fits: tiles only grow with K."""
    fits, fails = 0, case.taps
    while fails - fits > 1:
        middle = (fits + fails) // 2
        fits, fails = (middle, fails) if _fits(case, middle) else (fits, middle)
    return f"largest K that fits: {fits}" if fits else f"no K fits: the chip needs more {buffer}"
