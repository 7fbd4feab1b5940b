"""Permutation of tokens to experts: gradients, and how the routing of tokens is recorded.

Rows of a tensor are gathered by an index, pass through any kernels, and are added to rows of the
same number, or gathered again: whatever chose the rows. One recorded call stands for all moves of
a block, for any number of experts: MoeTokenPermute, MoeTokenUnpermute, and their gradients. A
choice of experts whose rows do not move is listed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch
from torch import Tensor

from npu_sim.language import Text
from npu_sim.numbers.formats import TensorSpec
from npu_sim.status import INVALID, TILING_FAILURE, AclnnError
from npu_sim.torch.flow import Kernel
from npu_sim.torch.library import Gradient, Gradients, operator_of
from npu_sim.torch.recorder import Span
from npu_sim.torch.recording import Place

__all__ = ["moe_token_permute", "npu_moe_token_permute", "npu_moe_token_permute_grad_v2"]

GRADIENT_OPERATOR = operator_of("moe_token_permute_grad")


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    tokens, indices, *_ = inputs
    sorted_indices = output[1]
    ctx.shape = tokens.shape
    ctx.topk = indices.shape[1] if indices.dim() == 2 else 1
    ctx.save_for_backward(sorted_indices)
    ctx.mark_non_differentiable(sorted_indices)


def _backward(ctx: Any, grad: Tensor, _: Any) -> Gradients:
    (sorted_indices,) = ctx.saved_tensors
    rows = grad.contiguous().reshape(grad.shape[0], ctx.shape[1:].numel())
    return (
        GRADIENT_OPERATOR(rows, sorted_indices, ctx.topk, False).reshape(ctx.shape),
        None,
        None,
        None,
    )


FORWARD_OPERATOR = operator_of("moe_token_permute", Gradient(_keep, _backward))


def moe_token_permute(
    tokens: Tensor, indices: Tensor, num_out_tokens: int | None = None, padded_mode: bool = False
) -> tuple[Tensor, Tensor]:
    """Return (permuted_tokens, sorted_indices): tokens sorted by expert, and the row of each copy.

    Entry i of the flattened indices copies token i // topk to row sorted_indices[i], which is int32
    of shape (tokens * topk,). Rows from ``num_out_tokens`` on are dropped; 0 and None drop nothing,
    and a negative number counts from the end. MoeTokenPermuteGrad computes the gradient.

    Raises
    ------
    AclnnError
        As :func:`npu_sim.moe_token_permute`; 561002 for ``padded_mode``, which the product does not
        support yet.
    """
    permuted, sorted_indices = FORWARD_OPERATOR(
        tokens.contiguous(), indices.contiguous(), num_out_tokens or 0, padded_mode
    )
    return permuted, sorted_indices


npu_moe_token_permute = moe_token_permute
"""Name of the same function in ``torch_npu``."""


def npu_moe_token_permute_grad_v2(
    grad_permuted_tokens: Tensor,
    sorted_indices: Tensor,
    tokens_size_0: int,
    tokens_dtype: torch.dtype,
    num_topK: int,
    padded_mode: bool = False,
) -> Tensor:
    """Return the gradient of tokens, (tokens_size_0, columns): the sum of each token's rows.

    ``torch_npu`` has it from 2.9 on, for code that writes its own backward.

    Raises
    ------
    AclnnError
        As :func:`npu_sim.moe_token_permute_grad`; 161002 when ``tokens_dtype`` is not the dtype of
        the gradient, 561002 when ``tokens_size_0 * num_topK`` is not the number of sorted_indices.
    """
    if tokens_dtype != grad_permuted_tokens.dtype:
        raise AclnnError(
            INVALID,
            "tokens_dtype",
            "tokens_dtype = {dtype}, grad_permuted_tokens has {expected}",
            "the same dtype for both",
            dtype=str(tokens_dtype),
            expected=str(grad_permuted_tokens.dtype),
        )
    entries = sorted_indices.numel()
    if num_topK >= 1 and tokens_size_0 * num_topK != entries:
        raise AclnnError(
            TILING_FAILURE,
            "tokens_size_0",
            "tokens_size_0 = {tokens}, num_topK = {topk}: sorted_indices has {entries} elements",
            "tokens_size_0 * num_topK elements",
            tokens=tokens_size_0,
            topk=num_topK,
            entries=entries,
        )
    grad: Tensor = GRADIENT_OPERATOR(
        grad_permuted_tokens.contiguous(), sorted_indices.contiguous(), num_topK, padded_mode
    )
    return grad


TOPIC = "routing"
CHOOSING = frozenset({"topk", "sort", "argsort", "argmax", "argmin", "max", "min", "multinomial"})
"""Kernels whose integer results are positions that floating-point scores decide."""
RETURNING = {"index_add": 3, "index_put": 2, "scatter_add": 3, "index_copy": 3, "scatter_reduce": 3}
RETURNING["scatter"] = 3
"""Kernels that write rows to positions, with the position of the argument that holds the rows."""
GATHERING = frozenset({"index", "index_select", "gather"})
WEIGHTED = frozenset({"mul", "div", "bmm", "baddbmm"})
"""Kernels that multiply rows by their scores."""
PRODUCTS = frozenset({"mm", "bmm", "addmm", "baddbmm"})
"""Kernels that multiply matrices; those of fused attention begin with ``ATTENTION``."""
ATTENTION = "_scaled_dot_product"
SOFTMAX = frozenset({"_softmax", "_safe_softmax", "_masked_softmax"})
STACKED = 3
"""Fewest axes of a parameter that holds the weights of all experts."""


@dataclass(eq=False)
class Choice:
    """Positions that scores decided."""

    kernel: str
    """Name of the kernel that decided."""
    rows: int
    """Number of rows of scores."""
    topk: int
    """Number of positions for each row."""
    limit: int
    """Most elements of scores for the chosen positions."""
    place: Place | None = None
    """Place of the program that decided."""
    moves: bool = False
    """Whether a larger tensor depends on the choice: rows are selected or scaled by it."""
    closed: bool = False
    """Whether the choice is recorded or listed."""


@dataclass(frozen=True, eq=False)
class Shares:
    """Softmax of scores that depend on a choice, as attention computes of the chosen keys."""

    choice: Choice


_numbers = count()


@dataclass(eq=False)
class Block:
    """Rows that were gathered from one tensor; also the fact of tensors that hold them.

    Such a tensor has the rows, or values computed from them.
    """

    tokens: int
    """Rows of the tensor."""
    hidden: int
    """Columns of the tensor."""
    dtype: str
    """Dtype of the tensor."""
    choice: Choice | None = None
    """Choice that the index depends on; None if no scores decided."""
    gathered: int = 0
    """Number of rows that were gathered."""
    returned: int = 0
    """Number of rows that were added back."""
    probs: str = ""
    """Dtype of the scores that multiply the rows; empty if none do."""
    closed: bool = False
    """Whether the block is recorded or listed."""
    number: int = field(default_factory=lambda: next(_numbers))


@dataclass(frozen=True, eq=False)
class Source:
    """Contents of a tensor from which the rows of a block were gathered."""

    block: Block
    fact: Any


def follow(kernel: Kernel) -> list[tuple[Tensor, Any]]:
    """Return the facts about a kernel's results that routing is derived from."""
    facts = [_fact(kernel, tensor) for tensor in kernel.tensors]
    known = next((fact for fact in facts if isinstance(fact, Choice | Shares)), None)
    choice = known.choice if isinstance(known, Shares) else known
    blocks = [fact for fact in facts if isinstance(fact, Block)]
    first = min(blocks, key=lambda block: block.number) if blocks else None
    if kernel.name in CHOOSING and kernel.tensors[0].is_floating_point():
        return _chosen(kernel)
    if kernel.name in GATHERING:
        _gather_weights(kernel, choice)
        block = _gathered(kernel, choice, first)
        if block is not None:
            return [(kernel.results[0], block)]
    if first is None and choice is None:
        return []
    if choice is not None and _attends(kernel, facts):
        choice.closed = True
        return []
    if choice is not None and first is None and _projects(kernel):
        choice.moves = True
        return []
    if first is not None:
        if kernel.name in RETURNING and _returned(kernel, first):
            return []
        if kernel.name in WEIGHTED:
            _weighted(kernel, facts, first)
    if known is choice and choice is not None and kernel.name in SOFTMAX:
        known = Shares(choice)
    return [(tensor, _derived(kernel, tensor, first, known)) for tensor in kernel.results]


