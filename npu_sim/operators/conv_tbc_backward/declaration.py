"""ConvTbcBackward: the gradients of a temporal convolution.

Source: product document aclnnConvTbcBackward; specification page ``conv_tbc_backward``.
"""

from functools import cache
from itertools import product

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    FLOAT_DTYPES,
    INNER_NULL_POINTER,
    INVALID,
    NULL_POINTER,
    Attribute,
    Case,
    Derived,
    Evidence,
    Inspection,
    MessageAndHint,
    Number,
    Operator,
    Output,
    PlannerMessage,
    Profile,
    Tensor,
    Text,
    Word,
    checks,
)
from npu_sim.tiling import conv_tbc_backward as tiler
from npu_sim.tiling.conv_tbc_backward import BUFFER_NAMES, COMPUTE_BITS, COMPUTE_DTYPES, MATH_TYPES

DTYPES = ("float16", "float32", "bfloat16")
PLAIN_OR_NCL = ("ND", "NCL")


def dtypes_of(profile: Profile) -> list[str]:
    """Return the dtypes that a product takes: bfloat16 only where its cube unit computes it."""
    product = profile.product
    dtypes = [dtype for dtype in DTYPES if dtype in product.dtypes]
    return [dtype for dtype in dtypes if dtype != "bfloat16" or dtype in product.cube_dtypes]


def _negative_time_message(call: Inspection) -> MessageAndHint:
    time, taps, pad = (call.size(name) for name in ("T", "K", "pad"))
    return Text(
        "the output would have a negative length: {formula}",
        formula=f"T + 2 * pad - K + 1 = {time} + 2 * {pad} - {taps} + 1 = {call.size('To')}",
    ), f"pad >= {(taps - time) // 2}"


def _matrix_shape_message(call: Inspection) -> MessageAndHint:
    return Text(
        "pad 0 and K = T = {size}: refused on {title} at release {release}",
        size=call.size("K"),
        title=call.profile.title,
        release=call.profile.release,
    ), "pad >= 1 or K < T, or a later release"


def _math_type_message(call: Inspection) -> MessageAndHint:
    """Return message and hint with the values of cubeMathType that the product takes."""
    dtype, chosen = call.specs["input"].dtype, int(call.arguments.cube_math_type)
    cube = call.profile.product.cube_dtypes
    legal = [
        f"{code} ({name})"
        for code, name in enumerate(CUBE_MATH_TYPES)
        if compute_dtype(dtype, code, cube)
    ]
    message = Text(
        "cube_math_type = {chosen} ({cube_math_types}) with {dtype}: the cube unit of "
        "{title} computes {cube} only",
        chosen=chosen,
        cube_math_types=CUBE_MATH_TYPES[chosen],
        dtype=dtype,
        title=call.profile.product.title,
        cube=", ".join(cube),
    )
    if not legal:
        return message, Text("no cube_math_type takes {dtype} on this product", dtype=dtype)
    return message, Text("cube_math_type: {legal}", legal=" or ".join(legal))


def _hardware_limit_message(case: Case) -> PlannerMessage:
    """Return argument, message and hint for a buffer smaller than the smallest tile.

    The hint gives the largest K that fits; tiles grow with K.
    """
    planned = {"gradInput": case.tiling.input_model, "gradWeight": case.tiling.weight_model}
    name, tiling = next((name, tiling) for name, tiling in planned.items() if tiling.status)
    buffer, taps = BUFFER_NAMES[tiling.shortage], case.row.K
    message = Text(
        "hardware limit: the smallest tile of {name} (16 x 16, K = {taps}, {computed_in}) "
        "needs {bytes_needed} bytes of {buffer}, {product_title} has {bytes_available}",
        name=name,
        taps=taps,
        computed_in=computed_in(case),
        bytes_needed=tiling.bytes_needed,
        buffer=buffer,
        product_title=case.profile.title,
        bytes_available=tiling.bytes_available,
    )
    fits, fails = 0, taps
    while fails - fits > 1:
        middle = (fits + fails) // 2
        fits, fails = (fits, middle) if case.changed(K=middle).tiling.status else (middle, fails)
    if not fits:
        return "weight", message, Text("no K fits: the chip needs more {buffer}", buffer=buffer)
    return "weight", message, Text("largest K that fits: {fits}", fits=fits)


CUBE_MATH_TYPES = ("KEEP_DTYPE", "ALLOW_FP32_DOWN_PRECISION", "USE_FP16", "USE_HF32")
"""The vendor's names of the values of cubeMathType."""
COMPUTED_IN = (("float32",), ("hf32", "float16"), ("float16",), ("hf32",))
"""Dtypes of the cube unit for fp32 tensors by cubeMathType, the preferred one first."""


def compute_dtype(dtype: str, cube_math_type: int, cube_dtypes: tuple[str, ...]) -> str | None:
    """Return the dtype of the cube unit; None where the product refuses the combination."""
    taken = (dtype,) if dtype != "float32" and cube_math_type != 2 else COMPUTED_IN[cube_math_type]
    return next((name for name in taken if name in cube_dtypes), None)


def compute_codes(profile: Profile) -> int:
    """Return the codes of :func:`compute_dtype` for every dtype and cubeMathType, packed.

    ``tiling.conv_tbc_backward`` unpacks them.
    """
    return _packed(profile.product.cube_dtypes)


