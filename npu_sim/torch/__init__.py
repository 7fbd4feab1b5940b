"""The simulator for PyTorch tensors on the CPU, including bfloat16, sharing memory where possible.

- The operators on tensors, under the names they have in :mod:`npu_sim`: ``rms_norm_grad`` ...
- Differentiable functions with a simulated backward pass, under PyTorch's names: ``embedding``,
  ``cross_entropy`` ... A model whose code calls them runs these operators as an A2 does::

      with npu_sim.torch.use("atlas_a2", deterministic=True):
          loss = model(inputs)
          loss.backward()

  The target is that of one thread; ``use`` changes nothing in a model that calls none of them.

- ``emulate`` for a model as it is: what it computes of the operators is replaced in a block.

- ``AdamW``, an optimizer on ``fused_adamw_``.

- Functions of ``torch_npu``, forward and backward: ``npu_rms_norm`` ...

PyTorch is optional: the extra ``torch`` of the package installs it.
"""

from npu_sim.language import Text

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError("npu_sim.torch needs PyTorch: pip install 'npu_sim[torch]'") from error

from typing import Any

from npu_sim.framework.target import set_device
from npu_sim.registry import all_operators, find_operator
from npu_sim.torch.blocks import use
from npu_sim.torch.emulation import emulate
from npu_sim.torch.library import define_all, operator_function
from npu_sim.torch.operators import differentiable_functions
from npu_sim.torch.operators.apply_adam_w_v2 import fused_adamw_
from npu_sim.torch.optimizers import AdamW
from npu_sim.torch.recorder import record

_differentiable = differentiable_functions()
define_all()
globals().update(_differentiable)

__all__ = ["AdamW", *_differentiable, "emulate", "fused_adamw_", "record", "set_device", "use"]


def __getattr__(name: str) -> Any:
    """Create the function of an operator at its first use."""
    entry = None if name.startswith("_") else find_operator(name)
    if entry is None or entry.name != name:
        raise AttributeError(
            Text("module 'npu_sim.torch' has no attribute {name}", name=repr(name))
        )
    return operator_function(name)


def __dir__() -> list[str]:
    """Return all names, including the operators."""
    return sorted({*globals(), *(entry.name for entry in all_operators())})