def _fact(kernel: Kernel, tensor: Tensor) -> Any:
    """Return the open block or choice that a tensor depends on."""
    fact = kernel.flow.fact_of_whole(TOPIC, tensor)
    fact = fact.fact if isinstance(fact, Source) else fact
    return None if isinstance(fact, Block) and fact.closed else fact


def _derived(
    kernel: Kernel, tensor: Tensor, block: Block | None, known: Choice | Shares | None
) -> Any:
    """Return the fact of a tensor that was computed from rows of a block, or from a choice."""
    if tensor.is_floating_point() and block is not None:
        return block
    choice = known.choice if isinstance(known, Shares) else known
    if choice is None or not tensor.is_floating_point() or tensor.numel() <= choice.limit:
        return known
    if kernel.name == "cat" or any(
        operand.shape[-1:] == tensor.shape[-1:] and isinstance(fact, Choice | Shares)
        for operand, fact in ((operand, _fact(kernel, operand)) for operand in kernel.tensors)
    ):
        return known  # scores of several heads, under one mask
    choice.moves = True
    return None


def _projects(kernel: Kernel) -> bool:
    """Return whether a kernel multiplies by a parameter: its results are no scores any more."""
    return kernel.name in PRODUCTS and any(
        kernel.flow.parameter(tensor) is not None for tensor in kernel.tensors
    )


