"""Timeline of MoeTokenUnpermute: work of the cores and descriptions of tiles.

Source: specification page ``moe_token_unpermute``, "Instructions and copies of a tile".
"""

from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators.shared.token_sums_timeline import token_sums
from npu_sim.plans.model import Plan
from npu_sim.timelines import fp32
from npu_sim.timelines.program import (
    Copy,
    Loop,
    Node,
    Phase,
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
    """Return the work of every core: batches of entries, and weighted sums of each token."""
    top_k = plan.tiling["top_k"]
    rows = TensorSpec.parse(plan.arguments["permuted_tokens"]).shape[0]
    tokens = max(TensorSpec.parse(plan.arguments["sorted_indices"]).numel // top_k, 1)
    live = min(top_k, rows // tokens)
    phase = _phase(plan, tokens, live)
    dropped = dropped_tokens(live, top_k)
    if "probs" not in plan.arguments:
        return Program((phase,), assumptions=(dropped,))
    # The row of a probability of 0 is not read.
    otherwise = (("every probs is 0", (_phase(plan, tokens, 0),)),)
    return Program((phase,), assumptions=(dropped, "no probs is 0"), otherwise=otherwise)


def _phase(plan: Plan, tokens: int, live: int) -> Phase:
    """Return the work of every core when ``live`` rows of each token are added."""
    tiling, top_k = plan.tiling, plan.tiling["top_k"]
    rows = TensorSpec.parse(plan.arguments["permuted_tokens"])
    probs = TensorSpec.parse(plan.arguments["probs"]).itemsize if "probs" in plan.arguments else 0
    sizes = rows.nbytes, tokens * rows.shape[-1] * rows.itemsize
    token = row_pieces(
        tiling["hidden_splited_length"],
        tiling["hidden_splited_num"],
        tiling["hidden_splited_remain"],
        lambda columns: _token(columns, live, rows.itemsize, sizes, probs > 0),
    )

    def batch(count: int) -> tuple[Node, ...]:
        return _entries(top_k * count, probs), Loop(token, count, "token", 1)

    cores = ranged_cores(plan, "tokens", tiling["tokens_splited_length"], batch)
    return vector_phase("tokens", cores, in_buffers=tiling["buffer_num"])


def _entries(count: int, probs: int) -> Node:
    """Return the tile that reads indices and probs of a batch and widens 16-bit probs."""
    copies = [Copy(INDEX_BYTES * count, count)]
    if probs:
        copies.append(Copy(probs * count, count))
    widen = fp32.widen(count, probs or fp32.BYTES)
    return vector_tile(tuple(copies), widen, note="indices and probs" if probs else "indices")


def _token(
    columns: int, live: int, element_bytes: int, tensor_bytes: tuple[int, int], weighted: bool
) -> tuple[Node, ...]:
    """Return the work of one token: its live rows added in order, and the result rounded once.

    ``tensor_bytes`` are the sizes of the permuted tokens and of the output.
    """
    row, result = (
        (Copy(element_bytes * columns, columns, tensor_bytes=size),) for size in tensor_bytes
    )
    widen, narrow = fp32.widen(columns, element_bytes), fp32.narrow(columns, element_bytes)
    weigh = (fp32.combine_scalar(columns),) if weighted else ()
    first = vector_tile(row, (*(widen or (fp32.copy(columns),)), *weigh), note="first row")
    if not live:
        first = vector_tile(vector=(fp32.fill(columns),), note="no row")
    other = vector_tile(row, (*widen, *weigh, fp32.combine(columns)), note="row")
    nodes: list[Node] = [first]
    if live > 1:
        nodes.append(Loop((other,), live - 1, "expert", 1, 1))
    return (*nodes, vector_tile((), narrow, result, note="result"))


def steps(plan: Plan) -> StepTable:
    """Return the descriptions of the tiles."""
    rows, columns = TensorSpec.parse(plan.arguments["permuted_tokens"]).shape
    top_k = plan.tiling["top_k"]
    tokens = TensorSpec.parse(plan.arguments["sorted_indices"]).numel // top_k
    return token_sums(
        ("permuted_tokens", rows),
        ("unpermuted_tokens", tokens),
        columns,
        top_k,
        weighted="probs" in plan.arguments,
    )
