"""Timeline of MoeTokenUnpermute on Ascend 950.

Source: specification page ``moe_token_unpermute_950``.
"""

from npu_sim.framework.vocabulary import Plan, Text
from npu_sim.operators.shared.routed_tokens.timeline import TokenSums
from npu_sim.tiling.ascend_950 import moe_token_unpermute as tiler
from npu_sim.timelines import (
    Loop,
    Node,
    Nodes,
    Program,
    Step,
    Works,
    fp32,
    ranged,
    ranged_cores,
    vector_phase,
    vector_tile,
)

HELD = ("rows", "indices", "probs", "sums")


class Sums(TokenSums):
    """The kernel, with its instructions and descriptions of tiles."""

    def step(self, note: str, says: str, **tensors: tuple[str, ...]) -> Step:
        """Return the description of a tile that adds rows."""
        return Step(note, Text(says, row=self.row_name), **tensors)

    def added(self, elements: int, rows: int) -> Works:
        """Return the instructions that add ``rows`` rows of elements."""
        if not rows:
            return ()
        weigh = (fp32.combine(elements, rows),) if self.probs else ()
        widen = fp32.widen(elements, self.rows.itemsize, rows)
        return (*widen, *weigh, fp32.combine(elements, rows))

    def row(self, columns: int, rows: int, copies: Works = ()) -> Node:
        """Return the tile that adds rows of one token, after further copies."""
        step = self.step(
            "rows",
            "token of tokens {{tokens}}: sum += {row} of its experts, in fp32",
            reads=(self.source,),
            holds=self.entries,
            live=HELD,
            by_data=(self.source,),
        )
        copies = (*copies, *self.rows_in(columns, rows))
        return vector_tile(copies, self.added(columns, rows), step=step)

    def rounded(self, elements: int) -> Node:
        """Return the tile that copies a piece of the result out."""
        return vector_tile(
            (),
            fp32.narrow(elements, self.rows.itemsize),
            self.sums_out(elements),
            Step(
                "result",
                "tokens {tokens}: the sum is rounded once and copied out",
                writes=("unpermuted_tokens",),
                live=HELD,
            ),
        )


def program(plan: Plan) -> Program:
    """Return the work of every core."""
    sums, key = Sums(plan, "permuted_tokens", "unpermuted_tokens"), tiler.path_key(plan)
    bodies = {
        tiler.ALL_TOKENS: _from_buffer,
        tiler.ALL_ROWS: _tokens,
        tiler.SOME_ROWS: _groups,
        tiler.SPLIT_COLUMNS: _pieces,
    }
    cores = ranged_cores(
        plan, "tokens", plan.tiling["rowFactor"], lambda count: bodies[key](sums, count)
    )
    if key == tiler.ALL_TOKENS:
        rows = vector_tile(
            sums.rows_in(sums.tokens * sums.top_k * sums.columns),
            step=Step(
                "rows of all tokens",
                "the rows of all tokens are copied in",
                ("permuted_tokens",),
                live=("rows",),
            ),
        )
        cores = {core: (rows, *nodes) for core, nodes in cores.items()}
    source, indices, *probs, result = sums.views("tokens", "token")
    return Program(
        (vector_phase("tokens", cores, in_buffers=2, out_buffers=2),),
        assumptions=(sums.dropped,),
        views=(source, indices, result, *probs),
    )


def _from_buffer(sums: Sums, tokens: int) -> Nodes:
    """Return the work on a batch of tokens, whose rows are in the buffer."""
    elements = tokens * sums.columns
    step = sums.step(
        "sums",
        "tokens {{tokens}}: sum += {row} of every expert, in fp32",
        reads=sums.entries,
        live=("rows", "probs", "sums"),
    )
    copies, vector = sums.probs_in(tokens * sums.top_k), sums.added(elements, sums.live)
    return vector_tile(copies, vector, step=step), sums.rounded(elements)


def _tokens(sums: Sums, tokens: int) -> Nodes:
    """Return the work on a batch of tokens, all rows of a token at a time."""
    nodes: list[Node] = []
    if sums.probs:
        nodes.append(
            vector_tile(
                sums.probs_in(tokens * sums.top_k),
                step=Step(
                    "probs",
                    "tokens {tokens}: their probs are copied in",
                    ("probs",),
                    live=("probs",),
                ),
            )
        )
    if sums.live:
        nodes.append(Loop((sums.row(sums.columns, sums.live),), tokens, "token", 1))
    return (*nodes, sums.rounded(tokens * sums.columns))


def _groups(sums: Sums, tokens: int) -> Nodes:
    """Return the work on a batch of tokens, a group of rows of one token at a time."""

    def group(rows: int) -> Nodes:
        return (sums.row(sums.columns, rows, sums.probs_in(rows)),)

    groups = ranged("expert", 0, sums.live, sums.plan.tiling["kFactor"], group)
    batch = (Loop(groups, tokens, "token", 1),) if groups else ()
    return (*batch, sums.rounded(tokens * sums.columns))


def _pieces(sums: Sums, tokens: int) -> Nodes:
    """Return the work on one token, whose rows are copied in piece by piece."""

    def piece(columns: int) -> Nodes:
        rows = (Loop((sums.row(columns, 1),), sums.live, "expert", 1),) if sums.live else ()
        return (*rows, sums.rounded(columns))

    return ranged("columns", 0, sums.columns, sums.plan.tiling["hFactor"], piece)