def _attends(kernel: Kernel, facts: list[Any]) -> bool:
    """Return whether a kernel adds up the values of chosen keys: several rows of one matrix."""
    if kernel.name.startswith(ATTENTION):
        return True
    if kernel.name not in PRODUCTS or len(facts) < 2:
        return False
    scores, values = kernel.tensors[-2:]
    return (
        isinstance(facts[-2], Shares)
        and facts[-1] is None
        and scores.shape[-2] > 1
        and kernel.flow.parameter(values) is None
    )


def _chosen(kernel: Kernel) -> list[tuple[Tensor, Any]]:
    """Follow a kernel that chooses positions by their scores."""
    scores = kernel.tensors[0]
    positions = next((result for result in kernel.results if not result.is_floating_point()), None)
    if positions is None or scores.dim() < 1 or scores.numel() == 0:
        return []
    rows = scores.numel() // scores.shape[-1]
    topk = max(positions.numel() // rows, 1)
    limit = (scores.numel() + rows) * topk  # masks have a column more for positions left out
    choice = Choice(kernel.name, rows, topk, limit, kernel.span.place_now())
    kernel.span.routing.append(choice)
    kept = kernel.results if kernel.name == "topk" else [positions]
    return [(tensor, choice) for tensor in kept]


def _gather_weights(kernel: Kernel, choice: Choice | None) -> None:
    """Follow a gather of experts' weights: one matrix for each token."""
    source, index = kernel.tensors[0], kernel.tensors[-1]
    if source.dim() < STACKED or kernel.flow.parameter(source) is None:
        return
    if choice is None:
        rows = index.numel()
        choice = Choice(kernel.name, rows, 1, rows, kernel.span.place_now())
        kernel.span.routing.append(choice)
    choice.moves = True


def _gathered(kernel: Kernel, choice: Choice | None, first: Block | None) -> Block | None:
    """Return the block of a gather of rows; None for other gathers."""
    source, result = kernel.tensors[0], kernel.results[0]
    if (
        not _gathers_rows(kernel)
        or not source.is_floating_point()
        or kernel.flow.parameter(source) is not None
    ):
        return None
    hidden = source.shape[-1]
    tokens, rows = source.numel() // hidden, result.numel() // hidden
    if isinstance(_fact(kernel, source), Block) and first is not None:
        if tokens >= first.gathered:
            first.returned += rows
        return first
    known = kernel.flow.fact_of_whole(TOPIC, source)
    block = known.block if isinstance(known, Source) and not known.block.closed else None
    if block is None or (block.tokens, block.hidden) != (tokens, hidden):
        block = Block(tokens, hidden, str(source.dtype))
        kernel.flow.note(TOPIC, source, Source(block, known))
        kernel.span.routing.append(block)
    block.choice = block.choice or choice
    block.gathered += rows
    return block


def _gathers_rows(kernel: Kernel) -> bool:
    """Return whether a kernel gathers whole rows: elements of all axes but the last."""
    source, index = kernel.tensors[0], kernel.argument(1)
    dim = source.dim()
    if dim < 2 or source.shape[-1] < 2 or isinstance(_fact(kernel, source), Choice | Shares):
        return False  # scores, not rows
    if kernel.name == "index":
        indexed, taken = [], 0
        for positions in index:
            is_mask = positions is not None and positions.dtype == torch.bool
            width = positions.dim() if is_mask else 1
            indexed += [] if positions is None else list(range(taken, taken + width))
            taken += width
        return bool(indexed) and _are_rows(source, indexed)
    if kernel.name == "gather":
        positions = kernel.argument(2)
        same_in_row = positions.stride(-1) == 0 and positions.shape[-1] == source.shape[-1]
        return same_in_row and _are_rows(source, [index % dim])
    return _are_rows(source, [index % dim])


def _are_rows(source: Tensor, axes: Sequence[int]) -> bool:
    """Return whether indices on some axes select rows: the others, but the last, have size 1."""
    last = source.dim() - 1
    rest = (size for axis, size in enumerate(source.shape[:-1]) if axis not in axes)
    return last not in axes and (max(axes) == last - 1 or all(size == 1 for size in rest))


def _returned(kernel: Kernel, block: Block) -> bool:
    """Count rows that are added to, or written to, a tensor with the rows of the block."""
    target, rows = kernel.tensors[0], kernel.argument(RETURNING[kernel.name])
    if not isinstance(rows, Tensor) or not isinstance(_fact(kernel, rows), Block):
        return False
    if target.numel() != block.tokens * block.hidden or target.shape[-1] != block.hidden:
        return False
    read = kernel.flow.fact_of_whole(TOPIC, target)
    if isinstance(read, Source):  # out[index] = out[index] + rows
        read.block.closed = read.block is not block
    block.returned += rows.numel() // block.hidden
    return True


def _weighted(kernel: Kernel, facts: list[Any], block: Block) -> None:
    """Keep the dtype of scores that multiply rows."""
    for tensor, fact in zip(kernel.tensors, facts, strict=True):
        if isinstance(fact, Block) or not tensor.is_floating_point():
            continue
        rows = next(
            tensor
            for tensor, known in zip(kernel.tensors, facts, strict=True)
            if isinstance(known, Block)
        )
        one_for_each_row = tensor.numel() * rows.shape[-1] == rows.numel()
        if one_for_each_row and (kernel.name == "bmm" or tensor.shape[-1:] == (1,)):
            block.probs = str(tensor.dtype)


def on_module_exit(
    span: Span, module: torch.nn.Module | None, inputs: tuple[Any, ...], result: Any
) -> None:
    """Record the blocks of a module whose result has the shape of its input.

    The module may be that of the experts, or the one around router and experts. At the end of the
    recording, list what is left.
    """
    blocks = [index for index in span.routing if isinstance(index, Block) and not index.closed]
    choices = [index for index in span.routing if isinstance(index, Choice) and not index.closed]
    if not blocks and not choices:
        span.routing.clear()
        return
    tokens = next((value for value in inputs if isinstance(value, Tensor)), None)
    output = result[0] if isinstance(result, tuple) and result else result
    like = tokens is not None and isinstance(output, Tensor) and _alike(tokens, output)
    if module is None or not like:
        if module is None:
            _list_rest(span, blocks, choices)
        return
    for block in [block for block in blocks if block.returned] or blocks:
        _close(span, block, output)
    for block in blocks:
        block.closed = True
    open_choices = [choice for choice in choices if not choice.closed]
    moving = [choice for choice in open_choices if choice.moves or choice.kernel == "topk"]
    if moving and "moe_token_permute" not in span.operators:
        _not_recognised(
            span,
            moving[-1],
            "no rows of its tokens are gathered: every expert may compute every token",
        )
    span.routing.clear()


def _alike(tokens: Tensor, output: Tensor) -> bool:
    """Return whether two tensors have the same rows, on any number of axes."""
    return (*output.shape[-1:], output.numel()) == (*tokens.shape[-1:], tokens.numel())


def _list_rest(span: Span, blocks: list[Block], choices: list[Choice]) -> None:
    """List what no module ended."""
    why = Text("no module around it has a result like its input")
    for block in blocks:
        if block.returned or block.choice is not None:
            _rows_not_recognised(span, block, why)
    for choice in choices:
        # A choice that moves nothing, as in the loss of a router, is no call.
        if not choice.closed and choice.moves:
            _not_recognised(span, choice, why, choice.place)


def _not_recognised(span: Span, choice: Choice, why: str, place: Place | None = None) -> None:
    choice.closed = True
    span.not_recognised(
        "routing of tokens",
        Text("top {topk} of {tokens} tokens: {why}", topk=choice.topk, tokens=choice.rows, why=why),
        place,
    )


def _rows_not_recognised(span: Span, block: Block, why: str) -> None:
    block.closed = True
    if block.choice is not None:
        block.choice.closed = True
    span.not_recognised(
        "routing of tokens",
        Text(
            "{rows} rows of {tokens} tokens are gathered: {why}",
            rows=block.gathered,
            tokens=block.tokens,
            why=why,
        ),
    )


def _close(span: Span, block: Block, output: Tensor) -> None:
    """Record a block at the end of a module, or list it; other gathers are neither."""
    chosen = block.choice is not None and block.choice.rows == block.tokens
    if not block.returned and not (chosen and output.numel() == block.tokens * block.hidden):
        return
    topk = _topk(block)
    if output.numel() != block.tokens * block.hidden:
        _rows_not_recognised(span, block, Text("the result of the module has other rows"))
    elif topk is None:
        why = Text("the number of experts of a token is unknown")
        _rows_not_recognised(span, block, why)
    elif block.gathered > block.tokens * topk:
        why = Text(
            "{kept} rows are gathered, at most {entries} are chosen",
            kept=block.gathered,
            entries=block.tokens * topk,
        )
        _rows_not_recognised(span, block, why)
    else:
        _record(span, output, block, topk)


def _topk(block: Block) -> int | None:
    """Return the number of experts of a token; None if neither choice nor rows tell."""
    choice = block.choice
    if choice is not None and choice.kernel == "topk" and choice.rows == block.tokens:
        return choice.topk
    if block.gathered and block.gathered % block.tokens == 0:
        return block.gathered // block.tokens
    return choice.topk if choice is not None and choice.rows == block.tokens else None


UNFUSED = (
    "the code multiplies rows with probs and adds them in 16 bits; the call is "
    "npu_moe_token_unpermute, which adapters put in its place. It rounds once"
)


def _record(span: Span, output: Tensor, block: Block, topk: int) -> None:
    tokens, hidden, dtype = block.tokens, block.hidden, block.dtype
    entries, rows = tokens * topk, block.gathered

    def spec(*shape: int, dtype: str = dtype) -> str:
        return str(TensorSpec(shape, dtype))

    permute: dict[str, Any] = {
        "tokens": spec(tokens, hidden),
        "indices": spec(tokens, topk, dtype="int64"),
    }
    if rows < entries:
        permute["num_out_tokens"] = rows
    span.forward("moe_token_permute", permute)
    permuted, sorted_indices = spec(rows, hidden), spec(entries, dtype="int32")
    if block.returned == rows:
        unpermute = {"permuted_tokens": permuted, "sorted_indices": sorted_indices}
        if block.probs or topk > 1:  # without probs, the operator takes one row for each token
            unpermute["probs"] = spec(tokens, topk, dtype=block.probs or dtype)
        span.forward("moe_token_unpermute", unpermute)
        if dtype != "float32" and "probs" in unpermute:
            span.remark("moe_token_unpermute", UNFUSED, None)
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
    block.closed = True
    if block.choice is not None:
        block.choice.closed = True
