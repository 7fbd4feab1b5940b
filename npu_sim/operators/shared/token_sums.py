"""What MoeTokenPermute, MoeTokenUnpermute and their gradients share.

Checks and warnings, the plan of the operators that sum the rows of every token, and arguments,
axes, data and changed calls of MoeTokenUnpermute and its gradient.

Sources: specification pages ``moe_token_permute_grad``, ``moe_token_unpermute`` and
``moe_token_unpermute_grad``.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from npu_sim.framework.vocabulary import (
    FLOAT_DTYPES,
    INVALID,
    AclnnError,
    Attribute,
    Axis,
    Case,
    Caveat,
    Condition,
    Decision,
    Derived,
    Description,
    Evidence,
    Inspection,
    IntArray,
    Memory,
    Number,
    OutputOrder,
    Run,
    Switch,
    Tensor,
    TensorSpec,
    Text,
    Word,
    WorkspacePart,
    align,
    caveat,
    counted,
    decision,
    numpy_dtype,
    runtime_failure,
    ub_memory,
    vector_plan,
)
from npu_sim.numbers.values import normal
from npu_sim.operators.shared.study import StudyCall, surviving_units
from npu_sim.orders import Claim, Tree, left_fold
from npu_sim.tiling import moe_token_unpermute as moe

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
DERIVED = (Derived("top_k", "1 + (num_topk - 1) * has_probs"), Derived("entries", "tokens * top_k"))
"""Without probs a token has one entry, whatever the value of num_topk."""


def check_padding(call: Inspection) -> None:
    """Refuse padding, which the product does not support yet."""
    if call.arguments.padded_mode:
        raise AclnnError(
            INVALID, "padded_mode", "padded_mode = True is not supported yet", "padded_mode = False"
        )


def check_indices(indices: np.ndarray, rows: str) -> None:
    """Check that no index is negative; ``rows`` names the tensor of the rows, for the hint.

    Raises
    ------
    AclnnError
        361001 for a negative index; the message gives the position and value of the first one.
    """
    if indices.size and np.minimum.reduce(indices) < 0:
        position = int(np.argmax(indices < 0))
        raise runtime_failure(
            "sorted_indices",
            Text(
                "sorted_indices[{position}] = {indices} is negative",
                position=position,
                indices=indices[position],
            ),
            Text(
                "index >= 0, at or beyond the rows of {rows} for a dropped token; nothing was "
                "written",
                rows=rows,
            ),
        )


def negative_indices(indices: np.ndarray) -> Iterator[Caveat]:
    """Yield the warning about negative indices, which A2 and A3 refuse and Ascend 950 drops."""
    found = int(np.count_nonzero(indices < 0))
    if found:
        yield caveat(
            "negative_indices",
            "sorted_indices",
            "{found} negative indices count as dropped rows, the first one at "
            "sorted_indices[{position}]; A2 and A3 refuse them with 361001",
            found=found,
            position=int(np.argmax(indices < 0)),
        )


def buffer_message(
    case: Case, entries: str, entry_bytes: int, top_k: int, blamed: str
) -> tuple[str, str, str]:
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


@dataclass(frozen=True)
class Entries:
    """The entries of a token: an index each, and its factor if there are probs."""

    name: str
    """Name of the entries in texts."""
    bytes: int
    """Bytes of an entry in the Unified Buffer."""
    buffers: Mapping[str, int]
    """Bytes of the buffers of a batch by name: the indices, then those placed after the rows."""
    rows: str
    """Name of the rows that are summed, in texts."""
    most: int = -1
    """Largest number of entries of a token that the contract takes; -1 if it has no bound."""


def describe(case: Case, entries: Entries, caveats: Iterable[Caveat]) -> Description:
    """Return what the operators state of a plan."""
    tiling, (path, path_reason) = case.tiling, _path(case)
    return vector_plan(
        case,
        path=path,
        path_reason=path_reason,
        per_core=_per_core(tiling, entries),
        ranges=[moe.token_range(tiling, core) for core in range(tiling.block_dim)],
        unit="token",
        memories=lambda: (memory(case, entries),),
        conditions=lambda: _decisions(case, entries),
        workspace=(_workspace(case, tiling),),
        order=(
            OutputOrder(
                output=case.outputs[0].output,
                fixed=True,
                reason="every token is summed by one core, its rows in k order; nothing is added "
                "atomically",
            ),
        ),
        caveats=caveats,
    )


def element_bytes(case: Case) -> int:
    """Return the bytes of one element of the rows and of the output."""
    return case.specs[case.operator.outputs[0].name].itemsize


def _path(case: Case) -> tuple[str, str]:
    """Return the path of a plan and its reason."""
    tiling = case.tiling
    longest = moe.max_hidden(case.device.ub_bytes, moe.FEWEST_BUFFERS, element_bytes(case))
    if tiling.hidden_length >= tiling.hidden:
        return "whole rows", Text(
            "hidden {hidden} <= {longest}", hidden=case.row.hidden, longest=longest
        )
    return "rows in pieces", Text(
        "hidden {hidden} > {longest}; {hidden_pieces} of {hidden_length} columns{rest}",
        hidden=case.row.hidden,
        longest=longest,
        hidden_pieces=tiling.hidden_pieces,
        hidden_length=tiling.hidden_length,
        rest=Text(", then {hidden_remainder}", hidden_remainder=tiling.hidden_remainder)
        if tiling.hidden_remainder
        else "",
    )


def _per_core(tiling: moe.Tiling, entries: Entries) -> str:
    rows = Text("{buffers} rows of {rows} in flight", buffers=tiling.buffers, rows=entries.rows)
    name, count = entries.name, counted(tiling.batch_tokens, "token")
    if tiling.batches == 1 and tiling.batch_remainder == 0:
        return Text("{name} of {count} at once; {rows}", name=name, count=count, rows=rows)
    return Text(
        "{name} in {batches} of {count}{rest}; {rows}",
        name=name,
        batches=Text("{batches} batches", batches=tiling.batches)
        if tiling.batches != 1
        else "one batch",
        count=count,
        rest=Text(" and one of {batch_remainder}", batch_remainder=tiling.batch_remainder)
        if tiling.batch_remainder
        else "",
        rows=rows,
    )


def memory(case: Case, entries: Entries) -> Memory:
    """Return the Unified Buffer of a core."""
    tiling, size = case.tiling, element_bytes(case)
    length = align(tiling.hidden_length, moe.HIDDEN_ALIGNMENT)
    first = next(iter(entries.buffers))
    buffers = {"token rows": tiling.buffers * length * size, first: 0, "result row": length * size}
    if size == 2:
        buffers["sum in fp32"] = 4 * length + moe.MARGIN_BYTES
        buffers["row in fp32"] = 4 * length
    count = Text("of {count}", count=counted(tiling.batch_tokens, "token"))
    notes = {
        **dict.fromkeys(entries.buffers, count),
        "token rows": Text("{buffers} input rows", buffers=tiling.buffers),
    }
    found = ub_memory(case, {**buffers, **entries.buffers}, notes=notes)
    return found.model_copy(update={"margin_bytes": case.profile.product.ub_reserved_bytes})


def _decisions(case: Case, entries: Entries) -> Iterator[Decision]:
    tiling, rows = case.tiling, entries.rows
    longest = moe.max_hidden(case.device.ub_bytes, moe.FEWEST_BUFFERS, element_bytes(case))
    whole = Condition(
        "whole rows",
        "align(hidden, 512) <= longest piece that fits with 2 input rows",
        lambda row, device, rules: row.hidden <= longest,
        Text("a row of {rows} is summed in one piece", rows=rows),
        Text("rows are summed in pieces of {longest} columns, to the same sums", longest=longest),
        ("hidden",),
    )
    aligned = align(case.row.hidden, moe.HIDDEN_ALIGNMENT)
    yield decision(case, whole, **{"align(hidden, 512)": aligned, "longest": longest})
    for buffers in range(moe.MOST_BUFFERS, max(tiling.buffers, moe.FEWEST_BUFFERS + 1) - 1, -1):
        yield _buffer_decision(case, rows, buffers)
    yield from _entry_decisions(case, entries)


def _buffer_decision(case: Case, rows: str, buffers: int) -> Decision:
    """Return the decision for a number of input rows that the planner tried."""
    ub_bytes, size = case.device.ub_bytes, element_bytes(case)
    longest = moe.max_hidden(ub_bytes, buffers, size)
    condition = Condition(
        Text("{buffers} input rows", buffers=buffers),
        Text("length <= longest piece that fits with {buffers} input rows", buffers=buffers),
        lambda row, device, rules: moe.piece_length(ub_bytes, row.hidden, size) <= longest,
        Text("{buffers} rows of {rows} are in flight", buffers=buffers, rows=rows),
        Text("fewer than {buffers} rows of {rows} are in flight", buffers=buffers, rows=rows),
        ("hidden",),
    )
    return decision(case, condition, length=case.tiling.hidden_length, longest=longest)


def _entry_decisions(case: Case, entries: Entries) -> Iterator[Decision]:
    """Yield what depends on the bytes that the rows leave for the entries of a core."""
    tiling, cores, name = case.tiling, case.device.vector_cores, entries.name
    left = moe.bytes_for_entries(case.device.ub_bytes, case.row.hidden, element_bytes(case))
    token_bytes = tiling.top_k * entries.bytes
    fit = Condition(
        Text("{name} of a token fit", name=name),
        Text("{bytes} * numTopk <= bytes left beside the rows", bytes=entries.bytes),
        lambda row, device, rules: entries.bytes * row.num_topk <= left,
        "the kernel can work",
        vary=("num_topk",) if entries.most < 0 or left // entries.bytes < entries.most else (),
    )
    yield decision(case, fit, **{"numTopk": tiling.top_k, "bytes left": left})
    count = counted(tiling.batch_tokens, "token")
    at_once = Condition(
        Text("{name} in one batch", name=name),
        Text(
            "tokens of a core * numTopk * {bytes} <= bytes left beside the rows",
            bytes=entries.bytes,
        ),
        lambda row, device, rules: (
            row.tokens // max(min(row.tokens, cores), 1) * token_bytes <= left
        ),
        Text("{name} are copied at once", name=name),
        Text("{name} are copied for {count} at a time", name=name, count=count),
        ("tokens",),
    )
    values = {
        "tokens of a core": tiling.core_tokens,
        "bytes needed": tiling.core_tokens * token_bytes,
        "bytes left": left,
    }
    yield decision(case, at_once, **values)


def _workspace(case: Case, tiling: moe.Tiling) -> WorkspacePart:
    if tiling.workspace_bytes:
        return WorkspacePart(name="system", bytes=tiling.workspace_bytes, kind="system")
    return WorkspacePart(
        name="system",
        bytes=0,
        kind="system",
        evidence=Evidence.UNKNOWN,
        note="the planner does not request it at this release; whether the framework adds it is "
        "not published",
    )


def permuted_tokens(help: str) -> Tensor:
    """Return the argument permuted_tokens: the rows of the experts."""
    return Tensor("permuted_tokens", "rows hidden", help, "dtype")


def axes(tensor: str) -> tuple[Axis, ...]:
    """Return the axes; ``tensor`` is the name of the one that has the columns."""
    return (
        Word("dtype", Text("dtype of {tensor}", tensor=tensor), FLOAT_DTYPES, "bfloat16"),
        Switch(
            "has_probs", "whether probs is given", True, aliases=("probs_given",), tensor="probs"
        ),
        Word("probs_dtype", "dtype of probs", FLOAT_DTYPES, "float32"),
        Number(
            "num_topk",
            "experts chosen for a token, columns of probs; without probs it is 1",
            8,
            unit="expert",
            aliases=("numTopk", "topk", "K"),
            read="1",
        ),
        Number(
            "hidden",
            Text("last axis of {tensor}", tensor=tensor),
            1024,
            unit="column",
            aliases=("H", "hidden_size"),
        ),
        Number(
            "tokens",
            "tokens; sorted_indices has tokens * num_topk elements",
            1024,
            unit="token",
            aliases=("T",),
            read="entries",
        ),
    )


def topk_message(call: Any) -> tuple[str, str]:
    """Return message and hint for the limit on the experts of a token."""
    return Text(
        "probs has {top_k} columns: the product takes numTopk <= {most_topk}, a limit of the "
        "hardware too",
        top_k=call.size("top_k"),
        most_topk=moe.MOST_TOPK,
    ), Text("nearest legal value: {most_topk}", most_topk=moe.MOST_TOPK)


def dropped_tokens(row: Any) -> Iterator[Caveat]:
    """Yield the warning that permuted_tokens has fewer rows than there are indices."""
    if row.rows < row.entries:
        yield caveat(
            "tokens_dropped",
            "permuted_tokens",
            "permuted_tokens has {rows} rows for {entries} indices: at least {dropped} point "
            "to rows that were dropped",
            rows=row.rows,
            entries=row.entries,
            dropped=row.entries - row.rows,
        )


ROWS = "permuted_tokens", "permuted_output_grad"
"""Tensors whose rows the indices name."""


def data(arguments: Any, seed: int) -> dict[str, np.ndarray]:
    """Return normal rows and gradients, random indices, and weights with sum 1 for every token."""
    random, entries = np.random.default_rng(seed), arguments.sorted_indices.numel
    drawn = {
        name: normal(random, spec)
        for name, spec in arguments.items()
        if isinstance(spec, TensorSpec) and name in (*ROWS, "unpermuted_tokens_grad")
    }
    drawn["sorted_indices"] = random.permutation(np.arange(entries, dtype=np.int32))
    probs = arguments.get("probs")
    if probs is not None:
        chances = np.exp(random.standard_normal(probs.shape, np.float32))
        weights = chances / chances.sum(axis=1, keepdims=True)
        drawn["probs"] = weights.astype(numpy_dtype(probs.dtype))
    return drawn


def sum_rows(run: Run, source: str, result: str, top_k: int, **order: Any) -> None:
    """Write the sums of the rows of every token, each weighted by its entry of probs if given.

    ``source``, ``result``: names of the tensor that has the rows, and of the sums. ``order``: as in
    :func:`npu_sim.kernels.shared.token_sums.sum_tokens`.
    """
    with run.watch.stage("load"):
        from npu_sim.kernels.shared.elementwise import widen_array
        from npu_sim.kernels.shared.token_sums import sum_tokens
    with run.watch.stage("compute"):
        probs = (
            widen_array(run.stored("probs")).reshape(-1)
            if run.tensors.get("probs") is not None
            else None
        )
        rows, sums = run.stored(source).reshape(-1), run.written(result).reshape(-1)
        indices, hidden = run.stored("sorted_indices"), run.case.row.hidden
        sum_tokens(rows, indices, sums, top_k, hidden, probs, **order)


def summed(
    rows: np.ndarray, indices: np.ndarray, precision: np.dtype[Any], probs: np.ndarray | None = None
) -> np.ndarray:
    """Return the sums (tokens, hidden) of rows (rows, hidden) that indices (tokens, top_k) name.

    Rows are weighted by ``probs`` (tokens, top_k) if given; dropped ones count as 0.
    """
    out = np.zeros((indices.shape[0], rows.shape[1]), precision)
    for position, named in enumerate(indices.T):
        live = np.flatnonzero((named >= 0) & (named < rows.shape[0]))
        values = rows[named[live]].astype(precision)
        if probs is not None:
            values = values * probs[live, position, None].astype(precision)
        out[live] += values
    return out


def experts(call: StudyCall) -> int:
    """Return the number of entries of a token."""
    if "num_topk" in call.attributes:
        return int(call.attributes["num_topk"])
    return int(call.tensors["probs"].shape[1]) if "probs" in call.tensors else 1


def places(call: StudyCall) -> dict[str, int]:
    """Return the number of indices of one token, for :class:`Changes`."""
    return {"sorted_indices": experts(call)}


def grown(call: StudyCall, extra: int, fill: str) -> StudyCall | None:
    """Append tokens with rows of their own, and the positions of these rows to the indices.

    ``fill`` is as in :class:`~npu_sim.operators.shared.study.Changes`. Returns None if there are no
    rows, or some were dropped: their indices would point to the new rows.
    """
    rows = next((name for name in ROWS if name in call.tensors), None)
    indices, more = call.tensors["sorted_indices"], extra * experts(call)
    if rows is None or indices.max(initial=-1) >= (count := call.tensors[rows].shape[0]):
        return None
    new_indices = np.arange(count, count + more, dtype=indices.dtype)
    changed = {"sorted_indices": np.concatenate([indices, new_indices])}
    sizes = {rows: more, "unpermuted_tokens_grad": extra, "probs": extra}
    for name in sizes.keys() & call.tensors.keys():
        values = call.tensors[name]
        added = np.zeros((sizes[name], values.shape[1]), values.dtype)
        if fill == "copy":
            added[...] = np.resize(values, added.shape)
        changed[name] = np.concatenate([values, added])
    return call.with_tensors(**changed)


@dataclass(frozen=True)
class Sums:
    """The sums of a call as studies see them; *live* (tokens, experts) masks the rows added.

    ``source``, ``result``, ``name``: names of the tensor that has the rows, of the sums, and of a
    row in terms. ``skips_zeros``: whether rows with probs of 0 are not added.
    """

    source: str
    result: str
    name: str
    skips_zeros: bool = False

    def in_range(self, call: StudyCall) -> np.ndarray:
        """Return the mask (tokens, experts) of entries that are not dropped."""
        indices = call.tensors["sorted_indices"].reshape(-1, experts(call))
        found: np.ndarray = (indices >= 0) & (indices < call.tensors[self.source].shape[0])
        return found

    def live(self, call: StudyCall) -> np.ndarray:
        """Return the mask (tokens, experts) of entries that add a row."""
        is_skipped = self.skips_zeros and "probs" in call.tensors
        return self.in_range(call) & (call.tensors["probs"] != 0 if is_skipped else True)

    def terms(
        self, call: StudyCall, output: str, index: tuple[int, ...]
    ) -> list[tuple[str, float]]:
        """Return the terms of an output element in float64, by name, in k order."""
        (token, column), tensor, live = index, call.tensors[self.source], self.live(call)
        positions = np.flatnonzero(live[token]).tolist()
        rows = call.tensors["sorted_indices"].reshape(live.shape)[token, positions].tolist()
        found = [(f"{self.name}[{row}, {column}]", float(tensor[row, column])) for row in rows]
        if "probs" not in call.tensors:
            return found
        probs = call.tensors["probs"][token, positions].astype(np.float64).tolist()
        return [
            (f"{name} * probs[{token}, {position}]", value * prob)
            for (name, value), position, prob in zip(found, positions, probs, strict=True)
        ]

    def claims(self, call: StudyCall) -> Iterator[Claim]:
        """Yield that rows are added one by one in k order, one claim per number of live rows."""
        counts = self.live(call).sum(axis=1)
        for count in np.unique(counts[counts > 0]).tolist():
            yield self.claim(call, np.flatnonzero(counts == count), left_fold(range(count)))

    def claim(self, call: StudyCall, tokens: np.ndarray, tree: Tree | None) -> Claim:
        """Return the claim that the live rows of some tokens are added as a tree."""
        token = int(tokens[0])
        return Claim(
            output=self.result,
            element=(token, 0),
            elements=int(tokens.size) * call.tensors[self.source].shape[1],
            terms=tuple(name for name, _ in self.terms(call, self.result, (token, 0))),
            tree=tree,
            outside=partial(self._outside, call, token),
        )

    def _outside(self, call: StudyCall, token: int, codes: np.ndarray) -> np.ndarray:
        """Return how many units survive when the rows are probes and the weights 1 or 0."""
        live, probs = self.live(call), call.tensors.get("probs")
        rows = call.tensors["sorted_indices"].reshape(live.shape)[token, live[token]]
        count, width = call.tensors[self.source].shape
        terms, columns = (self.source, (count, width), rows), range(width)
        ones = {} if probs is None else {"probs": live.astype(probs.dtype)}
        return surviving_units(
            call, terms, columns, lambda outputs: outputs[self.result][token], codes, **ones
        )
