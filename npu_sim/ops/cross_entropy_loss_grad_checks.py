"""CrossEntropyLossGrad: the checks of the contract, and the buffer arithmetic behind the limit of N.

Source: product document aclnnCrossEntropyLossGrad; specification page ``cross_entropy_loss_grad``, "Contract" and "The limit".
"""

from typing import TYPE_CHECKING

from npu_sim.cores import Profile
from npu_sim.formats import SHORT_NAMES
from npu_sim.ops import base
from npu_sim.planning.cross_entropy_loss_grad import Case, allocations, row_allocations
from npu_sim.status import INVALID, TILING_FAILURE, AclnnError
from npu_sim.tiling import cross_entropy_loss_grad as tiling_rules
from npu_sim.tiling.cross_entropy_loss_grad import REDUCTIONS, Tiling

if TYPE_CHECKING:
    from npu_sim.ops.cross_entropy_loss_grad import Arguments

NAME = "cross_entropy_loss_grad"
TITLE = "CrossEntropyLossGrad"
FLOAT_DTYPES = ("float16", "bfloat16", "float32")
STORAGE_FORMATS = ("ND",)
"""数据格式要求为ND (product document)."""
UNSUPPORTED_TENSORS = ("grad_zloss", "lse_for_zloss")
UNSUPPORTED_NUMBERS = ("label_smoothing", "lse_square_scale_for_zloss")


def check_dtypes(arguments: "Arguments", profile: Profile) -> None:
    """Check dtypes and formats; 161002."""
    log_prob, grad_loss = arguments.log_prob, arguments.grad_loss
    assert log_prob is not None
    assert grad_loss is not None
    floats = [dtype for dtype in FLOAT_DTYPES if dtype in profile.product.dtypes]
    allowed = {"target": ("int64",), "weight": ("float32",)} | dict.fromkeys(UNSUPPORTED_TENSORS, FLOAT_DTYPES)
    specs = {name: getattr(arguments, name) for name in arguments.tensors()}
    for name, spec in specs.items():
        if spec is not None:
            base.require_dtype(name, spec, allowed.get(name, floats), TITLE)
    for name in ("grad_loss", "out"):
        spec = specs[name]
        if spec is not None and spec.dtype != log_prob.dtype:
            message = f"{name} is {spec.dtype}, log_prob is {log_prob.dtype}: they must agree"
            raise AclnnError(INVALID, name, message, f"{name}: {log_prob.dtype}")
    for name, spec in specs.items():
        if spec is not None and spec.storage_format not in STORAGE_FORMATS:
            raise AclnnError(INVALID, name, f"{name} has the format {spec.storage_format}", f"format: {', '.join(STORAGE_FORMATS)}")


def check_attributes(arguments: "Arguments") -> None:
    """Check the reduction, and that nothing is asked for that the product does not support yet; 161002."""
    if arguments.reduction not in REDUCTIONS:
        message = f"reduction = {arguments.reduction!r} is not a reduction"
        raise AclnnError(INVALID, "reduction", message, f"reduction: {', '.join(REDUCTIONS)}")
    for name in UNSUPPORTED_NUMBERS:
        value = getattr(arguments, name)
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise AclnnError(INVALID, name, f"{name} = {value!r} is not a number", f"{name} = 0") from None
        if name == "label_smoothing" and not 0 <= number <= 1:
            raise AclnnError(INVALID, name, f"{name} = {number:g} is outside [0, 1]", f"{name} = 0: others are not supported yet")
        if number != 0:
            raise AclnnError(INVALID, name, f"{name} = {number:g} is not supported yet", f"{name} = 0")
    for name in UNSUPPORTED_TENSORS:
        if getattr(arguments, name) is not None:
            raise AclnnError(INVALID, name, f"{name} is not supported yet", f"leave {name} out")


def check_shapes(arguments: "Arguments") -> tuple[int, int]:
    """Check that the shapes agree (561002); return N and C."""
    log_prob = arguments.log_prob
    assert log_prob is not None
    if log_prob.rank != 2:
        raise _bad_shape("log_prob", f"log_prob {log_prob} has rank {log_prob.rank}", "rank 2: (N, C)")
    rows, columns = log_prob.shape
    if columns == 0:
        raise _bad_shape("log_prob", f"log_prob {log_prob} has no columns", "C >= 1")
    one_for_a_row = arguments.reduction == "none"
    wanted = {
        "target": (rows,),
        "weight": (columns,),
        "grad_loss": (rows,) if one_for_a_row else (),
        "out": (rows, columns),
    }
    for name, shape in wanted.items():
        spec = getattr(arguments, name)
        if spec is not None and spec.shape != shape:
            text = "x".join(map(str, shape)) or "scalar"
            why = f", reduction {arguments.reduction}" if name == "grad_loss" else f", log_prob is {log_prob}"
            raise _bad_shape(name, f"{name} is {spec}{why}", f"{name}: {text}")
    return rows, columns


