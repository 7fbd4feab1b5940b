"""A stand-in for torch_npu that computes with npu_sim, and lies as NPU_SIM_LIE says.

Every call ends in :func:`npu_sim.torch.library.compute`, which is wrapped here.
"""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import torch

import npu_sim
import npu_sim.torch as simulated
from npu_sim.framework.target import set_device
from npu_sim.torch import library
from tests.measured import Row, write_csv

# The switch of deterministic algorithms imports PyTorch's compiler, a third of the time of a run.
sys.modules["torch._inductor"] = SimpleNamespace(config=SimpleNamespace())
sys.modules["torch._inductor.config"] = sys.modules["torch._inductor"].config

__version__ = "2.7.1"
LIE = os.environ.get("NPU_SIM_LIE", "")
SOC, RELEASE = os.environ["NPU_SIM_SOC"], os.environ["NPU_SIM_RELEASE"]
LIAR = "rms_norm"
"""Operator whose results are changed."""
COMPUTES_ON = {"other soc": "Ascend910B1"}.get(LIE, SOC)
launched = []
"""Plans of the calls since the profiler started."""
honest = library.compute


def compute(operator, target, arguments, out=None):
    """Compute a call on the device of the process, and change its results by the lie."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    target = set_device(soc=COMPUTES_ON, release=RELEASE, deterministic=deterministic)
    if operator == LIAR and LIE == "crashes" and not Path("crashed").exists():
        Path("crashed").touch()
        os._exit(1)
    arrays = {
        name: library.tensor_as_array(value) if isinstance(value, torch.Tensor) else value
        for name, value in arguments.items()
    }
    try:
        planned = npu_sim.plan(
            operator, product=target.profile, deterministic=deterministic, **arrays
        )
        launched.append(planned)
        if operator == LIAR and LIE == "refuses":
            raise RuntimeError("call aclnnRmsNorm failed, error code is 561002")
        results = honest(operator, target, arguments, out)
    except npu_sim.AclnnError as error:
        code = int(error.status)
        raise RuntimeError(f"call aclnn{operator} failed, error code is {code}") from None
    return tuple(map(changed, results)) if operator == LIAR else results


def changed(tensor):
    """Return a result as the lie changes it."""
    if tensor is None or not tensor.numel():
        return tensor
    tensor = tensor.clone()
    if LIE == "drops a row":
        tensor[-1] = 0
    if LIE == "rounds twice" and tensor.dtype == torch.float32:
        tensor = tensor.to(torch.bfloat16).to(torch.float32)
    if LIE == "other order" and tensor.dtype == torch.float32:
        tensor = torch.nextafter(tensor, torch.full_like(tensor, torch.inf))
    return tensor


library.compute = compute


def embedding_dense_backward(grad, indices, num_weights, padding_idx, scale_grad_by_freq):
    """Replace PyTorch's own kernel."""
    return simulated.embedding_dense_backward(
        grad, indices, num_weights, padding_idx, scale_grad_by_freq
    )


def conv_tbc_backward(self, input, weight, bias, pad):
    """Replace PyTorch's own kernel."""
    math_type = 1 if npu.conv.allow_hf32 else 0
    return simulated.conv_tbc_backward(self, input, weight, bias, pad, math_type)


aten = torch.library.Library("aten", "IMPL")
aten.impl("embedding_dense_backward", embedding_dense_backward, "CPU")
aten.impl("conv_tbc_backward", conv_tbc_backward, "CPU")
torch._fused_adamw_ = simulated.fused_adamw_


class Rotary(torch.autograd.Function):
    """npu_rotary_mul, which npu_sim.torch does not have; x goes to the gradient only if needed."""

    @staticmethod
    def forward(ctx, x, cos, sin, mode):
        """Compute y."""
        ctx.save_for_backward(x, cos, sin)
        ctx.mode = mode
        tensors = {"x": x, "cos": cos, "sin": sin, "mode": mode}
        return library.compute("rotary_position_embedding", None, tensors)[0]

    @staticmethod
    def backward(ctx, dy):
        """Compute the gradients."""
        x, cos, sin = ctx.saved_tensors
        tensors = {"dy": dy, "cos": cos, "sin": sin, "mode": ctx.mode}
        if ctx.needs_input_grad[1]:
            tensors["x"] = x
        return *library.compute("rotary_position_embedding_grad", None, tensors), None


def npu_rotary_mul(input, r1, r2, rotary_mode="half"):
    """Rotate input by the angles of r1 and r2."""
    return Rotary.apply(input, r1, r2, ("half", "interleave").index(rotary_mode))


npu_rms_norm = simulated.npu_rms_norm
npu_cross_entropy_loss = simulated.npu_cross_entropy_loss
npu_moe_token_permute = simulated.npu_moe_token_permute
npu_moe_token_unpermute = simulated.npu_moe_token_unpermute
npu_swiglu = simulated.npu_swiglu
torch.Tensor.npu = torch.Tensor.clone
npu = SimpleNamespace(
    conv=SimpleNamespace(allow_hf32=True),
    synchronize=lambda: None,
    get_device_name=lambda index: "Ascend910B4" if LIE == "other name" else SOC,
    utils=SimpleNamespace(get_cann_version=lambda: RELEASE),
)


class Profile:
    """The profiler: writes kernel_details.csv with the cores that were planned."""

    def __init__(self, activities, on_trace_ready):
        self.folder = on_trace_ready

    def __enter__(self):
        launched.clear()

    def __exit__(self, *error):
        cores = -1 if LIE == "one core fewer" else 0
        rows = [
            Row("Other" if LIE == "other kernel" else plan.kernel, 1e6, plan.block_dim + cores)
            for plan in launched
            if plan.kernel
        ]
        if rows:
            write_csv(Path(self.folder) / "kernel_details.csv", rows)


profiler = SimpleNamespace(
    profile=Profile,
    tensorboard_trace_handler=lambda folder: folder,
    ProfilerActivity=SimpleNamespace(NPU="NPU"),
)
