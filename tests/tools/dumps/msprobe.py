"""Dumps of our own making in msprobe's format, from calls that npu_sim computes.

As in real dumps, gradients of the inputs are those of the autograd node's differentiable inputs;
MindSpeed's functions have one place per tensor argument.
"""

import json
import zlib
from pathlib import Path

import numpy as np

import npu_sim
from tests.studies import calls

DTYPES = {"bfloat16": "torch.bfloat16", "float32": "torch.float32", "float16": "torch.float16"}


class Writer:
    """Writes ``dump.json`` and the tensor files of one step and rank."""

    def __init__(self, folder: Path, task: str = "tensor") -> None:
        self.folder, self.task, self.data = folder, task, {}
        (folder / "dump_tensor_data").mkdir(parents=True)

    def call(self, name, inputs, outputs, gradients=None, input_gradients=None, **keywords) -> None:
        """Add a forward entry, and a backward one if gradients of the outputs are given."""
        entry = f"{name}.forward"
        self.data[entry] = {
            "input_args": self.values(f"{entry}.input", inputs),
            "input_kwargs": {
                key: self.value(f"{entry}.kwargs.{key}", keywords[key]) for key in keywords
            },
            "output": self.values(f"{entry}.output", outputs),
        }
        if gradients is not None:
            entry = f"{name}.backward"
            self.data[entry] = {
                "input": self.values(f"{entry}.input", gradients),
                "output": self.values(f"{entry}.output", input_gradients),
            }

    def values(self, name, values):
        return [self.value(f"{name}.{place}", value) for place, value in enumerate(values)]

    def value(self, name, value):
        if not isinstance(value, np.ndarray):
            return None if value is None else {"type": type(value).__name__, "value": value}
        dtype = str(value.dtype)
        plain = value.astype(np.float64)
        described = {
            "type": "torch.Tensor",
            "dtype": DTYPES.get(dtype, f"torch.{dtype}"),
            "shape": list(value.shape),
            "Max": plain.max(),
            "Min": plain.min(),
            "Mean": plain.mean(),
            "Norm": np.sqrt((plain**2).sum()),
        }
        if self.task == "xor":
            data = np.ascontiguousarray(value).tobytes()
            words = np.frombuffer(data + bytes(-len(data) % 8), np.uint64)
            checksum = f"0x{int(np.bitwise_xor.reduce(words)):016x}"
            kept = ("type", "dtype", "shape")
            return {key: described[key] for key in kept} | {"md5": checksum}
        if self.task == "md5":
            described["md5"] = f"{zlib.crc32(np.ascontiguousarray(value).tobytes()):08x}"
        if self.task == "tensor":
            described["data_name"] = f"{name}.npy"
            # MindSpore's dumps have bfloat16 as float32.
            saved = value.astype(np.float32) if dtype == "bfloat16" else value
            np.save(self.folder / "dump_tensor_data" / f"{name}.npy", saved)
        return described

    def close(self) -> None:
        document = {"task": self.task, "level": "L1", "framework": "pytorch", "data": self.data}
        (self.folder / "dump.json").write_text(json.dumps(document), "utf-8")


def write_model(folder: Path, task: str = "tensor", seed: int = 0, **target) -> Writer:
    """Write a dump with a call of every function that npu_sim reads, in random core orders."""
    writer = Writer(folder, task)
    order = {"core_order": "random", "seed": seed, **target}

    def run(operator, call):
        return npu_sim.run(operator, **call, **order).outputs

    call = calls.embedding(900, 40, 40, used_weights=30)
    gradient = run("embedding_dense_backward", call)["grad_weight"]
    weight = np.ones(gradient.shape, call["grad"].dtype)
    writer.call(
        "Functional.embedding.0",
        (call["indices"], weight),
        (weight[call["indices"]],),
        (call["grad"],),
        (gradient,),
    )
    call = calls.rms_norm(300, 128, "fp32")
    forward = run("rms_norm", {"x": call["x"], "gamma": call["gamma"]})
    call["rstd"] = forward["rstd"]
    gradient = run("rms_norm_grad", call)
    writer.call(
        "NPU.npu_rms_norm.0",
        (call["x"], call["gamma"], 1e-6),
        (forward["y"], forward["rstd"]),
        (call["dy"], None),
        (gradient["dx"], gradient["dgamma"]),
    )
    call = calls.add_rms_norm(60, 300, "fp16")
    writer.call(
        "NPU.npu_add_rms_norm.0", (*call.values(), 1e-6), tuple(run("add_rms_norm", call).values())
    )
    call = calls.swi_glu_grad(20, 32, "bf16")
    writer.call(
        "NPU.npu_swiglu.0",
        (call["x"],),
        (run("swi_glu", {"x": call["x"]})["y"],),
        (call["y_grad"],),
        (run("swi_glu_grad", call)["x_grad"],),
    )
    call = calls.rotary_grad(20, 32, "bf16")
    turns = {name: call[name] for name in ("x", "cos", "sin")}
    gradient = run("rotary_position_embedding_grad", call)
    writer.call(
        "NPU.npu_rotary_mul.0",
        tuple(turns.values()),
        (run("rotary_position_embedding", turns)["y"],),
        (call["dy"],),
        tuple(gradient[name] for name in ("dx", "dcos", "dsin")),
    )
    call = calls.permutation(20, 4, 16, "bf16")
    forward = run("moe_token_permute", call)
    permuted, places = forward["permuted_tokens"], forward["sorted_indices"]
    gradient = {"permuted_output_grad": permuted, "sorted_indices": places, "num_topk": 4}
    writer.call(
        "NPU.npu_moe_token_permute.0",
        (call["tokens"], call["indices"]),
        (permuted, places),
        (permuted, None),
        (run("moe_token_permute_grad", gradient)["input_grad"],),
    )
    call = calls.unpermute_grad(20, 4, 16)
    tokens = {key: call[key] for key in ("permuted_tokens", "sorted_indices", "probs")}
    gradient = run("moe_token_unpermute_grad", call)
    writer.call(
        "MindSpeed.ops.npu_moe_token_unpermute.0",
        tuple(tokens.values()),
        (run("moe_token_unpermute", tokens)["unpermuted_tokens"],),
        (call["unpermuted_tokens_grad"],),
        (gradient["permuted_tokens_grad"], None, gradient["probs_grad"]),
    )
    call = calls.cross_entropy(20, 16, reduction="sum")
    logits = {"input": call["log_prob"], "target": call["target"], "reduction": "sum"}
    forward = run("cross_entropy_loss", logits)
    call["log_prob"] = forward["log_prob"]
    writer.call(
        "NPU.npu_cross_entropy_loss.0",
        (logits["input"], logits["target"]),
        (forward["loss"], forward["log_prob"], None, None),
        (call["grad_loss"], None, None, None),
        (run("cross_entropy_loss_grad", call)["x_grad"],),
        reduction="sum",
    )
    call = calls.conv(9, 2, 16, 16, 3, 1)
    gradient = run("conv_tbc_backward", call)
    writer.call(
        "Torch.conv_tbc.0",
        (call["input"], call["weight"], call["bias"], call.get("pad", 0)),
        (call["grad_output"],),
        (call["grad_output"],),
        tuple(gradient.values()),
    )
    writer.call("Torch.cos.0", (call["bias"],), (call["bias"],))
    writer.close()
    return writer
