"""What plans of RmsNorm and AddRmsNorm state alike: workspace, work of a core, warnings."""

from collections.abc import Iterator

from npu_sim.framework.vocabulary import (
    SYSTEM_WORKSPACE,
    Case,
    Caveat,
    Evidence,
    Text,
    WorkspacePart,
    caveat,
    ceil_div,
    counted,
    to_fp32,
)
from npu_sim.tiling.ascend_950.rms_norm import full_load_columns
from npu_sim.tiling.rms_norm import UNTOUCHED_BYTES

KERNEL_PARTS = (
    SYSTEM_WORKSPACE,
    WorkspacePart(
        name="untouched", bytes=UNTOUCHED_BYTES, kind="kernel", note="no kernel reads or writes it"
    ),
)
"""The kernel's own workspace."""


def copied_outputs(case: Case) -> list[WorkspacePart]:
    """Return the copies of outputs of a call whose host code is generated."""
    return [
        WorkspacePart(
            name=Text("copy of {name}", name=output.name),
            bytes=0,
            kind="kernel",
            evidence=Evidence.UNKNOWN,
            note="not published",
        )
        for output in case.outputs
        if not case.specs[output.name].contiguous
    ]


def rows_per_core(case: Case, *, is_split: bool) -> str:
    """Return the work of a core that takes rows in groups, whole or in pieces of columns."""
    tiling = case.tiling
    groups = Text(
        "{groups} of up to {rows}",
        groups=counted(tiling.groups.row_loop, "group"),
        rows=counted(min(tiling.row_factor, tiling.block_factor), "row"),
    )
    if not is_split:
        return groups
    return Text(
        "{groups}, {pieces} pieces of up to {ub_factor} columns",
        groups=groups,
        pieces=ceil_div(tiling.columns, tiling.ub_factor),
        ub_factor=tiling.ub_factor,
    )


def path_on_950(case: Case, piece: int, rows: int, most_rows: int) -> tuple[str, str, str]:
    """Return the path, its reason, and the work of a core.

    A core takes rows in pieces of ``piece`` columns or, where that is 0, ``rows`` whole rows at a
    time, of which ``most_rows`` fit the buffer.
    """
    width = f"col_align {full_load_columns(case.row.col, case.row.dtype)}"
    if piece > 0:
        return (
            "split",
            Text("{width} does not fit the buffer whole", width=width),
            Text(
                "{pieces} pieces of up to {ub_factor} columns",
                pieces=ceil_div(case.row.col, piece),
                ub_factor=piece,
            ),
        )
    groups = counted(ceil_div(case.tiling.block_factor, rows), "group")
    return (
        "full load",
        Text("{width}: {row_factor} rows fit the buffer", width=width, row_factor=most_rows),
        Text("{groups} of up to {rows}", groups=groups, rows=counted(rows, "row")),
    )


def zero_epsilon_caveats(case: Case) -> Iterator[Caveat]:
    """Warn of an epsilon that is 0 in fp32."""
    if to_fp32(case.arguments.epsilon) == 0:
        yield caveat(
            "zero_rows_without_epsilon",
            "epsilon",
            "epsilon is 0 in fp32: a row of zeros has rstd inf and y nan",
        )
