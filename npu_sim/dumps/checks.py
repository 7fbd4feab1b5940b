"""Contradictions in the statistics of a dumped call: values that the product cannot write.

Max and Min are exact. Mean and Norm were computed in the tensor's own dtype, so those of 16-bit
tensors are only compared within 2^-6.

Source: specification page ``msprobe_dump``, section "Modes without tensors".
"""

from collections.abc import Callable, Iterator, Mapping
from math import isfinite, prod, sqrt

from npu_sim.dumps.calls import DumpedCall
from npu_sim.dumps.folder import DumpedTensor
from npu_sim.language import Text

NORM_TOLERANCE = 1 + 2.0**-6
Tensors = Mapping[str, DumpedTensor]


def contradictions(call: DumpedCall) -> tuple[str, ...]:
    """Return what cannot be in a call whose inputs and results have statistics."""
    tensors = {
        name: value
        for name, value in (*call.arguments.items(), *call.results.items())
        if isinstance(value, DumpedTensor) and {"Max", "Min"} <= value.statistics.keys()
    }
    check = CHECKS.get(call.operator)
    return (*_indices(call, tensors), *(check(call, tensors) if check else ()))


def remarks(call: DumpedCall) -> tuple[str, ...]:
    """Return what is possible but deserves a look: inf or nan that arose here, results of zeros."""
    inputs = [value for value in call.arguments.values() if isinstance(value, DumpedTensor)]
    found = []
    for name, result in call.results.items():
        if not _is_finite(result) and all(map(_is_finite, inputs)):
            found.append(Text("{output} has inf or nan, the inputs have none", output=name))
        if _is_zero(result) and not any(map(_is_zero, inputs)):
            found.append(Text("{output} is 0 everywhere, no input is", output=name))
    return tuple(found)


def _is_finite(tensor: DumpedTensor) -> bool:
    return all(map(isfinite, tensor.statistics.values()))


def _is_zero(tensor: DumpedTensor) -> bool:
    return tensor.statistics.get("Max") == 0 == tensor.statistics.get("Min")


def _indices(call: DumpedCall, tensors: Tensors) -> Iterator[str]:
    """Check that indices lie in their range."""
    sizes = {
        ("embedding_dense_backward", "indices"): call.arguments.get("num_weights"),
        ("cross_entropy_loss_grad", "target"): _size(call.arguments.get("log_prob"), -1),
        ("moe_token_permute_grad", "sorted_indices"): _count(call.arguments.get("sorted_indices")),
        ("moe_token_unpermute", "sorted_indices"): _count(call.arguments.get("sorted_indices")),
        ("moe_token_unpermute_grad", "sorted_indices"): _count(
            call.arguments.get("sorted_indices")
        ),
    }
    for (operator, name), size in sizes.items():
        if operator != call.operator or name not in tensors or size is None:
            continue
        least, most = tensors[name].statistics["Min"], tensors[name].statistics["Max"]
        ignored = call.arguments.get("ignore_index")
        if most >= size or (least < 0 and least != ignored):
            yield Text(
                "{name} goes from {least} to {most}; legal: 0 to {last}",
                name=name,
                least=int(least),
                most=int(most),
                last=size - 1,
            )


def _size(tensor: object, axis: int) -> int | None:
    return tensor.shape[axis] if isinstance(tensor, DumpedTensor) and tensor.shape else None


def _count(tensor: object) -> int | None:
    return prod(tensor.shape) if isinstance(tensor, DumpedTensor) else None


def _rms_norm(call: DumpedCall, tensors: Tensors) -> Iterator[str]:
    epsilon = call.arguments["epsilon"]
    if (rstd := tensors.get("rstd")) is not None and epsilon > 0:
        least, most = rstd.statistics["Min"], rstd.statistics["Max"]
        # rstd = 1/sqrt(mean of squares + epsilon), and the mean is not negative.
        if least <= 0 or most > NORM_TOLERANCE / sqrt(epsilon):
            yield Text(
                "rstd goes from {least} to {most}; possible: above 0, to {limit}, the inverse "
                "root of epsilon",
                least=f"{least:.4g}",
                most=f"{most:.4g}",
                limit=f"{1 / sqrt(epsilon):.4g}",
            )
    y, gamma = tensors.get("y"), tensors.get("gamma")
    if y is None or gamma is None or "Norm" not in y.statistics:
        return
    # x*rstd of a row has a norm of at most the root of its columns.
    largest = max(abs(gamma.statistics["Max"]), abs(gamma.statistics["Min"]))
    limit = sqrt(prod(y.shape)) * largest
    if y.statistics["Norm"] > limit * NORM_TOLERANCE:
        yield Text(
            "y has the norm {norm}; at most {limit} is possible with this gamma",
            norm=f"{y.statistics['Norm']:.4g}",
            limit=f"{limit:.4g}",
        )


def _copied(source: str, result: str) -> Callable[[DumpedCall, Tensors], Iterator[str]]:
    """Return the check of a result whose rows are copies of an input's rows."""

    def check(call: DumpedCall, tensors: Tensors) -> Iterator[str]:
        copied, original = tensors.get(result), tensors.get(source)
        if copied is None or original is None:
            return
        for name, outside in (
            ("Max", copied.statistics["Max"] > original.statistics["Max"]),
            ("Min", copied.statistics["Min"] < original.statistics["Min"]),
        ):
            if outside:
                yield Text(
                    "{statistic} of {result} is {value}, of {source} {limit}; rows are copied, so "
                    "it cannot be exceeded",
                    statistic=name,
                    result=result,
                    value=f"{copied.statistics[name]:.6g}",
                    source=source,
                    limit=f"{original.statistics[name]:.6g}",
                )

    return check


CHECKS: dict[str, Callable[[DumpedCall, Tensors], Iterator[str]]] = {
    "rms_norm": _rms_norm,
    "moe_token_permute": _copied("tokens", "permuted_tokens"),
}
"""Checks of an operator beyond the ranges of indices."""
