#!/usr/bin/env python3
"""Run the calls of calls.jsonl on an Ascend NPU and write results/ and device.json beside them.

Needs Python 3.8, numpy, torch and torch_npu. Stopped and started again, it goes on where it was.
Inputs are not shipped: they are computed from seeds, with integer operations only, so that every
machine has the same bits. Nothing is written outside this folder, and no names of hosts, users or
paths are recorded. ``npu-sim kit --check FOLDER`` reads the results.
"""

import argparse
import glob
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time

import numpy as np

SCHEMA = "npu_sim.device_kit/1"
RUNS = 3
"""Runs of a call with deterministic computation off; one fewer with it on."""
HERE = os.path.dirname(os.path.abspath(__file__))
LAYOUTS = {"float32": ("uint32", 8, 23), "float16": ("uint16", 5, 10), "bfloat16": ("uint16", 8, 7)}
"""Unsigned dtype, exponent bits and mantissa bits of a floating-point dtype."""


# --- inputs -------------------------------------------------------------------------------------


def random_bits(seed, count, first=0):
    """Return ``count`` uint64 numbers of splitmix64 for the positions from ``first`` on."""
    step = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        positions = np.arange(first, first + count, dtype=np.uint64)
        state = np.uint64(seed) + (positions + np.uint64(1)) * step
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def floating(bits, dtype):
    """Return numbers of magnitude 1/8 to 2 as bits."""
    unsigned, exponent_bits, mantissa_bits = LAYOUTS[dtype]
    bias = (1 << (exponent_bits - 1)) - 1
    sign = bits >> np.uint64(63)
    exponent = np.uint64(bias - 3) + (bits >> np.uint64(40)) % np.uint64(4)
    mantissa = bits & np.uint64((1 << mantissa_bits) - 1)
    sign_place = exponent_bits + mantissa_bits
    stored = sign << np.uint64(sign_place) | exponent << np.uint64(mantissa_bits) | mantissa
    return stored.astype(unsigned)


