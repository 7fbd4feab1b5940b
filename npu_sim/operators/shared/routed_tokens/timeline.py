"""Timelines of kernels that sum the rows of every token.

Source: specification pages ``moe_token_permute_grad``, "Kernel and order", and
``moe_token_unpermute``, "Instructions and copies of a tile".
"""

from npu_sim.framework.vocabulary import Plan, TensorSpec, Text, joined
from npu_sim.timelines import (
    Copy,
    Loop,
    Node,
    Nodes,
    Phase,
    Program,
    Step,
    View,
    Works,
    dropped_tokens,
    fp32,
    ranged_cores,
    row_pieces,
    vector_phase,
    vector_tile,
)

INDEX_BYTES = 4
ENTRIES = ("indices", "probs", "probs in fp32")
SUMMING = ("token rows", "result row", "sum in fp32", "row in fp32", *ENTRIES)
TOKEN = "token {token} of tokens {tokens}, columns {columns}"


class TokenSums:
    """Sizes and copies of a kernel that sums the rows of every token.

    ``source``, ``result``: names of the tensor whose rows are read, and of the sums. Each row is
    weighted by its entry of probs if given.
    """

    def __init__(self, plan: Plan, source: str, result: str) -> None:
        self.plan, self.source, self.result = plan, source, result
        self.rows = TensorSpec.parse(plan.arguments[source])
        self.columns = self.rows.shape[1]
        entries = TensorSpec.parse(plan.arguments["sorted_indices"]).numel
        self.top_k: int = plan.arguments.get("num_topk", 1)
        if "probs" in plan.arguments:
            self.top_k = TensorSpec.parse(plan.arguments["probs"]).shape[1]
        self.tokens = max(entries // self.top_k, 1)
        self.live = min(self.top_k, self.rows.shape[0] // self.tokens)
        """Rows of a token when dropped ones are spread evenly."""
        self.probs: tuple[str, ...] = ("probs",) if "probs" in plan.arguments else ()
        self.probs_bytes = sum(
            TensorSpec.parse(plan.arguments[name]).itemsize for name in self.probs
        )
        self.entries = ("sorted_indices", *self.probs)
        self.row_name = "probs * row" if self.probs else "row"
        """A row with its weight, in texts."""

    @property
    def dropped(self) -> str:
        """Assumption about dropped tokens."""
        return dropped_tokens(self.live, self.top_k)

    def rows_in(self, columns: int, rows: int = 1) -> Works:
        """Return the copies of pieces of rows; none for no rows."""
        size = self.rows.itemsize * columns
        return (Copy(size, columns, rows, self.rows.nbytes),) if rows else ()

    def probs_in(self, count: int) -> Works:
        """Return the copy of probs; none without them."""
        return (Copy(self.probs_bytes * count, count),) if self.probs else ()

    def sums_out(self, elements: int) -> Works:
        """Return the copy of a piece of the result."""
        size = self.rows.itemsize
        return (Copy(size * elements, elements, 1, self.tokens * self.columns * size),)

    def views(self, *axes: str) -> tuple[View, ...]:
        """Return the tensors in the order in which they are drawn, probs last but one.

        ``axes``: axes of the program that count tokens.
        """
        by_token, by_column = dict.fromkeys(axes, 1), {"columns": 1}
        by_entry = {**dict.fromkeys(axes, self.top_k), "expert": 1}
        return (
            View(self.source, self.rows.shape[0], self.columns, by_column=by_column),
            View("sorted_indices", self.tokens * self.top_k, by_row=by_entry),
            *(View(name, self.tokens, self.top_k, by_token, {"expert": 1}) for name in self.probs),
            View(self.result, self.tokens, self.columns, by_token, by_column),
        )


class BatchedSums(TokenSums):
    """The kernel of A2 and A3: batches of entries, then the sums of these tokens."""

    copies_first = False
    """Whether a first fp32 row is copied to the sum, which is cleared for a token without rows."""

    def program(self) -> Program:
        """Return the work of every core."""
        return Program(
            (self.phase(self.live),),
            assumptions=(self.dropped,),
            views=self.views("tokens", "token"),
        )

    def phase(self, live: int) -> Phase:
        """Return the work of every core when ``live`` rows of each token are added."""
        tiling = self.plan.tiling
        token = row_pieces(
            tiling["hidden_splited_length"],
            tiling["hidden_splited_num"],
            tiling["hidden_splited_remain"],
            lambda columns: self._token(columns, live),
        )

        def batch(count: int) -> Nodes:
            return self._entries(self.top_k * count), Loop(token, count, "token", 1)

        length, buffers = max(tiling["tokens_splited_length"], 1), max(tiling["buffer_num"], 1)
        return vector_phase("tokens", ranged_cores(self.plan, "tokens", length, batch), buffers)

    def _step(self, note: str, says: str, **tensors: tuple[str, ...]) -> Step:
        """Return the description of a tile of one token, given what it reads and writes."""
        return Step(
            note,
            Text(says, where=TOKEN, row=self.row_name),
            holds=self.entries,
            live=SUMMING,
            **tensors,
        )

    def _entries(self, count: int) -> Node:
        """Return the tile that reads indices and probs of a batch and widens 16-bit probs."""
        note, says = "indices", "tokens {tokens}: where their rows are"
        if self.probs:
            note, come = "indices and probs", joined(self.entries, " and ")
            says = Text("tokens {{tokens}}: their {come} are copied in", come=come)
        copies = Copy(INDEX_BYTES * count, count), *self.probs_in(count)
        widen = fp32.widen(count, self.probs_bytes or fp32.BYTES)
        return vector_tile(copies, widen, step=Step(note, says, self.entries, live=ENTRIES))

    def _token(self, columns: int, live: int) -> Nodes:
        """Return the work of one token: its live rows added in order, the result rounded once."""
        size, row = self.rows.itemsize, self.rows_in(columns)
        widen = fp32.widen(columns, size)
        weigh = (fp32.combine_scalar(columns),) if self.probs else ()
        source = {"reads": (self.source,), "by_data": (self.source,)}
        nodes: list[Node] = []
        if live:
            copied = (fp32.copy(columns),) if self.copies_first and not widen else ()
            first = self._step(
                "first row", "{where}: sum = {row} of its first expert, in fp32", **source
            )
            nodes.append(vector_tile(row, (*widen, *copied, *weigh), step=first))
        elif self.copies_first:
            none = self._step("no row", "{where}: all its rows were dropped, sum = 0")
            nodes.append(vector_tile(vector=(fp32.fill(columns),), step=none))
        if live > 1:
            other = self._step(
                "row", "{where}: sum += {row} of expert {{expert}}, in fp32", **source
            )
            tile = vector_tile(row, (*widen, *weigh, fp32.combine(columns)), step=other)
            nodes.append(Loop((tile,), live - 1, "expert", 1, 1))
        last = self._step(
            "result", "{where}: the sum is rounded once and copied out", writes=(self.result,)
        )
        return (*nodes, vector_tile((), fp32.narrow(columns, size), self.sums_out(columns), last))
