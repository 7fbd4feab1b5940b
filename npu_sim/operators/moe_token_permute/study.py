"""Studies of MoeTokenPermute: rows are copied, never added; the ids alone decide the places."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from npu_sim.framework.vocabulary import Array, Index, Text
from npu_sim.operators.shared.routed_tokens.study import PERMUTE
from npu_sim.operators.shared.study import (
    Changes,
    Claim,
    FoundCall,
    InDumps,
    NamedTerms,
    Restore,
    StudyCall,
    Values,
    WrappedCall,
)

PADDING_TOKENS = 8


def claims(call: StudyCall) -> Iterator[Claim]:
    """Yield the claim that every element of permuted_tokens is one element of tokens."""
    tokens, sources = call.tensors["tokens"], _sources(call)
    if tokens.size and sources.size:
        inner = tuple(0 for _ in tokens.shape[1:])
        yield Claim(
            output="permuted_tokens",
            element=(0, *inner),
            elements=sources.size * tokens[0].size,
            terms=(_term(int(sources[0]), inner),),
            tree=0,
            evaluates=partial(_copies, call, sources),
        )


def _copies(call: StudyCall, sources: Array) -> bool:
    """Return whether the kernel's rows have the bits of their tokens."""
    return bool(
        call.outputs()["permuted_tokens"].tobytes() == call.tensors["tokens"][sources].tobytes()
    )


def _sources(call: StudyCall) -> Array:
    """Return the token of every row of permuted_tokens."""
    outputs = call.outputs()
    places = outputs["sorted_indices"]
    sources = np.empty_like(places)
    sources[places] = np.arange(places.size) * len(call.tensors["tokens"]) // max(places.size, 1)
    return sources[: len(outputs["permuted_tokens"])]


def _term(token: int, inner: tuple[int, ...]) -> str:
    return f"tokens[{', '.join(map(str, (token, *inner)))}]"


def terms(call: StudyCall, output: str, index: Index) -> NamedTerms:
    """Return the source of an element of permuted_tokens, or the place of a copy."""
    if output == "sorted_indices":
        return [("place", float(call.outputs()[output][index]))]
    token, inner = int(_sources(call)[index[0]]), tuple(index[1:])
    return [(_term(token, inner), float(call.tensors["tokens"][(token, *inner)]))]


def _batches(call: StudyCall) -> Iterator[tuple[str, StudyCall, Restore]]:
    """Yield larger batches and another position in the batch, unless rows are dropped.

    Other batches would drop other tokens.
    """
    tokens, indices = call.tensors["tokens"], call.tensors["indices"]
    if not indices.size or len(_sources(call)) < indices.size:
        return
    order = np.arange(len(tokens))
    moved = np.roll(order, max(1, len(order) // 3))
    zeros = np.zeros((PADDING_TOKENS, *tokens.shape[1:]), tokens.dtype)
    padding = Text("{padding_tokens} padding tokens", padding_tokens=PADDING_TOKENS)
    # Name, tokens, the tokens that their ids are from, and the places of the original tokens.
    for name, changed_tokens, sources, at in (
        ("batch twice as large", np.concatenate([tokens, tokens]), np.tile(order, 2), order),
        (
            padding,
            np.concatenate([tokens, zeros]),
            np.concatenate([order, np.resize(order, PADDING_TOKENS)]),
            order,
        ),
        ("another position in the batch", tokens[moved], moved, np.argsort(moved)),
    ):
        changed = call.with_tensors(tokens=changed_tokens, indices=indices[sources])
        yield name, changed, partial(_restored, call, changed, at)


def _restored(
    call: StudyCall, changed: StudyCall, at: Array, output: str, values: Array
) -> Array | None:
    """Return the copies of the original tokens in an output of a changed call.

    ``at`` are the positions of these tokens in the changed call. Places are ranked among
    themselves. Tokens of one expert keep the order of the batch, so another order gives other
    places.
    """
    places = (
        changed.outputs()["sorted_indices"]
        .reshape(len(changed.tensors["tokens"]), -1)[at]
        .reshape(-1)
    )
    if output == "sorted_indices":
        return np.argsort(np.argsort(places)) if (np.diff(at) > 0).all() else None
    sorted_indices = call.outputs()["sorted_indices"]
    rows = np.empty((sorted_indices.size, *values.shape[1:]), values.dtype)
    rows[sorted_indices] = values[places]
    return rows


CHANGES = Changes(others=_batches)


def _in_dump(wrapped: WrappedCall) -> FoundCall:
    results = {"permuted_tokens": wrapped.output(0), "sorted_indices": wrapped.output(1)}
    return wrapped.pick("tokens", "indices", num_out_tokens=0, padded_mode=False), results


def _contradictions(arguments: Values, results: Values) -> Iterator[str]:
    """Rows of permuted_tokens are copies of rows of tokens."""
    copied, original = results.get("permuted_tokens"), arguments.get("tokens")
    if copied is None or original is None:
        return
    (low, high), (lowest, highest) = copied.extremes, original.extremes
    for name, value, limit, outside in (
        ("Max", high, highest, high > highest),
        ("Min", low, lowest, low < lowest),
    ):
        if outside:
            yield Text(
                "{statistic} of {result} is {value}, of {source} {limit}; rows are copied, so "
                "it cannot be exceeded",
                statistic=name,
                result="permuted_tokens",
                value=f"{value:.6g}",
                source="tokens",
                limit=f"{limit:.6g}",
            )


IN_DUMPS = InDumps((PERMUTE,), _in_dump, contradictions=_contradictions)
