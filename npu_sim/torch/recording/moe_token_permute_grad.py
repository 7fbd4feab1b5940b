"""Routing of tokens to experts and back: gathers and additions of the rows that a top-k chose.

One recorded call stands for all moves of a block, for any number of experts: MoeTokenPermute,
MoeTokenUnpermute, and their gradients.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.torch.recording.recorder import Span


class Choice(NamedTuple):
    """Result of a top-k: experts per token."""

    tokens: int
    topk: int


class Move(NamedTuple):
    """Gather of ``rows`` rows from a tensor of ``rows_of`` rows, or their addition to one."""

    rows_of: int
    hidden: int
    rows: int
    dtype: str
    added: bool


def _topk(arguments: Sequence[Any], result: Any) -> Choice | None:
    values = result[0]
    return Choice(values.shape[0], values.shape[1]) if values.dim() == 2 else None


def _index(arguments: Sequence[Any], result: Any) -> Move | None:
    """Read ``tensor[rows]`` and ``tensor[None, rows]``."""
    source, indices = arguments[0], arguments[1]
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    if len(axes) != 1 or indices[axes[0]].dim() != 1 or axes[0] != source.dim() - 2:
        return None
    return _move(source, axes[0], result, added=False)


def _index_select(arguments: Sequence[Any], result: Any) -> Move | None:
    return _move(arguments[0], arguments[1], result, added=False)


def _index_add(arguments: Sequence[Any], result: Any) -> Move | None:
    return _move(arguments[0], arguments[1], arguments[3], added=True)


def _move(tensor: torch.Tensor, axis: int, rows: torch.Tensor, *, added: bool) -> Move | None:
    """Return the move of rows on the second last axis; None for another axis or for integers."""
    dim = tensor.dim()
    if dim < 2 or axis % dim != dim - 2 or not tensor.is_floating_point() or not tensor.shape[-1]:
        return None
    hidden = tensor.shape[-1]
    return Move(tensor.shape[-2], hidden, rows.numel() // hidden, str(tensor.dtype), added)


ROUTING = {
    "aten::topk": _topk,
    "aten::index": _index,
    "aten::index_select": _index_select,
    "aten::gather": _index_select,
    "aten::index_add": _index_add,
    "aten::index_add_": _index_add,
    "aten::scatter_add": _index_add,
    "aten::scatter_add_": _index_add,
}


def on_module_exit(
    span: Span, module: torch.nn.Module | None, inputs: tuple[Any, ...], result: Any
) -> None:
    """Record the routing of a module whose top-k and moves have matching numbers of rows.

    A router contains no moves and its experts contain no top-k. Both are found in the enclosing
    block, whose result has the shape of its input.
    """
    choices = [entry for entry in span.routing if isinstance(entry, Choice)]
    if module is None:
        for choice in choices:
            _not_recognised(span, choice, "no module around it has a result like its input")
        return
    tokens = next((value for value in inputs if isinstance(value, torch.Tensor)), None)
    output = result[0] if isinstance(result, tuple) and result else result
    if not choices or tokens is None or not isinstance(output, torch.Tensor):
        return
    if output.shape != tokens.shape:
        return
    choice = choices[-1]
    moves = [entry for entry in span.routing if isinstance(entry, Move)]
    gathers = [move for move in moves if not move.added and move.rows_of == choice.tokens]
    if not gathers:
        _not_recognised(
            span, choice, "no rows of its tokens are gathered: every expert may compute every token"
        )
    elif output.numel() != choice.tokens * gathers[0].hidden:
        name = type(module).__name__
        why = Text("the result of {type_name} has other rows", type_name=name)
        _not_recognised(span, choice, why)
    else:
        _record(span, output, choice, gathers, moves)


def _not_recognised(span: Span, choice: Choice, why: str) -> None:
    span.routing.clear()
    span.not_recognised(
        "routing of tokens",
        Text(
            "top {topk} of {tokens} tokens: {why}", topk=choice.topk, tokens=choice.tokens, why=why
        ),
    )


def _record(
    span: Span, output: torch.Tensor, choice: Choice, gathers: list[Move], moves: list[Move]
) -> None:
    (tokens, topk), hidden, dtype = choice, gathers[0].hidden, gathers[0].dtype
    if topk == 1:  # the gathers back to the tokens look the same as those to the experts
        gathers = gathers[: (len(gathers) + 1) // 2]
    entries, rows = tokens * topk, sum(move.rows for move in gathers)
    if rows > entries:
        why = Text(
            "{kept} rows are gathered, at most {entries} are chosen", kept=rows, entries=entries
        )
        _not_recognised(span, choice, why)
        return

    def spec(*shape: int, dtype: str = dtype) -> str:
        return str(TensorSpec(shape, dtype))

    permute: dict[str, Any] = {
        "tokens": spec(tokens, hidden),
        "indices": spec(tokens, topk, dtype="int64"),
    }
    permute |= {"num_out_tokens": rows} if rows < entries else {}
    span.forward("moe_token_permute", permute)
    permuted, sorted_indices = spec(rows, hidden), spec(entries, dtype="int32")
    added = sum(move.rows for move in moves if move.added and move.rows_of == tokens)
    later = (move for move in moves if not move.added and move not in gathers[:1])
    if added == rows or any(move.rows == move.rows_of == rows for move in later):
        unpermute = {
            "permuted_tokens": permuted,
            "sorted_indices": sorted_indices,
            "probs": spec(tokens, topk),
        }
        span.forward("moe_token_unpermute", unpermute)
        span.backward(
            output,
            "moe_token_unpermute_grad",
            lambda _: {**unpermute, "unpermuted_tokens_grad": spec(tokens, hidden)},
        )
    else:
        why = Text(
            "{kept} rows went to experts, and no addition or gather brings {kept} back", kept=rows
        )
        span.not_recognised("return of tokens", why)
    call = {"permuted_output_grad": permuted, "sorted_indices": sorted_indices, "num_topk": topk}
    span.backward(output, "moe_token_permute_grad", lambda _: call)
    # The moves are a small part of the block: the kernels of the experts are still counted.
    span.forward_known = span.backward_known = False
    span.routing.clear()
