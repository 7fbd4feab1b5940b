"""Why CrossEntropyLossGrad refuses so many rows, and what it would take: the buffer arithmetic in words.

Source: specification page ``cross_entropy_loss_grad``, "The limit".
"""

from npu_sim.framework.case import Case, Inspection
from npu_sim.numbers.formats import SHORT_NAMES
from npu_sim.operators.cross_entropy_loss_grad.plan import allocations, row_allocations
from npu_sim.tiling import cross_entropy_loss_grad as tiler
from npu_sim.tiling.cross_entropy_loss_grad import (
    largest_rows,
    largest_rows_before_wrap,
    largest_short_row,
)


def beyond_documented(call: Inspection) -> tuple[str, str]:
    """Say how many rows the product document allows, and how many really fit."""
    case = call.case(empty=False)
    rows_below, largest = case.rules.rows_below, _largest_rows(case)
    weight = "weight" if case.row.weighted else "no weight"
    which = f"{SHORT_NAMES[case.specs['log_prob'].dtype]}, {case.arguments.reduction}, {weight}"
    really = f'N <= {largest} ({which}, C = {case.row.C}, {case.device.vector_cores} cores): limits="hardware"'
    message = (
        f"log_prob has N = {case.row.N} rows; the product document allows fewer than {rows_below}"
    )
    return message, _hint(case, min(rows_below - 1, largest), f"what really fits       {really}")


def beyond_buffer(call: Inspection) -> tuple[str, str]:
    """Say which buffers exceed the Unified Buffer."""
    case = call.case(empty=False)
    title = case.profile.title
    message = f"log_prob has N = {case.row.N} rows, which the Unified Buffer of {title} does not hold: {_reason(case)}"
    return message, _hint(case, _largest_rows(case))


def _largest_rows(case: Case) -> int:
    return largest_rows(tiler.problem_of(case.row), case.device, case.rules)


def _hint(case: Case, nearest: int, *more: str) -> str:
    rows = f"N = {nearest}" if nearest else "none at this C"
    lines = [f"nearest legal value    {rows}{_column_text(case)}", *more]
    return "\n".join(
        [
            *lines,
            f"arithmetic             {_arithmetic(case)}",
            f"where it breaks        {_break_text(case)}",
        ]
    )


def _column_text(case: Case) -> str:
    """Name the widest row that fits beside these row buffers: only one below a whole block of columns can."""
    if case.tiling.wraps == 1 or tiler.fits_buffer(case.row, case.device, case.rules):
        return ""
    columns = largest_short_row(tiler.problem_of(case.row), case.device, case.rules)
    return f", or C = {columns}" if 0 < columns < case.row.C else ""


def _reason(case: Case) -> str:
    """Say which of the conditions fails (page, "The limit")."""
    tiling, ub_bytes = case.tiling, case.device.ub_bytes
    if tiling.wraps == 1:
        return f"the row buffers alone need {tiler.row_buffer_bytes(tiling.buffers)} of {ub_bytes} bytes"
    if tiling.align_columns == 0 and tiling.column_budget < case.row.C:
        unit = tiler.unit_columns(case.row.dtype)
        fitting = f"beside the row buffers fit {tiling.column_budget} columns, fewer than a block of {unit}"
        return f"{fitting}, and a whole row has C = {case.row.C}"
    return (
        f"all buffers need {sum(buffer.bytes for buffer in allocations(case))} of {ub_bytes} bytes"
    )


def _arithmetic(case: Case) -> str:
    """Write out what the row buffers take and what they leave."""
    tiling, device = case.tiling, case.device
    used = tiler.row_buffer_bytes(tiling.buffers)
    buffers = " + ".join(f"{buffer.name} {buffer.bytes}" for buffer in row_allocations(tiling))
    cores = f"ceil({case.row.N}, {device.vector_cores}) = {tiling.front_rows} rows a core"
    text = f"{cores}: {buffers} = {used} of {device.ub_bytes} bytes"
    if tiling.wraps == 1:
        return text
    rest = f"{device.ub_bytes - used} left // {tiler.bytes_per_column(case.row.dtype)} = {tiling.column_budget} columns"
    return f"{text}, {rest}"


def _break_text(case: Case) -> str:
    """Say where the row no longer fits, and where the product's own arithmetic wraps around."""
    before_wrap = largest_rows_before_wrap(tiler.problem_of(case.row), case.device, case.rules)
    return (
        f"N > {_largest_rows(case)}: the row does not fit beside the row buffers; N > {before_wrap}: they alone exceed the Unified Buffer, "
        "the product's unsigned arithmetic wraps around and takes any row to fit"
    )