def check_ignore_index(ignore_index: int, columns: int) -> None:
    """Check that ignore_index is below C; 161002."""
    if ignore_index >= columns:
        message = f"ignore_index = {ignore_index} must be below C = {columns}"
        raise AclnnError(INVALID, "ignore_index", message, f"ignore_index <= {columns - 1}; negative for none")


def _bad_shape(argument: str, message: str, hint: str) -> AclnnError:
    return AclnnError(TILING_FAILURE, argument, message, hint)


def check_limits(case: Case) -> None:
    """Check the documented limit of N as far as it is enforced, then what really fits; 561002."""
    problem, device = case.problem(), case.profile.device
    fits = tiling_rules.fits(problem, device)
    if case.rows_below is not None and case.rows >= case.rows_below:
        nearest = min(case.rows_below - 1, tiling_rules.largest_rows(problem, device))
        message = f"log_prob has N = {case.rows} rows; the product document allows fewer than {case.rows_below}"
        really = [f"what really fits       {_largest_text(case)}: --limits hardware"]
    elif not fits:
        nearest = tiling_rules.largest_rows(problem, device)
        message = f"log_prob has N = {case.rows} rows, which the Unified Buffer of {case.profile.title} does not hold: {_reason(case)}"
        really = []
    else:
        return
    tiling = tiling_rules.tile(problem, device)
    lines = [
        f"nearest legal value    {f'N = {nearest}' if nearest else 'none at this C'}{'' if fits else _column_text(case, tiling)}",
        *really,
    ]
    lines.append(f"arithmetic             {_arithmetic(case, tiling)}")
    lines.append(f"where it breaks        {_break_text(case)}")
    raise AclnnError(TILING_FAILURE, "log_prob", message, "\n".join(lines))


def _call_text(case: Case) -> str:
    weight = "weight" if case.weighted else "no weight"
    return f"{SHORT_NAMES[case.dtype]}, {case.reduction}, {weight}"


def _largest_text(case: Case) -> str:
    """Say how many rows really fit, and for which calls that holds."""
    device = case.profile.device
    largest = tiling_rules.largest_rows(case.problem(), device)
    return f"N <= {largest} ({_call_text(case)}, C = {case.columns}, {device.vector_cores} cores)"


def _column_text(case: Case, tiling: Tiling) -> str:
    """Name the widest row that fits beside these row buffers: only one below a whole block of columns can."""
    if tiling.wraps == 1:
        return ""
    columns = tiling_rules.largest_short_row(case.problem(), case.profile.device)
    return f", or C = {columns}" if 0 < columns < case.columns else ""


def _reason(case: Case) -> str:
    """Say which of the conditions fails (page, "The limit")."""
    problem, ub_bytes = case.problem(), case.profile.device.ub_bytes
    tiling = tiling_rules.tile(problem, case.profile.device)
    used = tiling_rules.row_buffer_bytes(tiling.buffers)
    if tiling.wraps == 1:
        return f"the row buffers alone need {used} of {ub_bytes} bytes"
    if tiling.align_columns == 0 and case.columns > tiling.column_budget:
        unit = tiling_rules.unit_columns(problem.dtype_code)
        fitting = f"beside the row buffers fit {tiling.column_budget} columns, fewer than a block of {unit}"
        return f"{fitting}, and a whole row has C = {case.columns}"
    return f"all buffers need {sum(buffer.bytes for buffer in allocations(case, tiling))} of {ub_bytes} bytes"


def _arithmetic(case: Case, tiling: Tiling) -> str:
    """Write out what the row buffers take and what they leave."""
    device = case.profile.device
    used = tiling_rules.row_buffer_bytes(tiling.buffers)
    buffers = " + ".join(f"{buffer.name} {buffer.bytes}" for buffer in row_allocations(tiling))
    text = f"ceil({case.rows}, {device.vector_cores}) = {tiling.front_rows} rows a core: {buffers} = {used} of {device.ub_bytes} bytes"
    if tiling.wraps == 1:
        return text
    divisor = tiling_rules.bytes_per_column(case.problem().dtype_code)
    return f"{text}, {device.ub_bytes - used} left // {divisor} = {tiling.column_budget} columns"


def _break_text(case: Case) -> str:
    """Say where the row no longer fits, and where the product's own arithmetic wraps around."""
    problem, device = case.problem(), case.profile.device
    fitting, before_wrap = tiling_rules.largest_rows(problem, device), tiling_rules.largest_rows_before_wrap(problem, device)
    return (
        f"N > {fitting}: the row does not fit beside the row buffers; N > {before_wrap}: they alone exceed the Unified Buffer, "
        "the product's unsigned arithmetic wraps around and takes any row to fit"
    )
