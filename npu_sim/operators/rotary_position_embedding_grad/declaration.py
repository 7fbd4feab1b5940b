"""RotaryPositionEmbeddingGrad: the gradients of RotaryPositionEmbedding.

Source: product document aclnnRotaryPositionEmbeddingGrad; specification page
``rotary_position_embedding_grad``.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import (
    ASCEND_950,
    TILING_FAILURE,
    VECTOR_LANES,
    AclnnError,
    Argument,
    Case,
    Caveat,
    Description,
    Device,
    Evidence,
    Inspection,
    Operator,
    Output,
    OutputOrder,
    Range,
    Run,
    Switch,
    Tensor,
    Text,
    caveat,
    checks,
    decision,
    vector_plan,
)
from npu_sim.numbers.values import normal
from npu_sim.operators.rotary_position_embedding import declaration as forward
from npu_sim.operators.rotary_position_embedding.compute import angles, four_axes, rotated
from npu_sim.operators.rotary_position_embedding.plan import ALIGNED
from npu_sim.operators.shared.normalised_rows import SYSTEM
from npu_sim.tiling import rotary_position_embedding_grad as tiler
from npu_sim.tiling.common import even_range
from npu_sim.tiling.rotary_position_embedding import INTERLEAVE, MOST_COLUMNS

MOST_WITH_X = 1024
"""Documented limit of B*N of half with x (page, "Contract" 5)."""
DOCUMENTED = len(tiler.REFUSALS)
MODE, BROADCAST, D_LIMIT, D_ODD = map(
    tiler.REFUSALS.index, ("mode", "broadcast", "d_limit", "d_odd")
)
LAYOUTS = {tiler.BSND: "BSND", tiler.BNSD: "BNSD", tiler.SBND: "SBND"}
INTERLEAVED = tuple(LAYOUTS.values())
"""Layouts by the number that the tiling of interleave has for them."""
MOST_STRIDE = 65535
OFFSETS = 2**32
"""Largest stride between copied rows in blocks, and elements, that the kernel's integers hold."""


def exceeds_documents(row: Any) -> bool:
    """Return whether half has more batches or heads than documented."""
    if row.mode == INTERLEAVE:
        return False
    layout = tiler.half_layout(row)
    is_many = layout.batches >= forward.MOST_DOCUMENTED or layout.heads >= forward.MOST_DOCUMENTED
    return is_many or (row.has_x != 0 and layout.batches * layout.heads > MOST_WITH_X)


def overflows(row: Any, device: Device) -> bool:
    """Return whether not even one head fits the buffers of interleave (page, "Interleave")."""
    if row.mode != INTERLEAVE:
        return False
    tiling = tiler.interleaved_of(row, device).interleaved
    groups = tiling.head_number + tiling.group_number
    if groups == 0 and tiling.front_number == 0:
        return True
    limit = 2448 if tiling.layout == 1 else 2336
    return groups == 1 and row.dtype != 0 and row.dim > limit


def contract(row: Any, device: Device) -> int:
    """Return the code of what the product refuses of sizes and mode; 0 for nothing."""
    is_documented = row.limits == 0
    if row.mode < 0 or row.mode > INTERLEAVE:
        return MODE
    if row.cos0 not in (1, row.x0) or row.cos1 not in (1, row.x1) or row.cos2 not in (1, row.x2):
        return BROADCAST
    is_wide = is_documented or (row.mode != INTERLEAVE and row.dim > MOST_COLUMNS)
    if is_wide and row.dim >= MOST_COLUMNS:
        return D_LIMIT
    if row.dim % 2 != 0:
        return D_ODD
    found = tiler.refusal(row, device)
    if found != 0:
        return found
    if overflows(row, device):
        return tiler.UB
    return DOCUMENTED if is_documented and exceeds_documents(row) else 0


def accepts(row: Any, device: Device, rules: Any) -> bool:
    """Return whether a call passes."""
    return contract(row, device) == 0


def bind_axes(call: Inspection) -> None:
    """Set the sizes from the shapes as the planner reads them."""
    forward.bind_axes(call, "dy")


