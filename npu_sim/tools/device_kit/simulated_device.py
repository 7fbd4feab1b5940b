"""A device that npu_sim plays, as the module ``torch_npu``: ``python -m`` runs the script of a kit.

It runs in the folder of a kit, in a process of its own: it replaces kernels of PyTorch. Every call
is computed by :mod:`npu_sim.torch`, and the profiler writes the planned cores, with the lower bound
in place of a time.
"""

import csv
import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import npu_sim
import npu_sim.torch as simulated
from npu_sim.framework.target import Target, set_device
from npu_sim.operators import plan
from npu_sim.operators.timelines import is_timed, timeline
from npu_sim.plans.model import Plan
from npu_sim.status import AclnnError
from npu_sim.torch import library


def _module(name: str, **values: Any) -> Any:
    """Return a module with these names, in place of a real one."""
    module = ModuleType(name)
    vars(module).update(values)
    return module


# The switch of deterministic algorithms imports PyTorch's compiler, a third of the time of a run.
for _name in ("torch._inductor", "torch._inductor.config"):
    sys.modules[_name] = _module(_name, config=_module("config"))

__version__ = f"npu_sim {npu_sim.__version__}"
DEVICE: dict[str, str] = json.loads(Path("kit.json").read_text(encoding="utf-8"))
"""SoC and release of the kit in this folder."""
REFUSAL = "call aclnn{} failed, error code is {}"
"""What torch_npu raises where the product refuses a call."""
launched: list[Plan] = []
"""Plans of the calls since the profiler started."""
npu_sim_computes = library.compute


def compute(operator: str, target: Any, arguments: dict[str, Any], out: Any = None) -> Any:
    """Compute a call on the kit's device; raise what torch_npu raises where it is refused."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    target = set_device(soc=DEVICE["soc"], release=DEVICE["release"], deterministic=deterministic)
    try:
        launched.append(planned(operator, target, arguments))
        return npu_sim_computes(operator, target, arguments, out)
    except AclnnError as error:
        raise RuntimeError(REFUSAL.format(operator, int(error.status))) from None


def planned(operator: str, target: Target, arguments: dict[str, Any]) -> Plan:
    """Return the plan of a call of torch."""
    arrays: dict[str, Any] = {
        name: library.tensor_as_array(value) if isinstance(value, torch.Tensor) else value
        for name, value in arguments.items()
    }
    return plan(operator, product=target.profile, deterministic=target.deterministic, **arrays)


def embedding_dense_backward(
    grad: Any, indices: Any, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    """Replace PyTorch's own kernel."""
    return simulated.embedding_dense_backward(
        grad, indices, num_weights, padding_idx, scale_grad_by_freq
    )


def conv_tbc_backward(self: Any, input: Any, weight: Any, bias: Any, pad: int) -> Any:
    """Replace PyTorch's own kernel."""
    math_type = 1 if npu.conv.allow_hf32 else 0
    return simulated.conv_tbc_backward(self, input, weight, bias, pad, math_type)


class Profile:
    """The profiler: writes kernel_details.csv."""

    def __init__(self, activities: Any, on_trace_ready: str) -> None:
        self.folder = on_trace_ready

    def __enter__(self) -> None:
        launched.clear()

    def __exit__(self, *error: object) -> None:
        rows = [row_of(plan) for plan in launched if plan.kernel]
        if rows:
            with (Path(self.folder) / "kernel_details.csv").open("w", newline="") as file:
                csv.writer(file).writerows([COLUMNS, *rows])


COLUMNS = ("Name", "Type", "Duration(us)", "Block Num")


def row_of(made: Plan) -> tuple[object, ...]:
    """Return the row of the planned kernel, as long as its bound; 0 where it has none."""
    launches = timeline(made, made.profile, estimated=False).launches if is_timed(made) else ()
    us = next((launch.us for launch in launches if launch.kernel == made.kernel), 0.0)
    return made.kernel, made.kernel, repr(us), made.block_dim


library.compute = compute
aten = torch.library.Library("aten", "IMPL")
aten.impl("embedding_dense_backward", embedding_dense_backward, "CPU")
aten.impl("conv_tbc_backward", conv_tbc_backward, "CPU")
torch._fused_adamw_ = simulated.fused_adamw_
torch.Tensor.npu = torch.Tensor.clone
npu_rms_norm = simulated.npu_rms_norm
npu_add_rms_norm = simulated.npu_add_rms_norm
npu_cross_entropy_loss = simulated.npu_cross_entropy_loss
npu_moe_token_permute = simulated.npu_moe_token_permute
npu_moe_token_unpermute = simulated.npu_moe_token_unpermute
npu_rotary_mul = simulated.npu_rotary_mul
npu_swiglu = simulated.npu_swiglu
npu = _module(
    "npu",
    conv=_module("conv", allow_hf32=True),
    synchronize=lambda: None,
    get_device_name=lambda index: DEVICE["soc"],
    utils=_module("utils", get_cann_version=lambda: DEVICE["release"]),
)
_handler: Callable[[str], str] = str
profiler = _module(
    "profiler",
    profile=Profile,
    tensorboard_trace_handler=_handler,
    ProfilerActivity=_module("ProfilerActivity", NPU="NPU"),
)

if __name__ == "__main__":
    sys.modules["torch_npu"] = sys.modules["__main__"]
    runpy.run_path("run_on_device.py", run_name="__main__")
