"""Rows of a sweep compared with the planner of a single call."""

from npu_sim.sweeps.runner import compare_row


def mismatches(records, rows):
    """Return the fields of some rows that differ from the plan of the call."""
    return [
        mismatch
        for row in rows
        for mismatch in compare_row(records.space, records.columns, row, records[row])
    ]
