"""The calls of our operators in a dump, rebuilt from its entries.

A backward kernel is called by autograd, below the functions that msprobe wraps. Its arguments are
the gradients in the backward entry (``input``: those of the outputs; ``output``: those of the
positional inputs) and tensors of the forward entry of the same name and count.

Source: specification page ``msprobe_dump``, sections "Names", "Backward entries" and "Rebuilding
our calls".
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from npu_sim.dumps.folder import NAME, Dump, DumpedTensor, Entry, tensors_of

Arguments = dict[str, Any]


@dataclass(frozen=True)
class DumpedCall:
    """A call of one of our operators.

    Attributes
    ----------
    operator
        Name in npu_sim.
    entry
        Entry that has the results.
    arguments
        Arguments of :func:`npu_sim.run`; DumpedTensor in place of tensors.
    results
        Results by name. A gradient that autograd cast to the dtype of the input has that dtype.
    """

    operator: str
    entry: str
    arguments: Mapping[str, Any]
    results: Mapping[str, DumpedTensor]


class _Bound:
    """Forward entry with its arguments by name, and the backward entry of the same count."""

    def __init__(self, names: tuple[str, ...], forward: Entry, backward: Entry | None) -> None:
        self.names, self.forward, self.backward = names, forward, backward
        self.arguments: Arguments = {
            **forward.keywords,
            **dict(zip(names, forward.inputs, strict=False)),
        }

    def pick(self, *names: str, **defaults: Any) -> Arguments:
        """Return arguments by name; those with a default may be missing or None."""
        picked = {name: self.arguments.get(name) for name in names}
        for name, default in defaults.items():
            value = self.arguments.get(name)
            picked[name] = default if value is None else value
        return picked

    def output(self, place: int) -> Any:
        """Return an output of the forward entry."""
        return _at(self.forward.outputs, place)

    def output_gradient(self, place: int = 0) -> Any:
        """Return the gradient of an output of the forward entry."""
        return _at(self.backward.inputs, place) if self.backward is not None else None

    def gradient(self, name: str) -> Any:
        """Return the gradient of an argument; only positional ones have one in a dump."""
        place = self.names.index(name)
        if self.backward is None or place >= len(self.forward.inputs):
            return None
        return _at(self.backward.outputs, place)

    def call(self, operator: str, arguments: Arguments, **results: Any) -> DumpedCall | None:
        """Return a forward call, if its results are in the dump."""
        return _call(operator, self.forward, arguments, results)

    def gradient_call(self, operator: str, arguments: Arguments, **results: Any) -> Any:
        """Return a backward call, if there is a backward entry with its results."""
        return self.backward and _call(operator, self.backward, arguments, results)


def _at(values: tuple[Any, ...], place: int) -> Any:
    return values[place] if place < len(values) else None


def _call(
    operator: str, entry: Entry, arguments: Arguments, results: Mapping[str, Any]
) -> DumpedCall | None:
    tensors = {name: value for name, value in results.items() if isinstance(value, DumpedTensor)}
    return DumpedCall(operator, entry.name, arguments, tensors) if tensors else None


Calls = Iterator[DumpedCall | None]


FUNCTIONAL_EMBEDDING = (
    *("indices", "weight", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse"),
)
"""Arguments of ``torch.nn.functional.embedding``; those of ``torch.embedding`` are others."""


def _embedding(bound: _Bound) -> Calls:
    weight = bound.arguments.get("weight")
    if not isinstance(weight, DumpedTensor) or bound.arguments.get("sparse"):
        return
    rows, padding = weight.shape[0], bound.arguments.get("padding_idx")
    if padding is None:
        padding = -1
    elif bound.names is FUNCTIONAL_EMBEDDING:
        padding %= rows  # negative ones count from the end
    arguments = bound.pick("indices", scale_grad_by_freq=False)
    arguments |= {"grad": bound.output_gradient(), "num_weights": rows, "padding_idx": padding}
    yield bound.gradient_call(
        "embedding_dense_backward", arguments, grad_weight=bound.gradient("weight")
    )


def _embedding_dense_backward(bound: _Bound) -> Calls:
    arguments = bound.pick(
        "grad", "indices", "num_weights", padding_idx=-1, scale_grad_by_freq=False
    )
    yield bound.call("embedding_dense_backward", arguments, grad_weight=bound.output(0))


def _conv_tbc(bound: _Bound) -> Calls:
    arguments = bound.pick("input", "weight", "bias", pad=0)
    yield bound.gradient_call(
        "conv_tbc_backward",
        {"grad_output": bound.output_gradient()} | arguments,
        grad_input=bound.gradient("input"),
        grad_weight=bound.gradient("weight"),
        grad_bias=bound.gradient("bias"),
    )


def _rms_norm(bound: _Bound) -> Calls:
    y, rstd = bound.output(0), bound.output(1)
    yield bound.call("rms_norm", bound.pick("x", "gamma", epsilon=1e-6), y=y, rstd=rstd)
    arguments = {"dy": bound.output_gradient(), "rstd": rstd} | bound.pick("x", "gamma")
    yield bound.gradient_call(
        "rms_norm_grad", arguments, dx=bound.gradient("x"), dgamma=bound.gradient("gamma")
    )


def _moe_token_permute(bound: _Bound) -> Calls:
    arguments = bound.pick("tokens", "indices", num_out_tokens=0, padded_mode=False)
    permuted, sorted_indices = bound.output(0), bound.output(1)
    yield bound.call(
        "moe_token_permute", arguments, permuted_tokens=permuted, sorted_indices=sorted_indices
    )
    indices = arguments["indices"]
    if isinstance(indices, DumpedTensor):
        yield bound.gradient_call(
            "moe_token_permute_grad",
            {
                "permuted_output_grad": bound.output_gradient(),
                "sorted_indices": sorted_indices,
                "num_topk": 1 if len(indices.shape) == 1 else indices.shape[-1],
                "padded_mode": arguments["padded_mode"],
            },
            input_grad=bound.gradient("tokens"),
        )


def _moe_token_unpermute(bound: _Bound) -> Calls:
    arguments = bound.pick(
        "permuted_tokens", "sorted_indices", probs=None, padded_mode=False, restore_shape=None
    )
    yield bound.call("moe_token_unpermute", arguments, unpermuted_tokens=bound.output(0))
    yield bound.gradient_call(
        "moe_token_unpermute_grad",
        arguments | {"unpermuted_tokens_grad": bound.output_gradient()},
        permuted_tokens_grad=bound.gradient("permuted_tokens"),
        probs_grad=bound.gradient("probs"),
    )


def _cross_entropy(bound: _Bound) -> Calls:
    if bound.output_gradient(2) is not None:
        return  # the gradient of zloss, whose other arguments are not in the dump
    arguments = bound.pick(
        "target", weight=None, reduction="mean", ignore_index=-100, label_smoothing=0.0
    )
    arguments |= {"grad_loss": bound.output_gradient(), "log_prob": bound.output(1)}
    yield bound.gradient_call("cross_entropy_loss_grad", arguments, x_grad=bound.gradient("input"))


Rebuild = Callable[[_Bound], Calls]
_CROSS_ENTROPY = ("input", "target", "weight", "reduction", "ignore_index", "label_smoothing")
_RMS_NORM = (("x", "gamma", "epsilon"), _rms_norm)
APIS: dict[str, tuple[tuple[str, ...], Rebuild]] = {
    "Functional.embedding": (FUNCTIONAL_EMBEDDING, _embedding),
    "embedding": (("weight", "indices", "padding_idx", "scale_grad_by_freq", "sparse"), _embedding),
    "embedding_dense_backward": (
        ("grad", "indices", "num_weights", "padding_idx", "scale_grad_by_freq"),
        _embedding_dense_backward,
    ),
    "conv_tbc": (("input", "weight", "bias", "pad"), _conv_tbc),
    "npu_rms_norm": _RMS_NORM,
    "RmsNorm": _RMS_NORM,
    "npu_moe_token_permute": (
        ("tokens", "indices", "num_out_tokens", "padded_mode"),
        _moe_token_permute,
    ),
    "npu_moe_token_unpermute": (
        ("permuted_tokens", "sorted_indices", "probs", "padded_mode", "restore_shape"),
        _moe_token_unpermute,
    ),
    "npu_cross_entropy_loss": (_CROSS_ENTROPY, _cross_entropy),
}
"""Wrapped functions: the names of their positional arguments, and how our calls are rebuilt."""


def entry_kind(name: str) -> str:
    """Return the key of an entry in ``APIS``, or the name without count and direction."""
    match = NAME.fullmatch(name)
    if match is None:
        return name
    last = match["api"].rpartition(".")[2]
    for key in (f"{match['prefix']}.{last}", last):
        if key in APIS:
            return key
    return f"{match['prefix']}.{match['api']}"


def calls_of(dump: Dump) -> tuple[DumpedCall, ...]:
    """Return the calls of our operators in a dump, in the order of the entries with their results.

    A call is left out when one of its tensors is missing in the dump.
    """
    found = []
    for name, entry in dump.entries.items():
        kind = entry_kind(name)
        if kind not in APIS or name.endswith(".backward"):
            continue
        names, rebuild = APIS[kind]
        backward = dump.entries.get(name.removesuffix("forward") + "backward")
        found += [call for call in rebuild(_Bound(names, entry, backward)) if call is not None]
    places = {name: position for position, name in enumerate(dump.entries)}
    return tuple(sorted(found, key=lambda call: places[call.entry]))


def inputs_of(dump: Dump, entry: Entry) -> Iterator[DumpedTensor]:
    """Yield all tensors that an entry depends on; a backward one also on its forward entry."""
    yield from tensors_of((entry.inputs, tuple(entry.keywords.values())))
    forward = dump.entries.get(entry.name.removesuffix("backward") + "forward")
    if forward is not None and entry.name.endswith(".backward"):
        yield from tensors_of((forward.inputs, tuple(forward.keywords.values()), forward.outputs))
