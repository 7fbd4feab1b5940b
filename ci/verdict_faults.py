"""Plant 102 faults in results, and count which of them ``verify`` explains, and explains wrongly.

    PYTHONPATH=. python ci/verdict_faults.py
    PYTHONPATH=. python ci/verdict_faults.py rms_norm

The second line plants those whose name contains the word. A fault within the list of explanations
must be among them, and the first one must be it or give as many elements; a fault outside of the
list must not be explained at all.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import npu_sim
from npu_sim.kernels.shared.elementwise import round_to_hf32
from npu_sim.numbers.formats import numpy_dtype
from npu_sim.operators.add_rms_norm.study import add_and_norm, in_call_of
from npu_sim.operators.cross_entropy_loss.study import in_batch
from npu_sim.operators.shared.study import study_call
from tests.studies import calls

HERE = {"soc": "Ascend910B1", "release": "9.1", "deterministic": False}
BFLOAT16 = numpy_dtype("bfloat16")
Call = dict[str, Any]
Values = np.ndarray


class Fault(NamedTuple):
    """A planted fault.

    Attributes
    ----------
    name, operator, call, output
        What is planted, and the call that is verified.
    measured
        The faulty output.
    told
        Part of the explanation; empty where there must be none.
    status
        Verdict on the output: undecided where the device may differ in an open step.
    """

    name: str
    operator: str
    call: Call
    output: str
    measured: Values
    told: str
    status: str = "unreachable"


def result(operator: str, call: Call, output: str, **target: Any) -> Values:
    """Return an output in a random order of arrival."""
    order = {"core_order": "random", "seed": 3}
    return npu_sim.run(operator, **{**HERE, **order, **target, **call}).outputs[output]


def rounded(values: Values, dtype: str) -> Values:
    """Return fp32 values rounded to another format, as fp32."""
    if dtype == "hf32":
        return round_to_hf32(values)
    return values.astype(numpy_dtype(dtype)).astype(np.float32)


def of_results(operator: str, call: Call, output: str) -> Iterator[Fault]:
    """Yield faults of an fp32 result that is a sum over samples or a value of each of them."""
    right = result(operator, call, output)

    def fault(name: str, measured: Values, told: str) -> Fault:
        return Fault(f"{operator} {output} {name}", operator, call, output, measured, told)

    for number in (7, 8, 64):
        divided = right / np.float32(number)
        yield fault(f"/ {number}", divided, f"result divided by {number}")
    yield fault("* 4", right * np.float32(4), "result multiplied by 4")
    yield fault("as bf16", rounded(right, "bfloat16"), "result rounded to bfloat16")
    flipped = right.copy()
    flipped.view(np.uint32).reshape(-1)[right.size // 2] ^= 1 << 20
    yield fault("flipped", flipped, "")


def of_inputs(operator: str, call: Call, output: str, tensors: str) -> Iterator[Fault]:
    """Yield results of fp32 inputs that were rounded before."""
    for dtype in ("bfloat16", "float16", "hf32"):
        for tensor in tensors.split():
            changed = {**call, tensor: rounded(call[tensor], dtype)}
            measured = result(operator, changed, output)
            name = f"{operator} {tensor} as {dtype}"
            several = len(tensors.split()) > 1
            told = f"{tensor if several else 'inputs'} rounded to {dtype} before"
            yield Fault(name, operator, call, output, measured, told)


def of_samples(operator: str, call: Call, output: str, sampled: str) -> Iterator[Fault]:
    """Yield sums over samples that were miscounted, or taken in two parts."""
    names = sampled.split()

    def fault(name: str, measured: Values, told: str) -> Fault:
        return Fault(f"{operator} {output} {name}", operator, call, output, measured, told)

    def with_samples(change: Callable[[Values], Values]) -> Values:
        return result(operator, {**call, **{name: change(call[name]) for name in names}}, output)

    count = len(call[names[0]])
    twice = with_samples(lambda array: np.insert(array, 8, array[7], axis=0))
    yield fault("row twice", twice, "row 7 added twice")
    missing = with_samples(lambda array: np.delete(array, 11, axis=0))
    yield fault("row missing", missing, "row 11 missing")
    halves = [
        with_samples(lambda array, part=part: array[part])
        for part in (slice(0, count // 2), slice(count // 2, None))
    ]
    yield fault("micro-batches", halves[0] + halves[1], "micro-batches")


def of_cleared_memory() -> Iterator[Fault]:
    """Yield gradients of rows with one contribution that were added to what the memory held."""
    random = np.random.default_rng(0)
    call = {
        "grad": random.standard_normal((60, 16)).astype(np.float32),
        "indices": random.permutation(60).astype(np.int32),
        "num_weights": 60,
    }
    right = result("embedding_dense_backward", call, "grad_weight")
    held = {"1": np.float32(1), "0.5": np.float32(0.5), "an equal call": right}
    for name, before in held.items():
        text = f"added to {'the result of ' if name == 'an equal call' else ''}{name}"
        yield Fault(
            f"memory held {name}",
            *("embedding_dense_backward", call, "grad_weight"),
            measured=right + before,
            told=text,
        )


def of_places() -> Iterator[Fault]:
    """Yield results of other devices, modes and releases."""
    norm = calls.rms_norm(130, 200)
    random = np.random.default_rng(0)
    table = {
        "grad": random.standard_normal((2400, 600)).astype(np.float32),
        "indices": np.arange(2400, dtype=np.int32) // 25,
        "num_weights": 96,
    }
    planted: list[tuple[str, Call, str, Call, str]] = [
        ("rms_norm_grad", norm | {"deterministic": True}, "dgamma", {"soc": "Ascend910B4"}, "SoC"),
        ("embedding_dense_backward", table, "grad_weight", {"release": "8.3"}, "release 8.3"),
    ]
    for product in ("ascend_950", "atlas_train"):
        other = {"product": product, "soc": None}
        planted.append(("embedding_dense_backward", table, "grad_weight", other, "SoC"))
    for operator, call, output, there, told in planted:
        measured = result(operator, call, output, **there)
        name = f"{operator} on {' '.join(map(str, there.values()))}"
        yield Fault(name, operator, call, output, measured, told)
    ordered = norm | {"deterministic": True}
    measured = result("rms_norm_grad", norm, "dgamma")
    yield Fault("dgamma not deterministic", "rms_norm_grad", ordered, "dgamma", measured, "off")


def of_attributes() -> Iterator[Fault]:
    """Yield results without an attribute or an optional tensor, or with another epsilon."""
    embedding = calls.embedding(300, 16, 40)
    forward = calls.rms_norm_forward(20, 96)
    loss = calls.cross_entropy(40, 32, reduction="sum")
    weights = np.random.default_rng(2).random(32).astype(np.float32)
    planted: list[tuple[str, Call, Call, str, str]] = [
        ("embedding_dense_backward", embedding, {"padding_idx": 3}, "grad_weight", "padding_idx"),
        (
            *("embedding_dense_backward", embedding, {"scale_grad_by_freq": True}),
            *("grad_weight", "scale_grad_by_freq"),
        ),
        ("rms_norm", forward | {"epsilon": 1e-5}, {"epsilon": 1e-6}, "y", "epsilon 1e-05"),
        ("rms_norm", forward | {"epsilon": 1e-6}, {"epsilon": 1e-5}, "y", "epsilon"),
        ("rms_norm", forward | {"epsilon": 1e-6}, {"epsilon": 1e-8}, "rstd", "epsilon 1e-06"),
        ("cross_entropy_loss_grad", loss, {"weight": weights}, "x_grad", "weight ignored"),
        (
            *("cross_entropy_loss_grad", loss, {"ignore_index": int(loss["target"][0])}),
            *("x_grad", "ignore_index"),
        ),
    ]
    rows = calls.unpermute(48, 1, 32)
    probs = {"probs": rows.pop("probs")}
    planted.append(("moe_token_unpermute", rows, probs, "unpermuted_tokens", "probs"))
    rows = calls.unpermute_grad(48, 1, 32)
    probs = {"probs": rows.pop("probs")}
    planted.append(("moe_token_unpermute_grad", rows, probs, "permuted_tokens_grad", "probs"))
    for operator, call, given, output, told in planted:
        measured = result(operator, call, output)
        name = f"{operator} without {', '.join(given)}"
        yield Fault(name, operator, call | given, output, measured, told)


def of_formats() -> Iterator[Fault]:
    """Yield results of 16-bit calls: kept in fp32, and stored as fp32 with all inputs."""
    planted = (
        ("embedding_dense_backward", calls.embedding(300, 16, 40, "bf16"), "grad_weight"),
        ("rms_norm", calls.rms_norm_forward(20, 96, "bf16"), "y"),
        ("rms_norm_grad", calls.rms_norm(60, 64, "bf16"), "dx"),
    )
    for operator, call, output in planted:
        wide = {
            name: value.astype(np.float32) if getattr(value, "dtype", None) == BFLOAT16 else value
            for name, value in call.items()
        }
        kept = result(operator, wide, output)
        yield Fault(f"{operator} kept in fp32", operator, call, output, kept, "not rounded")
        stored = result(operator, call, output).astype(np.float32)
        yield Fault(f"{operator} stored as fp32", operator, wide, output, stored, "stored as fp32")
    operator, call, output = planted[2]
    changed = call | {"rstd": rounded(call["rstd"], "bfloat16")}
    measured = result(operator, changed, output)
    yield Fault("rstd as bfloat16", operator, call, output, measured, "rounded to bfloat16 before")


def of_residuals() -> Iterator[Fault]:
    """Yield results of a residual and its norm that other kernels, rows or products gave."""
    operator = "add_rms_norm"
    for rows, place in ((60, "decode"), (20, "prefill")):
        call = calls.add_rms_norm(rows, 4096)
        study = study_call(operator, {**call, "product": "atlas_a2"})
        more = in_call_of(study, 48 if rows > 48 else 49)
        apart = add_and_norm(study)
        for output in ("y", "rstd"):
            other = more[output]
            yield Fault(f"{operator} {output} of a {place}", operator, call, output, other, place)
            # rstd of the rounded sum is within the two units that are not published.
            if output == "y" or place == "decode":
                name = f"{operator} {output} apart, {rows} rows"
                yield Fault(name, operator, call, output, apart[output], "then RmsNorm")
        flipped = result(operator, call, "y")
        flipped.view(np.uint16)[3, 5] ^= 1 << 9
        yield Fault(f"{operator} flipped, {rows} rows", operator, call, "y", flipped, "")
        added = result(operator, call, "x")
        added[0, 0] += BFLOAT16.type(1)
        yield Fault(f"{operator} x, {rows} rows", operator, call, "x", added, "")
    call = calls.add_rms_norm(60, 300, epsilon=1e-6)
    other = result(operator, {**call, "epsilon": 1e-5}, "rstd")
    yield Fault(f"{operator} epsilon", operator, call, "rstd", other, "epsilon 1e-05")
    other = result(operator, {**call, "gamma": np.ones_like(call["gamma"])}, "y")
    yield Fault(f"{operator} without gamma", operator, call, "y", other, "")
    wide = calls.add_rms_norm(60, 4096)
    other = result(operator, wide, "y", product="ascend_950", soc=None)
    yield Fault(f"{operator} on ascend_950", operator, wide, "y", other, "SoC")


def of_losses() -> Iterator[Fault]:
    """Yield losses and log-probabilities of other calls, and those that exp and ln leave open."""
    operator = "cross_entropy_loss"
    weights = np.random.default_rng(2).uniform(0.5, 1.5, 300).astype(np.float32)
    for dtype in ("fp32", "bf16"):
        call = calls.cross_entropy_loss(40, 300, dtype, reduction="sum")
        loss, log_prob = (result(operator, call, name) for name in ("loss", "log_prob"))
        given: list[tuple[Call, str]] = [
            ({"weight": weights}, "weight ignored"),
            ({"label_smoothing": 0.1}, "label_smoothing ignored"),
            ({"ignore_index": int(call["target"][0])}, "ignore_index ignored"),
            ({"reduction": "mean"}, "reduction sum"),
        ]
        for changed, told in given:
            name = f"{operator} {dtype} without {', '.join(changed)}"
            yield Fault(name, operator, call | changed, "loss", loss, told)
        other = result(operator, call | {"label_smoothing": 0.1}, "loss")
        told = "label_smoothing 0.1"
        yield Fault(f"{operator} {dtype} smoothed", operator, call, "loss", other, told)
        other = result(operator, call | {"reduction": "mean"}, "loss")
        told = "reduction ignored"
        yield Fault(f"{operator} {dtype} mean", operator, call, "loss", other, told)
        faulty = log_prob.copy()
        faulty[3, 5] *= log_prob.dtype.type(1.1)
        swapped = log_prob[[1, 0, *range(2, 40)]]
        in_bits = (log_prob.astype(np.float64) / np.log(2)).astype(log_prob.dtype)
        for name, measured in (("scaled", faulty), ("rows", swapped), ("base 2", in_bits)):
            yield Fault(f"{operator} {dtype} {name}", operator, call, "log_prob", measured, "")
    call = calls.cross_entropy_loss(40, 300)
    x = call["input"]
    other = result(operator, call, "log_prob", product="ascend_950", soc=None)
    yield Fault(f"{operator} on ascend_950", operator, call, "log_prob", other, "SoC")
    highest = x.max(axis=1, keepdims=True)
    total = np.exp((x - highest).astype(np.float64)).sum(axis=1, keepdims=True)
    logarithm = np.log(total).astype(np.float32)
    other = (x - highest) - logarithm
    yield Fault(f"{operator} log_softmax", operator, call, "log_prob", other, "log_softmax")
    other = x - (np.nextafter(logarithm, np.float32(np.inf)) + highest)
    yield Fault(f"{operator} ln, 1 ulp", operator, call, "log_prob", other, "", "undecided")
    call = calls.cross_entropy_loss(64, 64000, reduction="none")
    batch = in_batch(study_call(operator, call), 33409)
    for output in ("loss", "log_prob"):
        name = f"{operator} {output} in another batch"
        yield Fault(name, operator, call, output, batch[output], "", "undecided")


def outside_of_the_list() -> Iterator[Fault]:
    """Yield faults that nothing in the list explains."""
    call = calls.embedding(300, 16, 40)
    right = result("embedding_dense_backward", call, "grad_weight")
    noise = np.random.default_rng(1).standard_normal(right.shape).astype(np.float32)
    rows = right.copy()
    rows[3:5] = 1e6
    for name, measured in (
        ("noise", right * (1 + noise * np.float32(1e-3))),
        ("rows of 1e6", rows),
        ("shifted rows", np.roll(right, 1, axis=0)),
        ("scaled by 1.02", right * np.float32(1.02)),
        ("nan", np.full_like(right, np.nan)),
    ):
        arguments = "embedding_dense_backward", call, "grad_weight"
        yield Fault(name, *arguments, measured=measured, told="")


def planted() -> Iterator[Fault]:
    """Yield all faults."""
    embedding = "embedding_dense_backward", calls.embedding(300, 16, 40), "grad_weight"
    gradient = "rms_norm_grad", calls.rms_norm(60, 64), "dgamma"
    yield from of_results(*embedding)
    yield from of_results(*gradient)
    yield from of_results("rms_norm_grad", calls.rms_norm(60, 64), "dx")
    yield from of_inputs(*embedding, tensors="grad")
    yield from of_inputs(*gradient, tensors="dy x rstd")
    yield from of_samples(*embedding, sampled="grad indices")
    ordered = gradient[1] | {"deterministic": True}  # some order of arrival gives most sums
    yield from of_samples("rms_norm_grad", ordered, "dgamma", sampled="dy x rstd")
    yield from of_cleared_memory()
    yield from of_places()
    yield from of_attributes()
    yield from of_formats()
    yield from of_residuals()
    yield from of_losses()
    yield from outside_of_the_list()


def main() -> int:
    """Print what was not or wrongly explained; return the number of these faults."""
    failures = count = 0
    for fault in planted():
        if not all(word in fault.name for word in sys.argv[1:]):
            continue
        count += 1
        call = {**HERE, **fault.call, fault.output: fault.measured}
        output = npu_sim.verify(fault.operator, **call).outputs[fault.output]
        found = [one.as_dict() for one in output.explanations]
        named = [one for one in found if fault.told and fault.told in one["alternative"]]
        as_good = named and named[0]["explained"] - named[0]["impossible"] >= (
            found[0]["explained"] - found[0]["impossible"]
        )
        if output.status != fault.status or (not as_good if fault.told else found):
            failures += 1
            print(f"{fault.name}: {output.status}, told {found}")
    print(f"{count} faults: {failures} not or wrongly explained")
    return failures


if __name__ == "__main__":
    sys.exit(min(1, main()))
