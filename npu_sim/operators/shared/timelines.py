"""Parts of the timelines of several operators.

- :class:`TokenSums`: the kernels that sum the rows of every token. Source: specification pages
  ``moe_token_permute_grad``, "Kernel and order", and ``moe_token_unpermute``, "Instructions and
  copies of a tile".
- :class:`NormalisedRows`: instruction lists of RmsNorm and RmsNormGrad, rows of one dtype in
  adjacent buffers. Source: specification page ``estimate``, "Instruction lists".
"""

from collections.abc import Callable, Mapping, Sequence

from npu_sim.language import Text, joined
from npu_sim.numbers.formats import TensorSpec
from npu_sim.plans.model import Plan
from npu_sim.tiling.common import FP32_BYTES, VECTOR_LANES
from npu_sim.timelines import fp32
from npu_sim.timelines.program import (
    Copy,
    Loop,
    Node,
    Phase,
    Program,
    Step,
    View,
    dropped_tokens,
    ranged_cores,
    row_pieces,
    rows_of_cores,
    vector_phase,
    vector_tile,
)
from npu_sim.timelines.vector_pipe import (
    NARROWING,
    WIDENING,
    InstructionLists,
    Issue,
    Issues,
    full_repeats,
    starts_of,
)

INDEX_BYTES = 4
ENTRIES = ("indices", "probs", "probs in fp32")
SUMMING = ("token rows", "result row", "sum in fp32", "row in fp32", *ENTRIES)
TOKENS = {"tokens": 1, "token": 1}
TOKEN = "token {token} of tokens {tokens}, columns {columns}"