def check_shapes(call: Inspection) -> None:
    """Check mode and shapes in the order of the planner (page, "Contract" 4)."""
    dy, cos, sin = (call.specs[name].shape for name in ("dy", "cos", "sin"))
    x = call.specs["x"].shape if "x" in call.specs else None
    rule = tiler.shape_refusal(dy, cos, sin, x, int(call.arguments.mode))
    if rule:
        raise forward.refuse_shape(call, rule, "dy", TILING_FAILURE)


def refusal_message(call: Inspection) -> tuple[str, str]:
    """Return message and hint of what the product refuses of sizes."""
    row, code = call.row, contract(call.row, call.device)
    dy, cos = call.specs["dy"], call.specs["cos"]
    if code < DOCUMENTED and (rule := tiler.REFUSALS[code]) in forward.SHAPE_RULES:
        error: AclnnError = forward.refuse_shape(call, rule, "dy", TILING_FAILURE)
        return error.message, error.hint
    if code == tiler.LAYOUT:
        return Text(
            "the planner has no layout for cos {cos} with dy {dy}; RotaryPositionEmbedding may "
            "take them",
            cos=cos,
            dy=dy,
        ), Text(
            "forms that run: cos (1, S, 1, D) for dy (B, S, N, D), (1, 1, S, D) for (B, N, S, D), "
            "(S, 1, 1, D) or (S, B, 1, D) for (S, B, N, D)"
        )
    layout = tiler.layout_of(row)
    fields = {"batches": layout.batches, "heads": layout.heads, "dim": row.dim}
    if code == tiler.BN_LIMIT:
        message = "interleave with B*N = {batches} * {heads}: the product takes less than 1000"
        return Text(message, **fields), Text("fewer batches a call")
    if code == tiler.UB:
        message = "D = {dim} does not fit the Unified Buffer: the kernel would exceed its buffers"
        return Text(message, **fields), Text("a smaller D")
    return Text(
        "half with B = {batches}, N = {heads}: documents allow B and N below 1000, and with x B*N "
        "of at most 1024",
        **fields,
    ), Text("{hardware} allows more", hardware=Argument("limits", "hardware"))


OPERATOR = Operator(
    name="rotary_position_embedding_grad",
    title="RotaryPositionEmbeddingGrad",
    summary="Compute the gradients of RotaryPositionEmbedding as the product does.",
    arguments=(
        Tensor(
            "dy",
            forward.x_axes,
            "gradient of the result, (x0, x1, x2, D) or (T, N, D)",
            "dtype",
            samples=forward.first_axis,
        ),
        Tensor("cos", forward.cos_axes, "cosines, other axes than D 1 or those of dy", "dtype"),
        Tensor("sin", forward.cos_axes, "sines, like cos", "dtype"),
        Tensor(
            "x",
            forward.x_axes,
            "input of the forward operator; without it dcos and dsin are not computed",
            "dtype",
            document="xOptional",
            optional=True,
            samples=forward.first_axis,
        ),
        forward.MODE_ATTRIBUTE,
        Output(
            "dx",
            forward.x_axes,
            "gradient of x, like dy",
            "dtype",
            document="dxOut",
            samples=forward.first_axis,
        ),
        Output(
            "dcos",
            forward.cos_axes,
            "gradient of cos, with x",
            "dtype",
            document="dcosOut",
            given_with="x",
        ),
        Output(
            "dsin",
            forward.cos_axes,
            "gradient of sin, with x",
            "dtype",
            document="dsinOut",
            given_with="x",
        ),
    ),
    axes=(*forward.axes_named("dy"), Switch("has_x", "whether x is given", tensor="x")),
    checks=(
        checks.Given(),
        checks.Supported(),
        checks.Attributes("mode"),
        checks.Dtypes("dy", checks.product_dtypes),
        checks.SameDtype("cos sin x dx dcos dsin", "dy"),
        checks.Formats(checks.PLAIN_FORMATS),
        bind_axes,
        checks.NothingToDo("x0 * x1 * x2 * dim == 0"),
        forward.CONTIGUOUS_OUTPUTS,
        check_shapes,
        checks.Like("dx", "dy", TILING_FAILURE),
        checks.Like("dcos dsin", "cos", TILING_FAILURE),
        checks.Fits(accepts, "cos", refusal_message),
    ),
    tiling=tiler.Tiling,
    tile=tiler.tile,
    assumed=forward.assumed("rotary_position_embedding_grad"),
    evidence=Evidence.EXACT,
    families_not_modelled=(ASCEND_950,),
    package=__package__,
)