@cache
def _packed(cube_dtypes: tuple[str, ...]) -> int:
    packed = 0
    for position, (dtype, math_type) in enumerate(product(FLOAT_DTYPES, range(MATH_TYPES))):
        packed |= COMPUTE_DTYPES.index(compute_dtype(dtype, math_type, cube_dtypes) or "none") << (
            COMPUTE_BITS * position
        )
    return packed


def computed_in(case: Case) -> str:
    """Return the dtype that the cube unit computes in, for a call with a tiling."""
    return COMPUTE_DTYPES[case.tiling.compute]


OPERATOR = Operator(
    name="conv_tbc_backward",
    title="ConvTbcBackward",
    summary="Compute the gradients of a temporal convolution, as the product does.",
    arguments=(
        Tensor(
            "grad_output",
            "To B Cout",
            "gradient of the output (self of the product document)",
            "dtype",
            document="self",
            samples=1,
        ),
        Tensor("input", "T B Cin", "input of the convolution", "dtype", samples=1),
        Tensor("weight", "K Cin Cout", "weight", "dtype"),
        Tensor("bias", "Cout", "bias; only its shape matters", "dtype"),
        Attribute(
            "pad",
            int,
            "zeros at both ends of the time axis; To = T + 2 * pad - K + 1",
            default=0,
            low=0,
        ),
        Attribute(
            "cube_math_type",
            int,
            "0 keep dtype, 1 allow lower precision, 2 use fp16, 3 use hf32",
            default=0,
            low=0,
            high=3,
        ),
        Output(
            "grad_input",
            "T B Cin",
            "gradient of input, like input",
            "dtype",
            samples=1,
            parts="element",
        ),
        Output(
            "grad_weight", "K Cin Cout", "gradient of weight, like weight", "dtype", parts="element"
        ),
        Output("grad_bias", "Cout", "gradient of bias, like bias", "dtype", parts="element"),
    ),
    axes=(
        Word("dtype", "dtype of all tensors", FLOAT_DTYPES, "float16"),
        Word(
            "cube_math_type",
            "cubeMathType",
            tuple(map(str, range(len(CUBE_MATH_TYPES)))),
            "1",
            aliases=("cubeMathType",),
        ),
        Number("pad", "pad", 0, unit="padded step"),
        Number("K", "taps, first axis of weight", 3, unit="tap", aliases=("taps", "kernel_width")),
        Number(
            "Cout",
            "output channels, last axis of weight",
            64,
            unit="output channel",
            aliases=("out_channels",),
        ),
        Number(
            "Cin",
            "input channels, last axis of input",
            64,
            unit="input channel",
            aliases=("in_channels",),
        ),
        Number("B", "batch, second axis of input", 8, unit="sample", aliases=("batch",)),
        Number("T", "time steps, first axis of input", 128, unit="time step", aliases=("time",)),
    ),
    derived=(Derived("To", "T + 2 * pad - K + 1"),),
    rules_of={"compute": compute_codes},
    checks=(
        checks.Given(),
        checks.Supported(),
        checks.Dtypes("grad_output input weight bias", dtypes_of),
        checks.SameDtype("grad_output weight bias grad_input grad_weight grad_bias", like="input"),
        checks.Formats(PLAIN_OR_NCL, "grad_output input weight"),
        checks.Formats(checks.ND, "bias"),
        checks.Formats(PLAIN_OR_NCL, "grad_input grad_weight"),
        checks.Formats(checks.ND, "grad_bias"),
        checks.NotEmpty("grad_output"),
        checks.Ranks("grad_output input weight", 3, 3),
        checks.Ranks("bias", 1, 1),
        checks.Ranks("grad_input grad_weight", 3, 3),
        checks.Ranks("grad_bias", 1, 1),
        checks.Shapes("input weight bias"),
        checks.Attributes("pad"),
        checks.Holds("To >= 0", "pad", _negative_time_message, INVALID),
        checks.Shapes("grad_output"),
        checks.Like("grad_input", "input"),
        checks.Like("grad_weight", "weight"),
        checks.Like("grad_bias", "bias"),
        checks.Holds(
            "max(To, B, Cout) <= dim_at_most", "grad_output", status=INVALID, documented=True
        ),
        checks.Holds("max(T, Cin) <= dim_at_most", "input", status=INVALID, documented=True),
        checks.Holds("K <= dim_at_most", "weight", status=INVALID, documented=True),
        checks.Holds("K <= kernel_width_at_most", "weight", status=INVALID, documented=True),
        checks.Holds("pad <= pad_at_most", "pad", status=INVALID, documented=True),
        checks.Attributes("cube_math_type"),
        checks.Fits(tiler.takes_math_type, "cube_math_type", _math_type_message, INVALID),
        checks.NothingToDo("T == 0 or Cin == 0 or K == 0"),
        checks.Fits(tiler.takes_matrix_shape, "weight", _matrix_shape_message, NULL_POINTER),
    ),
    tiling=tiler.Tiling,
    tile=tiler.tile_row,
    planner_failure=INNER_NULL_POINTER,
    planner_message=_hardware_limit_message,
    empty="empty: no gradient is computed, gradInput and gradWeight are 0",
    evidence=Evidence.EXACT,
    on_cube=True,
    families_not_modelled=(ASCEND_950,),
    package=__package__,
)