class TokenSums:
    """A kernel that sums the rows of every token, each weighted by its entry of probs if given.

    - ``source``, ``result``: names of the tensor whose rows are read, and of the sums.
    - ``copies_first``: whether a first fp32 row is copied to the sum, which is cleared for a token
      without rows.
    """

    def __init__(self, plan: Plan, source: str, result: str, *, copies_first: bool) -> None:
        self.plan, self.source, self.result = plan, source, result
        self.copies_first, self.top_k = copies_first, plan.tiling["top_k"]
        self.rows = TensorSpec.parse(plan.arguments[source])
        entries = TensorSpec.parse(plan.arguments["sorted_indices"]).numel
        self.tokens = max(entries // self.top_k, 1)
        self.live = min(self.top_k, self.rows.shape[0] // self.tokens)
        """Rows of a token when dropped ones are spread evenly."""
        self.probs: tuple[str, ...] = ("probs",) if "probs" in plan.arguments else ()
        specs = (TensorSpec.parse(plan.arguments[name]) for name in self.probs)
        self.probs_bytes = sum(spec.itemsize for spec in specs)
        self.entries = ("sorted_indices", *self.probs)

    def views(self) -> tuple[View, ...]:
        """Return the tensors in the order in which they are drawn."""
        (count, columns), top_k = self.rows.shape, self.top_k
        by_entry = {"tokens": top_k, "token": top_k, "expert": 1}
        return (
            View(self.source, count, columns, by_column={"columns": 1}),
            View("sorted_indices", self.tokens * top_k, by_row=by_entry),
            *(View(name, self.tokens, top_k, TOKENS, {"expert": 1}) for name in self.probs),
            View(self.result, self.tokens, columns, TOKENS, {"columns": 1}),
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

        def batch(count: int) -> tuple[Node, ...]:
            return self._entries(self.top_k * count), Loop(token, count, "token", 1)

        length, buffers = max(tiling["tokens_splited_length"], 1), max(tiling["buffer_num"], 1)
        return vector_phase("tokens", ranged_cores(self.plan, "tokens", length, batch), buffers)

    def _step(self, note: str, says: str, **tensors: tuple[str, ...]) -> Step:
        """Return the description of a tile of one token, given what it reads and writes."""
        row = "probs * row" if self.probs else "row"
        says = Text(says, where=TOKEN, row=row)
        return Step(note, says, holds=self.entries, live=SUMMING, **tensors)

    def _entries(self, count: int) -> Node:
        """Return the tile that reads indices and probs of a batch and widens 16-bit probs."""
        copies: tuple[Copy, ...] = (Copy(INDEX_BYTES * count, count),)
        note, says = "indices", "tokens {tokens}: where their rows are"
        widen = fp32.widen(count, self.probs_bytes or fp32.BYTES)
        if self.probs:
            copies = (*copies, Copy(self.probs_bytes * count, count))
            note, come = "indices and probs", joined(self.entries, " and ")
            says = Text("tokens {{tokens}}: their {come} are copied in", come=come)
        return vector_tile(copies, widen, step=Step(note, says, self.entries, live=ENTRIES))

    def _token(self, columns: int, live: int) -> tuple[Node, ...]:
        """Return the work of one token: its live rows added in order, the result rounded once."""
        size = self.rows.itemsize
        sizes = self.rows.nbytes, self.tokens * self.rows.shape[-1] * size
        row, result = ((Copy(size * columns, columns, tensor_bytes=total),) for total in sizes)
        widen = fp32.widen(columns, size)
        weigh = (fp32.combine_scalar(columns),) if self.probs else ()
        source = {"reads": (self.source,), "by_data": (self.source,)}
        nodes: list[Node] = []
        if live:
            copied = (fp32.copy(columns),) if self.copies_first and not widen else ()
            says = "{where}: sum = {row} of its first expert, in fp32"
            step = self._step("first row", says, **source)
            nodes.append(vector_tile(row, (*widen, *copied, *weigh), step=step))
        elif self.copies_first:
            step = self._step("no row", "{where}: all its rows were dropped, sum = 0")
            nodes.append(vector_tile(vector=(fp32.fill(columns),), step=step))
        if live > 1:
            step = self._step(
                "row", "{where}: sum += {row} of expert {{expert}}, in fp32", **source
            )
            other = vector_tile(row, (*widen, *weigh, fp32.combine(columns)), step=step)
            nodes.append(Loop((other,), live - 1, "expert", 1, 1))
        says = "{where}: the sum is rounded once and copied out"
        step = self._step("result", says, writes=(self.result,))
        return (*nodes, vector_tile((), fp32.narrow(columns, size), result, step))


def token_sums_program(plan: Plan, source: str, result: str, *, copies_first: bool) -> Program:
    """Return the work of every core of a kernel that sums tokens: batches of entries, then sums.

    The arguments are those of :class:`TokenSums`.
    """
    sums = TokenSums(plan, source, result, copies_first=copies_first)
    phases, dropped = (sums.phase(sums.live),), dropped_tokens(sums.live, sums.top_k)
    if not sums.probs:
        return Program(phases, assumptions=(dropped,), views=sums.views())
    # The row of a probability of 0 is not read.
    otherwise = (("every probs is 0", (sums.phase(0),)),)
    return Program(phases, (), (dropped, "no probs is 0"), otherwise, sums.views())


COMPARED_DTYPES = {"bfloat16"}
"""dtypes of x and gamma that were compared with a device (page, "Residuals"), for whole repeats."""


def buffer_sizes(plan: Plan) -> Mapping[str, int]:
    """Return the bytes of every buffer of a core by name."""
    return {buffer.name: buffer.bytes for buffer in plan.memories[0].allocations}


def instructions_by_core(
    plan: Plan, instructions_for: Callable[[int], Issues], compared: bool
) -> InstructionLists:
    """Return the instructions of every core, given those of a number of rows."""
    row_counts = {core: stop - start for core, (start, stop) in rows_of_cores(plan).items()}
    lists = {count: instructions_for(count) for count in set(row_counts.values())}
    return InstructionLists({core: lists[count] for core, count in row_counts.items()}, compared)


class NormalisedRows:
    """Instructions on rows of x and gamma, whose operands lie in named buffers."""

    def __init__(self, plan: Plan, x: str, buffers: Sequence[str], columns: int) -> None:
        spec, gamma = TensorSpec.parse(plan.arguments[x]), TensorSpec.parse(plan.arguments["gamma"])
        sizes = buffer_sizes(plan)
        self.columns = columns
        self.dtype, self.gamma_bytes = spec.dtype, gamma.itemsize
        self.widens, self.widens_gamma = spec.itemsize != FP32_BYTES, gamma.itemsize != FP32_BYTES
        self.starts = starts_of((name, sizes.get(name, 0)) for name in buffers)
        dtypes = {spec.dtype, gamma.dtype}
        self.like_compared = dtypes == COMPARED_DTYPES and columns % VECTOR_LANES == 0

    def on(self, kind: str, elements: int, *buffers: str) -> Issue:
        """Return an instruction whose two sources are at the start of these buffers."""
        starts = (self.starts[name] for name in buffers)
        return full_repeats(kind, elements, *starts, between=joined(buffers, " and "))

    def widened(self, elements: int) -> Issues:
        """Return the cast of 16-bit elements to fp32."""
        return (full_repeats(WIDENING, elements),) if self.widens else ()

    def narrowed(self, elements: int) -> Issues:
        """Return the cast of fp32 elements to 16 bits."""
        return (full_repeats(NARROWING, elements),) if self.widens else ()

    def widened_gamma(self, elements: int) -> Issues:
        """Return the cast of a 16-bit gamma to fp32."""
        return (full_repeats(WIDENING, elements),) if self.widens_gamma else ()
