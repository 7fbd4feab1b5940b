"""The simulator for PyTorch tensors on the CPU, bfloat16 included, without copies where memory can be shared.

- The operators on tensors, under their names here: ``rms_norm_grad`` ...
- Differentiable functions whose backward is the simulator, under the names PyTorch has for them: ``embedding``, ``cross_entropy`` ...
  A model built of them is trained "as on an A2"::

      with npu_sim.torch.use("atlas_a2", deterministic=True):
          loss = model(inputs)
          loss.backward()

- Names of ``torch_npu`` with their forward: ``npu_rms_norm`` ...

PyTorch is optional: the extra ``torch`` of the package installs it.
"""

from npu_sim.language import Text

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError("npu_sim.torch needs PyTorch: pip install 'npu_sim[torch]'") from error

from typing import Any

from npu_sim.registry import all_operators, find_operator
from npu_sim.settings import device as use
from npu_sim.settings import set_device
from npu_sim.torch.differentiable import differentiable_functions
from npu_sim.torch.library import define_all
from npu_sim.torch.operators import operator_function
from npu_sim.torch.recording import record

_differentiable = differentiable_functions()
define_all()
globals().update(_differentiable)

__all__ = [*_differentiable, "record", "set_device", "use"]


def __getattr__(name: str) -> Any:
    """Make the function of an operator when it is first used."""
    entry = None if name.startswith("_") else find_operator(name)
    if entry is None or entry.name != name:
        raise AttributeError(
            Text("module 'npu_sim.torch' has no attribute {name}", name=repr(name))
        )
    return operator_function(name)


def __dir__() -> list[str]:
    """List the operators too."""
    return sorted({*globals(), *(entry.name for entry in all_operators())})