def put_special(stored, dtype):
    """Replace some of the first numbers, given as bits, by inf, nan, -0, 0 and subnormal ones."""
    _, exponent_bits, mantissa_bits = LAYOUTS[dtype]
    infinity = ((1 << exponent_bits) - 1) << mantissa_bits
    negative = 1 << (exponent_bits + mantissa_bits)
    values = (
        infinity,
        infinity | negative,
        infinity | 1 << (mantissa_bits - 1),
        negative,
        0,
        1,
        negative | 3,
    )
    for place, value in enumerate(values):
        stored[5 * place + 2 : max(len(stored) // 8, 64) : 64] = value


PIECE = 1 << 20
"""Elements that are made at a time."""


def make_input(tensor):
    """Return one input of a call as a NumPy array; bfloat16 as uint16."""
    shape, dtype, kind = tuple(tensor["shape"]), tensor["dtype"], tensor["values"]
    count = int(np.prod(shape, dtype=np.int64))
    if kind == "permutation":
        bits = random_bits(tensor["seed"], count)
        return np.argsort(bits, kind="stable").astype(dtype).reshape(shape)
    values = np.empty(count, dtype if kind == "below" else LAYOUTS[dtype][0])
    for first in range(0, count, PIECE):
        bits = random_bits(tensor["seed"], min(PIECE, count - first), first)
        if kind == "below":
            made = bits % np.uint64(max(tensor["below"], 1))
        else:
            signs = {"positive": bits >> np.uint64(1), "negative": bits | np.uint64(1 << 63)}
            made = floating(signs.get(kind, bits), dtype)
        values[first : first + len(made)] = made
    if kind == "special":
        put_special(values, dtype)
    is_stored = kind == "below" or dtype == "bfloat16"
    return (values if is_stored else values.view(dtype)).reshape(shape)


def checksum(array):
    """Return the SHA-256 of an array's bytes in little-endian order."""
    return hashlib.sha256(array.astype(array.dtype.newbyteorder("<")).tobytes()).hexdigest()


def digest_of(line):
    """Return the identity of a line of calls.jsonl, which its result repeats."""
    return hashlib.sha256(line.strip()).hexdigest()


# --- calls: from the operator to its function in torch ------------------------------------------


def rms_norm(torch, npu, t, a):
    y, rstd = npu.npu_rms_norm(t["x"], t["gamma"], a["epsilon"])
    return {"y": y, "rstd": rstd}


def add_rms_norm(torch, npu, t, a):
    y, rstd, x = npu.npu_add_rms_norm(t["x1"], t["x2"], t["gamma"], a["epsilon"])
    return {"y": y, "rstd": rstd, "x": x}


def rms_norm_grad(torch, npu, t, a):
    x, gamma = t["x"].requires_grad_(), t["gamma"].requires_grad_()
    y, rstd = npu.npu_rms_norm(x, gamma, 1e-6)
    dx, dgamma = torch.autograd.grad(y, (x, gamma), t["dy"])
    return {"dx": dx, "dgamma": dgamma, "rstd": rstd}


def embedding_dense_backward(torch, npu, t, a):
    grad = torch.ops.aten.embedding_dense_backward(
        t["grad"], t["indices"], a["num_weights"], -1, a["scale_grad_by_freq"]
    )
    return {"grad_weight": grad}


def conv_tbc_backward(torch, npu, t, a):
    npu.npu.conv.allow_hf32 = a["cube_math_type"] == 1
    names = ("grad_output", "input", "weight", "bias")
    results = torch.ops.aten.conv_tbc_backward(*[t[name] for name in names], a["pad"])
    return dict(zip(("grad_input", "grad_weight", "grad_bias"), results))


def cross_entropy_loss(torch, npu, t, a):
    loss, log_prob, _, _ = npu.npu_cross_entropy_loss(
        t["input"],
        t["target"],
        t.get("weight"),
        a["reduction"],
        a["ignore_index"],
        a["label_smoothing"],
    )
    return {"loss": loss, "log_prob": log_prob}


def cross_entropy_loss_grad(torch, npu, t, a):
    x = t["logits"].requires_grad_()
    loss, log_prob, _, _ = npu.npu_cross_entropy_loss(
        x, t["target"], t.get("weight"), a["reduction"], a["ignore_index"]
    )
    (grad,) = torch.autograd.grad(loss, x, t["grad_loss"].reshape(loss.shape))
    return {"x_grad": grad, "log_prob": log_prob}


def moe_token_permute(torch, npu, t, a):
    names = ("permuted_tokens", "sorted_indices")
    kept = a["num_out_tokens"] or None
    return dict(zip(names, npu.npu_moe_token_permute(t["tokens"], t["indices"], kept)))


def moe_token_permute_grad(torch, npu, t, a):
    tokens = t["tokens"].requires_grad_()
    permuted, sorted_indices = npu.npu_moe_token_permute(tokens, t["experts"])
    (grad,) = torch.autograd.grad(permuted, tokens, t["permuted_output_grad"])
    return {"input_grad": grad, "sorted_indices": sorted_indices}


def moe_token_unpermute(torch, npu, t, a):
    tokens = npu.npu_moe_token_unpermute(t["permuted_tokens"], t["sorted_indices"], t.get("probs"))
    return {"unpermuted_tokens": tokens}


def moe_token_unpermute_grad(torch, npu, t, a):
    wanted = {"permuted_tokens_grad": t["permuted_tokens"].requires_grad_()}
    if "probs" in t:
        wanted["probs_grad"] = t["probs"].requires_grad_()
    tokens = npu.npu_moe_token_unpermute(t["permuted_tokens"], t["sorted_indices"], t.get("probs"))
    gradients = torch.autograd.grad(tokens, tuple(wanted.values()), t["unpermuted_tokens_grad"])
    return dict(zip(wanted, gradients))


def rotary_position_embedding(torch, npu, t, a):
    mode = ("half", "interleave")[a["mode"]]
    return {"y": npu.npu_rotary_mul(t["x"], t["cos"], t["sin"], mode)}


def rotary_position_embedding_grad(torch, npu, t, a):
    names = ("x", "cos", "sin") if "x" in t else ("x",)
    wanted = {**t, "x": t["x"] if "x" in t else torch.zeros_like(t["dy"])}
    for name in names:
        wanted[name].requires_grad_()
    y = rotary_position_embedding(torch, npu, wanted, a)["y"]
    gradients = torch.autograd.grad(y, [wanted[name] for name in names], t["dy"])
    return dict(zip(("dx", "dcos", "dsin"), gradients))


def swi_glu(torch, npu, t, a):
    return {"y": npu.npu_swiglu(t["x"], dim=a["dim"])}


def swi_glu_grad(torch, npu, t, a):
    x = t["x"].requires_grad_()
    (grad,) = torch.autograd.grad(npu.npu_swiglu(x, dim=a["dim"]), x, t["y_grad"])
    return {"x_grad": grad}


def apply_adam_w_v2(torch, npu, t, a):
    state = [name for name in ("var", "m", "v", "max_grad_norm") if name in t]
    names = ("var", "grad", "m", "v", "max_grad_norm")
    lists = [[t[name]] if name in t else [] for name in names]
    floats = ("lr", "beta1", "beta2", "weight_decay", "eps", "amsgrad", "maximize")
    steps = [t["step"] + 1]  # PyTorch counts this update, and torch_npu subtracts 1
    torch._fused_adamw_(*lists, steps, **{name: a[name] for name in floats})
    return {name + "_out": t[name] for name in state}


class Call:
    """How torch reaches an operator.

    Attributes
    ----------
    run
        ``run(torch, torch_npu, tensors, attributes)`` returns the results, and the inputs of the
        operator that the device computed, by name.
    values
        Values of inputs that are not floating-point numbers of any sign: ``positive``,
        ``permutation``, a number, or the name of a size below which they are integers.
    derived
        Inputs of the operator that the device computes.
    given
        Inputs of the torch call that are not inputs of the operator: their axes, dtype (or the
        axis that states it) and ``values``.
    reach
        Values of axes that torch can choose.
    equal, broadcast
        Axes that torch sets like another one, and sizes that are 1 or that of another one.
    by_gradient
        Whether torch calls the operator only as the gradient of another one, which may refuse a
        call first.
    forward
        That other operator, where its limits differ, and its arguments that have other names.
    """

    def __init__(
        self,
        run,
        values=None,
        derived=(),
        given=None,
        reach=None,
        equal=None,
        broadcast=None,
        by_gradient=False,
        forward=None,
    ):
        self.run, self.values, self.derived = run, values or {}, derived
        self.given, self.reach, self.by_gradient = given or {}, reach or {}, by_gradient
        self.equal, self.broadcast, self.forward = equal or {}, broadcast or {}, forward or {}


COS_OF_X = {"cos0": "x0", "cos1": "x1", "cos2": "x2"}
STEPS = 1000
"""Updates before this one are drawn below this."""
EXPERTS = 64
"""Expert numbers are drawn below this."""
INTEGERS = ("int32", "int64")
CALLS = {
    "rms_norm": Call(rms_norm),
    "add_rms_norm": Call(add_rms_norm, reach={"outputs": ("full",), "in_place": (False,)}),
    "rms_norm_grad": Call(rms_norm_grad, derived=("rstd",), by_gradient=True),
    "embedding_dense_backward": Call(
        embedding_dense_backward, {"indices": "num_weights"}, reach={"indices_dtype": INTEGERS}
    ),
    "conv_tbc_backward": Call(conv_tbc_backward, reach={"cube_math_type": ("0", "1")}),
    "cross_entropy_loss": Call(
        cross_entropy_loss, {"target": "C"}, reach={"target_dtype": ("int64",)}
    ),
    "cross_entropy_loss_grad": Call(
        cross_entropy_loss_grad,
        {"target": "C"},
        ("log_prob",),
        {"logits": ("N C", "dtype", None)},
        {"target_dtype": ("int64",)},
        by_gradient=True,
        forward={"operator": "cross_entropy_loss", "input": "log_prob"},
    ),
    "moe_token_permute": Call(
        moe_token_permute, {"indices": EXPERTS}, reach={"dtype": tuple(LAYOUTS)}
    ),
    "moe_token_permute_grad": Call(
        moe_token_permute_grad,
        derived=("sorted_indices",),
        given={
            "tokens": ("tokens hidden", "dtype", None),
            "experts": ("tokens num_topk", "int32", EXPERTS),
        },
        by_gradient=True,
    ),
    "moe_token_unpermute": Call(moe_token_unpermute, {"sorted_indices": "permutation"}),
    "moe_token_unpermute_grad": Call(
        moe_token_unpermute_grad,
        {"sorted_indices": "permutation"},
        reach={"has_tokens": (True,)},
        by_gradient=True,
    ),
    "rotary_position_embedding": Call(
        rotary_position_embedding, reach={"mode": (0, 1)}, broadcast=COS_OF_X
    ),
    "rotary_position_embedding_grad": Call(
        rotary_position_embedding_grad,
        reach={"mode": (0, 1)},
        broadcast=COS_OF_X,
        by_gradient=True,
        forward={"operator": "rotary_position_embedding", "x": "dy"},
    ),
    "apply_adam_w_v2": Call(
        apply_adam_w_v2,
        {"v": "positive", "max_grad_norm": "positive", "step": STEPS},
        reach={"step_dtype": ("float32",)},
        equal={
            **dict.fromkeys(("m_dtype", "v_dtype", "grad_dtype", "norm_dtype"), "dtype"),
            "with_norm": "amsgrad",
        },
    ),
    "swi_glu": Call(swi_glu),
    "swi_glu_grad": Call(swi_glu_grad, by_gradient=True),
}
"""Operators that torch_npu reaches."""


MOST_CHARACTERS = 20000
"""Most characters of an error that are recorded."""


# --- running ------------------------------------------------------------------------------------


def to_device(torch, array, dtype):
    """Return an array as a tensor on the device."""
    if dtype == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).npu()
    return torch.from_numpy(array).npu()


def to_array(torch, tensor):
    """Return a tensor as a NumPy array; bfloat16 as uint16."""
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    return tensor.numpy()


def compute(torch, npu, call, arrays):
    """Run one call; return its results as arrays by name, with ``.bfloat16`` where they are."""
    tensors = {
        name: to_device(torch, array, call["inputs"][name]["dtype"])
        for name, array in arrays.items()
    }
    results = CALLS[call["operator"]].run(torch, npu, tensors, call["attributes"])
    npu.npu.synchronize()
    return {
        name + (".bfloat16" if tensor.dtype == torch.bfloat16 else ""): to_array(torch, tensor)
        for name, tensor in results.items()
        if tensor is not None
    }


def profiled(npu, folder, work):
    """Run ``work`` under the profiler and copy its kernel_details.csv into a folder."""
    with tempfile.TemporaryDirectory() as traces:
        handler = npu.profiler.tensorboard_trace_handler(traces)
        activities = [npu.profiler.ProfilerActivity.NPU]
        with npu.profiler.profile(activities=activities, on_trace_ready=handler):
            work()
        found = glob.glob(os.path.join(traces, "**", "kernel_details.csv"), recursive=True)
        if found:
            shutil.copy(found[0], os.path.join(folder, "kernel_details.csv"))


def described(error):
    """Return an exception as text; some have none of their own, such as MemoryError."""
    return ("%s: %s" % (type(error).__name__, error))[:MOST_CHARACTERS]


def run_call(torch, npu, call, folder, runs, profiles):
    """Run a call in both modes and write its results into a folder; return what was done."""
    arrays = {name: make_input(tensor) for name, tensor in call["inputs"].items()}
    modes = []
    for deterministic, times in ((False, runs), (True, max(runs - 1, 1))):
        torch.use_deterministic_algorithms(deterministic)
        mode = {"deterministic": torch.are_deterministic_algorithms_enabled(), "runs": []}
        modes.append(mode)
        place = os.path.join(folder, "on" if deterministic else "off")
        os.makedirs(place)
        try:
            for number in range(times):
                add_run(mode["runs"], compute(torch, npu, call, arrays), place, number)
            if profiles:
                profiled(npu, place, lambda: compute(torch, npu, call, arrays))
        except Exception as error:  # whatever a call raises is its result; the others still run
            mode["error"] = described(error)
    return {"inputs": {name: checksum(array) for name, array in arrays.items()}, "modes": modes}


def add_run(runs, results, place, number):
    """Write the results of a run; of equal runs only the first is stored, with a count."""
    digest = {name: checksum(array) for name, array in results.items()}
    for earlier in runs:
        if earlier["results"] == digest:
            earlier["count"] += 1
            return
    folder = os.path.join(place, "run%d" % number)
    os.makedirs(folder)
    for name, array in results.items():
        np.save(os.path.join(folder, name + ".npy"), array)
    runs.append({"folder": os.path.basename(folder), "count": 1, "results": digest})


def write_json(path, value):
    """Write a JSON file whole or not at all."""
    if os.path.islink(path + ".part"):
        os.remove(path + ".part")
    with open(path + ".part", "w") as file:
        json.dump(value, file, indent=1)
        file.write("\n")
    os.replace(path + ".part", path)


def identity():
    """Return the identity of the kit that this script belongs to."""
    with open(os.path.join(HERE, "kit.json")) as file:
        return json.load(file)["kit"]


def describe_device(torch, npu):
    """Return SoC and versions."""
    try:
        cann = npu.npu.utils.get_cann_version()
    except Exception as error:  # an older torch_npu, or a toolkit without the file
        cann = "unknown (%s)" % type(error).__name__
    return {
        "schema": SCHEMA,
        "kit": identity(),
        "soc": npu.npu.get_device_name(0),
        "cann": cann,
        "torch": torch.__version__,
        "torch_npu": npu.__version__,
        "numpy": np.__version__,
        "python": sys.version.split()[0],
    }


def refuse_links(path):
    """End where a link would have results written, or removed, elsewhere."""
    if os.path.islink(path):
        sys.exit("%s is a link: remove it, results are written into this folder" % path)


def running_call(path):
    """Return the number of the call in which an earlier start ended; None where that is unknown."""
    try:
        with open(path) as file:
            return json.load(file)["number"]
    except (OSError, ValueError, TypeError, KeyError):
        return None


def folder_of(call):
    """Return the folder of a call's results."""
    return os.path.join(HERE, "results", "%03d" % call["number"])


def is_done(call):
    """Return whether a call has results."""
    return os.path.exists(os.path.join(folder_of(call), "done.json"))


def chosen_calls(lines, operator):
    """Return lines and calls of an operator, or of all; ends when the kit has none of it."""
    calls = [(line, json.loads(line.decode("utf-8"))) for line in lines]
    chosen = [(line, call) for line, call in calls if operator in (None, call["operator"])]
    if operator is not None and not chosen:
        known = sorted({call["operator"] for _, call in calls})
        sys.exit("--only %s: no call of it; this kit has %s" % (operator, ", ".join(known)))
    return chosen


def count_left(calls):
    """Return the number of calls that have no results yet."""
    return sum(not is_done(call) for _, call in calls)


def runs_of_a_call(runs, profiles):
    """Return how often a call runs in both modes together."""
    return runs + max(runs - 1, 1) + 2 * profiles


def time_left(seconds_of_a_call, left):
    """Return about how long the other calls take."""
    if not left:
        return ""
    seconds = seconds_of_a_call * left
    if seconds < 120:
        return ", about %d s left" % max(seconds, 1)
    return ", about %d min left" % (seconds / 60)


def main():
    """Run the calls that have no results yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="OPERATOR", help="calls of this operator")
    parser.add_argument(
        "--runs", type=int, default=RUNS, help="runs of a call (default: %d)" % RUNS
    )
    parser.add_argument("--no-profile", action="store_true", help="do not use the profiler")
    arguments = parser.parse_args()
    try:
        import torch
        import torch_npu
    except ImportError as error:
        sys.exit("run_on_device.py needs torch and torch_npu on a machine with an NPU: %s" % error)
    if arguments.runs < 1:
        sys.exit("--runs %d: at least 1" % arguments.runs)
    with open(os.path.join(HERE, "calls.jsonl"), "rb") as file:
        lines = [line for line in file if line.strip()]
    calls = chosen_calls(lines, arguments.only)
    refuse_links(os.path.join(HERE, "results"))
    write_json(os.path.join(HERE, "device.json"), describe_device(torch, torch_npu))
    crashed = os.path.join(HERE, "running.json")
    refused = run = 0
    print(
        "%d calls, %d of them to run, %d times each"
        % (len(calls), count_left(calls), runs_of_a_call(arguments.runs, not arguments.no_profile)),
        flush=True,
    )
    began = time.monotonic()
    for line, call in calls:
        folder = folder_of(call)
        refuse_links(folder)
        if call["number"] == running_call(crashed):
            os.makedirs(folder, exist_ok=True)
            done = {"call": digest_of(line), "crashed": "the process ended in this call"}
            write_json(os.path.join(folder, "done.json"), done)
            os.remove(crashed)
        if is_done(call):
            continue
        shutil.rmtree(folder, ignore_errors=True)  # what was left half done
        os.makedirs(folder)
        write_json(crashed, {"number": call["number"]})
        try:
            done = run_call(
                torch, torch_npu, call, folder, arguments.runs, not arguments.no_profile
            )
        except KeyboardInterrupt:
            os.remove(crashed)
            sys.exit(
                "stopped at call %d of %d; start again to go on" % (call["number"], len(lines))
            )
        except Exception as error:  # before or after the runs: no memory for inputs, a full disk
            done = {"crashed": described(error)}
        write_json(os.path.join(folder, "done.json"), dict(done, call=digest_of(line)))
        os.remove(crashed)
        errors = [mode["error"] for mode in done.get("modes", ()) if "error" in mode]
        refused += bool(errors or "crashed" in done)
        outcome = ""
        if errors:
            outcome = ": refused"
        elif "crashed" in done:
            outcome = ": failed"
        run += 1
        after = time_left((time.monotonic() - began) / run, count_left(calls))
        print(
            "%d of %d %s%s%s" % (call["number"], len(lines), call["operator"], outcome, after),
            flush=True,
        )
    print(
        "done: %d calls, %d with errors; results/ and device.json are for npu-sim kit --check"
        % (len(calls), refused)
    )


if __name__ == "__main__":
    main()
