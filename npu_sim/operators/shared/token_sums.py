"""What the contracts of operators that sum the rows of every token have in common.

Source: specification pages ``moe_token_permute_grad`` and ``moe_token_unpermute``.
"""

import numpy as np

from npu_sim.framework.case import Case, Inspection
from npu_sim.framework.results import runtime_failure
from npu_sim.operators.shared.token_sums_plan import element_bytes
from npu_sim.status import INVALID, AclnnError
from npu_sim.tiling import token_sums as moe
from npu_sim.tiling.common import align


def check_padding(call: Inspection) -> None:
    """Refuse padding, which the product does not support yet."""
    if call.arguments.padded_mode:
        raise AclnnError(
            INVALID, "padded_mode", "padded_mode = True is not supported yet", "padded_mode = False"
        )


def check_indices(indices: np.ndarray, rows: str) -> None:
    """Check what only the data can tell; ``rows`` says whose rows the indices are.

    Raises
    ------
    AclnnError
        361001 for a negative index, naming the first one's position and value.
    """
    if indices.size and np.minimum.reduce(indices) < 0:
        position = int(np.argmax(indices < 0))
        message = f"sorted_indices[{position}] = {indices[position]} is negative"
        hint = (
            f"index >= 0, at or beyond the rows of {rows} for a dropped token; nothing was written"
        )
        raise runtime_failure("sorted_indices", message, hint)


def buffer_words(
    case: Case, entries: str, entry_bytes: int, top_k: int, blames: str
) -> tuple[str, str, str]:
    """What does not fit the Unified Buffer, whatever the documents say: any piece of a row, or the entries of one token.

    Parameters
    ----------
    entries, entry_bytes, top_k
        What the entries are called, the bytes of one, and how many a token has.
    blames
        The argument that says how many a token has.
    """
    rows, hidden = case.operator.inputs[0].name, case.row.hidden
    ub_bytes, size, dtype = case.device.ub_bytes, element_bytes(case), case.specs[rows].dtype
    length = moe.piece_length(ub_bytes, hidden, size)
    if length <= 0:
        smallest = moe.RESERVED_BYTES + (moe.HIDDEN_ALIGNMENT + 1) * moe.bytes_per_column(
            moe.FEWEST_BUFFERS, size
        )
        message = f"no piece of a row fits the Unified Buffer of {case.profile.title}: {ub_bytes} usable bytes"
        return rows, message, f"the smallest piece of {dtype} needs {smallest} bytes"
    unit = moe.bytes_per_column(moe.buffers_of(ub_bytes, length, size), size)
    needed, left = entry_bytes * top_k, moe.bytes_for_entries(ub_bytes, hidden, size)
    message = (
        f"num_topk = {top_k}: the {entries} of one token need {entry_bytes} * {top_k} = {needed} bytes, "
        f"the rows leave {ub_bytes} - {align(length, moe.HIDDEN_ALIGNMENT)} * {unit} - {moe.MARGIN_BYTES} = {left} of the Unified Buffer"
    )
    always = moe.largest_topk_of_every_hidden(ub_bytes, size, entry_bytes)
    largest = moe.largest_topk(ub_bytes, hidden, size, entry_bytes)
    return (
        blames,
        message,
        f"nearest legal value: {largest} at hidden {hidden} {dtype}; {always} fits at every hidden size",
    )