def ranges_of(tiling: tiler.Tiling) -> list[Range]:
    """Return the rows of cos of every core."""
    half, interleaved, cores = tiling.half, tiling.interleaved, tiling.block_dim
    if not half.cores:
        positions = interleaved.positions
        return [even_range(core, positions // cores, positions % cores) for core in range(cores)]
    size, last = half.core // half.columns, half.last_core // half.columns
    ends = [core * size + (last if core == cores - 1 else size) for core in range(cores)]
    return [(core * size, end) for core, end in enumerate(ends)]


def is_large(tiling: tiler.Tiling) -> bool:
    """Return whether tiles of interleave have some heads of one position."""
    return bool(tiling.interleaved.head_number + tiling.interleaved.group_number)


def path_of(tiling: tiler.Tiling) -> str:
    """Return the path of a plan."""
    half, interleaved = tiling.half, tiling.interleaved
    if half.cores:
        return Text("half, {layout}", layout=LAYOUTS[half.layout])
    layout = INTERLEAVED[interleaved.layout]
    if is_large(tiling):
        return Text("interleave, {layout}, some heads of a position", layout=layout)
    return Text("interleave, {layout}, whole positions", layout=layout)


def sum_order(case: Case) -> str:
    """Return the order of the sums of dcos and dsin (page, "Kernel and order of the sums")."""
    interleaved = case.tiling.interleaved
    if case.row.mode == INTERLEAVE and not is_large(case.tiling) and interleaved.layout == 0:
        return "one core adds the batches of every head, then the heads"
    return "one core adds all rows of dy that share a row of cos, the first axis slowest"


def describe(case: Case) -> Description:
    """Return what the operator states of a plan."""
    tiling, row = case.tiling, case.row
    sums = [output.output for output in case.outputs if output.output != "dx"]
    order = [OutputOrder(output=name, fixed=True, reason=sum_order(case)) for name in sums]
    dx_order = OutputOrder(output="dx", fixed=True, reason="every row belongs to one core")
    return vector_plan(
        case,
        path=path_of(tiling),
        path_reason=Text("cos {cos} with dy {dy}", cos=case.specs["cos"], dy=case.specs["dy"]),
        per_core="a core takes all rows of dy that go with its rows of cos",
        buffers=tiler.buffers(tiling, row.dtype, bool(row.has_x)),
        ranges=ranges_of(tiling),
        fields=tiler.fields_of_mode(tiling, case.rules),
        workspace=(SYSTEM,),
        conditions=lambda: [decision(case, ALIGNED, D=row.dim)] if tiling.half.cores else [],
        order=(dx_order, *order),
        caveats=caveats(case),
    )


def caveats(case: Case) -> Iterator[Caveat]:
    """Yield the warnings of a plan (page, "Warnings a plan gives")."""
    row, half, interleaved = case.row, case.tiling.half, case.tiling.interleaved
    if case.rules.keeps_3d_flag and case.specs["dy"].rank == 3:
        yield caveat(
            "tnd_flag_stays_set",
            "dy",
            "release {release}: after this 3-D call every later 4-D gradient call of the process "
            "with this mode is planned as if (1, a0, a1, a2) were its shape: it is refused, or dx "
            "is wrong. Give dy as (1, T, N, D)",
            release=case.profile.release,
            since="8.5",
            until="release 9.1 of 17 July 2026",
        )
    if half.stride > MOST_STRIDE and row.dim % VECTOR_LANES == 0 and half.core > row.dim:
        yield caveat(
            "stride_wraps",
            "dy",
            "the stride between rows, {stride} blocks, does not fit 16 bits: the kernel gives "
            "wrong dx, dcos and dsin; the simulator computes as if it fitted",
            stride=half.stride,
            not_modelled="*",
        )
    elements = row.x0 * row.x1 * row.x2 * row.dim
    if (
        interleaved.positions
        and not is_large(case.tiling)
        and interleaved.layout < 2
        and elements >= OFFSETS
    ):
        yield caveat(
            "element_offset_wraps",
            "dy",
            "dy has {elements} elements, and the kernel's offsets have 32 bits; the simulator "
            "computes as if they fitted",
            elements=elements,
            not_modelled="*",
        )
    yield from of_sums(case)
    if row.limits and exceeds_documents(row):
        yield caveat(
            "documented_bn_exceeded",
            "dy",
            "B or N, or with x B*N, is beyond the document; the product plans and computes it",
        )


def of_sums(case: Case) -> Iterator[Caveat]:
    """Yield the warnings on dcos and dsin."""
    interleaved = case.tiling.interleaved
    if not case.row.has_x:
        yield caveat(
            "dcos_dsin_unwritten",
            "x",
            "without x the product leaves dcos and dsin unwritten: they hold whatever was there",
        )
    elif (
        interleaved.positions
        and interleaved.layout == 0
        and interleaved.batches > 1
        and interleaved.heads > 1
    ):
        yield caveat(
            "sum_order_differs",
            "x",
            "dcos and dsin are summed in the order of {size} tiles; other sizes, dtypes or buffers "
            "can change the last bits",
            size="large" if is_large(case.tiling) else "small",
        )


def compute(run: Run) -> None:
    """Compute dx, and with x dcos and dsin."""
    with run.watch.stage("load"):
        from npu_sim.kernels.rotary import Sums, Tensors, rotate, sum_products
    interleaves = run.case.row.mode == INTERLEAVE
    with run.watch.stage("compute"):
        dy, cos, sin = (four_axes(run.stored(name)) for name in ("dy", "cos", "sin"))
        rotate(Tensors(dy, cos, sin, run.written("dx").reshape(-1)), interleaves, turns_back=True)
        if run.case.row.has_x:
            dcos, dsin = (four_axes(run.written(name)) for name in ("dcos", "dsin"))
            sums = Sums(dy, four_axes(run.stored("x")), dcos, dsin)
            sum_products(sums, interleaves, order_of(run.case))


def order_of(case: Case) -> int:
    """Return the order of the sums (page, "Kernel and order of the sums")."""
    from npu_sim.kernels.rotary import BY_HEAD, FROM_FIRST, FROM_ZERO

    layout = INTERLEAVED[case.tiling.interleaved.layout]
    if case.row.mode != INTERLEAVE or is_large(case.tiling) or layout == "BNSD":
        return FROM_ZERO
    return FROM_FIRST if layout == "SBND" else BY_HEAD


def formula(
    arguments: Any, tensors: Mapping[str, np.ndarray], precision: np.dtype[Any]
) -> dict[str, np.ndarray]:
    """Return the gradients by their formula (page, "Formula")."""
    wide = {name: array.astype(precision) for name, array in tensors.items() if array is not None}
    dy, cos, sin, mode = wide["dy"], wide["cos"], wide["sin"], int(arguments.mode)
    results = {"dx": dy * cos - rotated(dy * sin, mode)}
    if "x" in wide:
        axes = tuple(np.flatnonzero(np.array(cos.shape) != np.array(dy.shape)).tolist())
        products = {"dcos": wide["x"] * dy, "dsin": rotated(wide["x"], mode) * dy}
        for name, product in products.items():
            results[name] = product.sum(axis=axes, keepdims=True)
    return results


def data(arguments: Any, seed: int) -> dict[str, np.ndarray]:
    """Return gradients and activations of order 1, and cos and sin of growing angles."""
    random = np.random.default_rng(seed)
    given = {"dy": normal(random, arguments.dy), **angles(arguments.cos)}
    return given if arguments.x is None else {**given, "x": normal(random, arguments.x)}
