"""In which dtype the cube unit computes ConvTbcBackward: what cubeMathType selects on a product.

Source: product document aclnnConvTbcBackward; specification page ``conv_tbc_backward``, table of step 8 of "Contract".
"""

from functools import cache
from itertools import product

from npu_sim.cores import Profile
from npu_sim.framework.case import Case, Inspection
from npu_sim.framework.codes import FLOAT_DTYPES
from npu_sim.tiling.conv_tbc_backward.planner import COMPUTE_BITS, COMPUTE_DTYPES, MATH_TYPES
from npu_sim.tiling.conv_tbc_backward.problem import multiplies_elements

CUBE_MATH_TYPES = ("KEEP_DTYPE", "ALLOW_FP32_DOWN_PRECISION", "USE_FP16", "USE_HF32")
"""The vendor's names of the values of cubeMathType."""
CONTRACTIONS = {"gradInput": "Cout", "gradWeight": "B"}
"""Along which axis the matrix product of each gradient sums."""


def compute_dtype(dtype: str, cube_math_type: int, cube_dtypes: tuple[str, ...]) -> str | None:
    """Return the dtype the cube unit computes in; None where the product refuses the combination."""
    if dtype == "float16" or cube_math_type == 2:
        return "float16" if "float16" in cube_dtypes else None
    if dtype == "bfloat16":
        return "bfloat16" if "bfloat16" in cube_dtypes else None
    if cube_math_type == 0:
        return "float32" if "float32" in cube_dtypes else None
    if "hf32" in cube_dtypes:
        return "hf32"
    return "float16" if cube_math_type == 1 and "float16" in cube_dtypes else None


def compute_codes(profile: Profile) -> int:
    """Return the code of the cube unit's dtype for every dtype and cubeMathType, as ``tiling.conv_tbc_backward`` takes them apart."""
    return _packed(profile.product.cube_dtypes)


@cache
def _packed(cube_dtypes: tuple[str, ...]) -> int:
    packed = 0
    for place, (dtype, math_type) in enumerate(product(FLOAT_DTYPES, range(MATH_TYPES))):
        packed |= COMPUTE_DTYPES.index(compute_dtype(dtype, math_type, cube_dtypes) or "none") << (
            COMPUTE_BITS * place
        )
    return packed


def refusal_words(call: Inspection) -> tuple[str, str]:
    """Say which cubeMathType the product takes instead."""
    dtype, cube, chosen = (
        call.specs["input"].dtype,
        call.profile.product.cube_dtypes,
        int(call.arguments.cube_math_type),
    )
    legal = [
        f"{code} ({name})"
        for code, name in enumerate(CUBE_MATH_TYPES)
        if compute_dtype(dtype, code, cube)
    ]
    message = (
        f"cube_math_type = {chosen} ({CUBE_MATH_TYPES[chosen]}) with {dtype}: the cube unit of {call.profile.product.title} "
        f"computes {', '.join(cube)} only"
    )
    return (
        message,
        f"cube_math_type: {' or '.join(legal)}"
        if legal
        else f"no cube_math_type takes {dtype} on this product",
    )


def computed_in(case: Case) -> str:
    """Return the dtype of the cube unit for a call that has a tiling."""
    return COMPUTE_DTYPES[case.tiling.compute]


def elementwise_gradients(case: Case) -> tuple[str, ...]:
    """Return the gradients that are products of elements, not of matrices: gradInput for Cout == 1, gradWeight for B == 1."""
    return tuple(
        name
        for name, axis in CONTRACTIONS.items()
        if multiplies_elements(case.tiling.route, getattr(case.row, axis))
    )


def converts_to_fp16(case: Case) -> bool:
    """Whether operands are cast to fp16 before the cube unit sees them."""
    return computed_in(case) == "float16" and case.specs["input"].dtype != "float16"
