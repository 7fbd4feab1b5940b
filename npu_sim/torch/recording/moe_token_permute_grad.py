"""Tokens on their way to experts and back, in the forms frameworks write: gathers and additions of the rows that a top-k chose.

One call stands for all moves of a block, however many experts it goes through: MoeTokenPermute and MoeTokenUnpermute, and their
gradients.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.torch.recording.stretch import Stretch


class Choice(NamedTuple):
    """Experts chosen for tokens."""

    tokens: int
    topk: int


class Moved(NamedTuple):
    """Rows taken out of, or added to, a tensor of some rows."""

    rows_of: int
    hidden: int
    rows: int
    dtype: str
    added: bool


def _chosen(arguments: Sequence[Any], result: Any) -> Choice | None:
    values = result[0]
    return Choice(values.shape[0], values.shape[1]) if values.dim() == 2 else None


def _indexed(arguments: Sequence[Any], result: Any) -> Moved | None:
    """Read ``tensor[rows]`` and ``tensor[None, rows]``."""
    source, places = (
        arguments[0],
        [place for place, index in enumerate(arguments[1]) if index is not None],
    )
    if (
        len(places) != 1
        or source.dim() < 2
        or places[0] != source.dim() - 2
        or arguments[1][places[0]].dim() != 1
    ):
        return None
    return _moved(source, places[0], result, added=False)


def _selected(arguments: Sequence[Any], result: Any) -> Moved | None:
    return _moved(arguments[0], arguments[1], result, added=False)


def _added(arguments: Sequence[Any], result: Any) -> Moved | None:
    return _moved(arguments[0], arguments[1], arguments[3], added=True)


def _moved(many: torch.Tensor, axis: int, moved: torch.Tensor, *, added: bool) -> Moved | None:
    if (
        many.dim() < 2
        or axis % many.dim() != many.dim() - 2
        or not many.is_floating_point()
        or not many.shape[-1]
    ):
        return None
    hidden = many.shape[-1]
    return Moved(many.shape[-2], hidden, moved.numel() // hidden, str(many.dtype), added)


ROUTING = {
    "aten::topk": _chosen,
    "aten::index": _indexed,
    "aten::index_select": _selected,
    "aten::gather": _selected,
    "aten::index_add": _added,
    "aten::index_add_": _added,
    "aten::scatter_add": _added,
    "aten::scatter_add_": _added,
}


def left(
    stretch: Stretch, module: torch.nn.Module | None, inputs: tuple[Any, ...], result: Any
) -> None:
    """Look whether a module routed tokens: whether there are a choice and moves of as many rows as it chose.

    A router sees no moves and experts no choice: both are looked at in the block around them, whose result is like its input.
    """
    choices = [one for one in stretch.routing if isinstance(one, Choice)]
    if module is None:
        for choice in choices:
            _give_up(stretch, choice, "no module around it has a result like its input")
        return
    first = next((one for one in inputs if isinstance(one, torch.Tensor)), None)
    output = result[0] if isinstance(result, tuple) and result else result
    if (
        not choices
        or first is None
        or not isinstance(output, torch.Tensor)
        or output.shape != first.shape
    ):
        return
    choice = choices[-1]
    moves = [one for one in stretch.routing if isinstance(one, Moved)]
    there = [one for one in moves if not one.added and one.rows_of == choice.tokens]
    if not there:
        _give_up(
            stretch,
            choice,
            "no rows of its tokens are gathered: every expert may compute every token",
        )
    elif output.numel() != choice.tokens * there[0].hidden:
        _give_up(
            stretch,
            choice,
            Text("the result of {type_name} has other rows", type_name=type(module).__name__),
        )
    else:
        _record(stretch, output, choice, there, moves)


def _give_up(stretch: Stretch, choice: Choice, why: str) -> None:
    stretch.routing.clear()
    stretch.not_recognised(
        "routing of tokens",
        Text(
            "top {topk} of {tokens} tokens: {why}", topk=choice.topk, tokens=choice.tokens, why=why
        ),
    )


def _record(
    stretch: Stretch, output: torch.Tensor, choice: Choice, there: list[Moved], moves: list[Moved]
) -> None:
    (tokens, topk), hidden, dtype = choice, there[0].hidden, there[0].dtype
    if topk == 1:  # then as many rows come back as went there, and look alike
        there = there[: (len(there) + 1) // 2]
    kept = sum(one.rows for one in there)
    if kept > tokens * topk:
        _give_up(
            stretch,
            choice,
            Text(
                "{kept} rows are gathered, at most {entries} are chosen",
                kept=kept,
                entries=tokens * topk,
            ),
        )
        return

    def spec(*shape: int, dtype: str = dtype) -> str:
        return str(TensorSpec(shape, dtype))

    chosen = {"tokens": spec(tokens, hidden), "indices": spec(tokens, topk, dtype="int64")}
    stretch.forward(
        "moe_token_permute", chosen | ({"num_out_tokens": kept} if kept < tokens * topk else {})
    )
    permuted, sorted_indices = spec(kept, hidden), spec(tokens * topk, dtype="int32")
    added = sum(one.rows for one in moves if one.added and one.rows_of == tokens)
    gathered = any(
        one.rows == one.rows_of == kept for one in moves if not one.added and one not in there[:1]
    )
    if added == kept or gathered:
        back = {
            "permuted_tokens": permuted,
            "sorted_indices": sorted_indices,
            "probs": spec(tokens, topk),
        }
        stretch.forward("moe_token_unpermute", back)
        stretch.backward(
            output,
            "moe_token_unpermute_grad",
            lambda _: {**back, "unpermuted_tokens_grad": spec(tokens, hidden)},
        )
    else:
        stretch.not_recognised(
            "return of tokens",
            Text(
                "{kept} rows went to experts, and no addition or gather brings {kept} back",
                kept=kept,
            ),
        )
    call = {"permuted_output_grad": permuted, "sorted_indices": sorted_indices, "num_topk": topk}
    stretch.backward(output, "moe_token_permute_grad", lambda _: call)
    # The moves are a small part of what ran: the kernels of the experts stay counted.
    stretch.forward_known = stretch.backward_known = False
    stretch.routing.clear()
