"""Timeline of MoeTokenPermuteGrad: work of the cores and descriptions of tiles.

Source: specification page ``moe_token_permute_grad``, "Tiling" and "Kernel and order".
"""

from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators.shared.token_sums_timeline import token_sums
from npu_sim.plans.model import Plan
from npu_sim.timelines import fp32
from npu_sim.timelines.program import (
    Copy,
    Loop,
    Node,
    Program,
    dropped_tokens,
    ranged_cores,
    row_pieces,
    vector_phase,
    vector_tile,
)
from npu_sim.timelines.steps import StepTable

INDEX_BYTES = 4


def program(plan: Plan) -> Program:
    """Return the work of every core: batches of tokens, and sums of the rows of each token."""
    tiling = plan.tiling
    grad = TensorSpec.parse(plan.arguments["permuted_output_grad"])
    topk = tiling["top_k"]
    tokens = max(TensorSpec.parse(plan.arguments["sorted_indices"]).numel // topk, 1)
    live = min(topk, grad.shape[0] // tokens)
    token = row_pieces(
        tiling["hidden_splited_length"],
        tiling["hidden_splited_num"],
        tiling["hidden_splited_remain"],
        lambda hidden: _token(
            hidden, live, grad.itemsize, (grad.nbytes, tokens * grad.shape[1] * grad.itemsize)
        ),
    )

    def batch(count: int) -> tuple[Node, ...]:
        indices = vector_tile((Copy(INDEX_BYTES * topk * count, topk * count),), note="indices")
        return indices, Loop(token, count, "token", 1)

    length = max(tiling["tokens_splited_length"], 1)
    cores = ranged_cores(plan, "tokens", length, batch)
    phase = vector_phase("tokens", cores, in_buffers=max(tiling["buffer_num"], 1))
    return Program((phase,), assumptions=(dropped_tokens(live, topk),))


def _token(
    hidden: int, live: int, element_bytes: int, tensor_bytes: tuple[int, int]
) -> tuple[Node, ...]:
    """Return the work of one token: its live rows added in order, and the result rounded once.

    ``tensor_bytes`` are the sizes of the tensors read and written.
    """
    copy_in, copy_out = (
        (Copy(element_bytes * hidden, hidden, tensor_bytes=size),) for size in tensor_bytes
    )
    widen = fp32.widen(hidden, element_bytes)
    first = vector_tile(copy_in, widen, note="first row")
    other = vector_tile(copy_in, (*widen, fp32.combine(hidden)), note="row")
    result = vector_tile((), fp32.narrow(hidden, element_bytes), copy_out, note="result")
    nodes: list[Node] = [first] if live else []
    if live > 1:
        nodes.append(Loop((other,), live - 1, "expert", 1, 1))
    return (*nodes, result)


def steps(plan: Plan) -> StepTable:
    """Return the descriptions of the tiles."""
    rows, columns = TensorSpec.parse(plan.arguments["permuted_output_grad"]).shape
    top_k = plan.tiling["top_k"]
    tokens = TensorSpec.parse(plan.arguments["sorted_indices"]).numel // top_k
    return token_sums(
        ("permuted_output_grad", rows), ("input_grad", tokens), columns, top_k, weighted=False
    )
