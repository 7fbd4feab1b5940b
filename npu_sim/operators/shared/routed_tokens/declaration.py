"""Arguments, axes and checks of the operators on routed tokens, and why a call does not fit.

Sources: specification pages ``moe_token_permute_grad``, ``moe_token_unpermute`` and
``moe_token_unpermute_grad``, "Contract".
"""

from typing import Any

from npu_sim.framework.vocabulary import (
    FLOAT_DTYPES,
    INVALID,
    AclnnError,
    Attribute,
    Axis,
    Case,
    Derived,
    Inspection,
    IntArray,
    MessageAndHint,
    Number,
    PlannerMessage,
    Switch,
    Tensor,
    Text,
    Word,
    align,
)
from npu_sim.tiling import moe_token_unpermute as moe
from npu_sim.tiling import moe_token_unpermute as tiler

SORTED_INDICES = Tensor(
    "sorted_indices",
    "entries",
    (
        "row of every token and expert, (tokens * num_topk,), at or beyond the rows of "
        "permuted_tokens where it was dropped"
    ),
    "int32",
    samples=0,
    addresses=True,
)
PROBS = Tensor(
    "probs",
    "tokens num_topk",
    (
        "weight of every token and expert, (tokens, num_topk); without it num_topk is 1 and rows "
        "have no weight"
    ),
    "probs_dtype",
    document="probsOptional",
    optional=True,
    samples=0,
)
ATTRIBUTES = (
    Attribute("padded_mode", bool, "not supported yet: False", False),
    Attribute(
        "restore_shape", IntArray, "accepted and ignored", None, document="restoreShapeOptional"
    ),
)
ENTRY_COUNTS = (
    Derived("top_k", "1 + (num_topk - 1) * has_probs"),
    Derived("entries", "tokens * top_k"),
)
"""Without probs a token has one entry, whatever the value of num_topk."""


def check_padding(call: Inspection) -> None:
    """Refuse padding, which the product does not support yet."""
    if call.arguments.padded_mode:
        raise AclnnError(
            INVALID, "padded_mode", "padded_mode = True is not supported yet", "padded_mode = False"
        )


def permuted_tokens(help: str) -> Tensor:
    """Return the argument permuted_tokens: the rows of the experts."""
    return Tensor("permuted_tokens", "rows hidden", help, "dtype")


def topk_axis(help: str, read: str = "") -> Number:
    """Return the axis of the experts of a token."""
    aliases = ("numTopk", "topk", "K")
    return Number("num_topk", help, 8, unit="expert", aliases=aliases, read=read)


def hidden_axis(tensor: str) -> Number:
    """Return the axis of columns, the last one of a tensor."""
    help = Text("last axis of {tensor}", tensor=tensor)
    return Number("hidden", help, 1024, unit="column", aliases=("H", "hidden_size"))


def tokens_axis(read: str) -> Number:
    """Return the axis of tokens; ``read``: its size, from those of the tensors."""
    return Number(
        "tokens",
        "tokens; sorted_indices has tokens * num_topk elements",
        1024,
        unit="token",
        aliases=("T",),
        read=read,
    )


def axes(tensor: str) -> tuple[Axis, ...]:
    """Return the axes; ``tensor`` is the name of the one that has the columns."""
    return (
        Word("dtype", Text("dtype of {tensor}", tensor=tensor), FLOAT_DTYPES, "bfloat16"),
        Switch(
            "has_probs", "whether probs is given", True, aliases=("probs_given",), tensor="probs"
        ),
        Word("probs_dtype", "dtype of probs", FLOAT_DTYPES, "float32"),
        topk_axis(Text("experts chosen for a token, columns of probs; without probs it is 1"), "1"),
        hidden_axis(tensor),
        tokens_axis("entries"),
    )


def topk_message(call: Any) -> MessageAndHint:
    """Return message and hint for the limit on the experts of a token."""
    return Text(
        "probs has {top_k} columns, more than the product takes", top_k=call.size("top_k")
    ), Text("numTopk <= {most_topk}, a limit of the hardware too", most_topk=moe.MOST_TOPK)


def buffer_message(
    case: Case, entries: str, entry_bytes: int, top_k: int, blamed: str
) -> PlannerMessage:
    """Return argument, message and hint if a piece of a row or the entries of a token do not fit.

    - ``entries``, ``entry_bytes``, ``top_k``: name of the entries, bytes of an entry, and entries
      of a token.
    - ``blamed``: argument that sets the number of entries of a token.
    """
    rows, hidden = case.operator.inputs[0].name, case.row.hidden
    ub_bytes, size, dtype = case.device.ub_bytes, element_bytes(case), case.specs[rows].dtype
    length = moe.piece_length(ub_bytes, hidden, size)
    if length <= 0:
        column_bytes = moe.bytes_per_column(moe.FEWEST_BUFFERS, size)
        return (
            rows,
            Text(
                "no piece of a row fits the Unified Buffer of {title}: {ub_bytes} usable bytes",
                title=case.profile.title,
                ub_bytes=ub_bytes,
            ),
            Text(
                "the smallest piece of {dtype} needs {smallest} bytes",
                dtype=dtype,
                smallest=moe.RESERVED_BYTES + (moe.HIDDEN_ALIGNMENT + 1) * column_bytes,
            ),
        )
    unit = moe.bytes_per_column(moe.buffers_of(ub_bytes, length, size), size)
    needed, left = entry_bytes * top_k, moe.bytes_for_entries(ub_bytes, hidden, size)
    message = Text(
        "num_topk = {top_k}: the {entries} of one token need {entry_bytes} * {top_k} = "
        "{needed} bytes, the rows leave {ub_bytes} - {align} * {unit} - {margin_bytes} = "
        "{left} of the Unified Buffer",
        top_k=top_k,
        entries=entries,
        entry_bytes=entry_bytes,
        needed=needed,
        ub_bytes=ub_bytes,
        align=align(length, moe.HIDDEN_ALIGNMENT),
        unit=unit,
        margin_bytes=moe.MARGIN_BYTES,
        left=left,
    )
    hint = Text(
        "nearest legal value: {largest} at hidden {hidden} {dtype}; {always} fits at every "
        "hidden size",
        largest=moe.largest_topk(ub_bytes, hidden, size, entry_bytes),
        hidden=hidden,
        dtype=dtype,
        always=moe.largest_topk_of_every_hidden(ub_bytes, size, entry_bytes),
    )
    return blamed, message, hint


def element_bytes(case: Case) -> int:
    """Return the bytes of one element of the rows and of the output."""
    return case.specs[case.operator.outputs[0].name].itemsize


def probs_code(call: Any) -> int:
    """Return the dtype code of probs, or ``NO_PROBS``."""
    return call.row.probs_dtype if call.row.has_probs else tiler.NO_PROBS
