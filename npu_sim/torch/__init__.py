"""The simulator for PyTorch tensors on the CPU, bfloat16 included, without copies where memory can be shared.

- The five operators on tensors: :func:`rms_norm_grad` ...
- Differentiable functions whose backward is the simulator: :func:`embedding`, :func:`conv_tbc`, :func:`rms_norm`,
  :func:`cross_entropy`, :func:`moe_token_permute`. A model built of them is trained "as on an A2"::

      with npu_sim.torch.use("atlas_a2", deterministic=True):
          loss = model(inputs)
          loss.backward()

- Names of ``torch_npu`` with their forward: :func:`npu_rms_norm`, :func:`npu_moe_token_permute`, :func:`npu_cross_entropy_loss`.

PyTorch is optional: the extra ``torch`` of the package installs it.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError("npu_sim.torch needs PyTorch: pip install 'npu_sim[torch]'") from error

from npu_sim.settings import device as use
from npu_sim.settings import set_device
from npu_sim.torch.differentiable import conv_tbc, cross_entropy, embedding, moe_token_permute, rms_norm
from npu_sim.torch.npu import npu_cross_entropy_loss, npu_moe_token_permute, npu_rms_norm
from npu_sim.torch.operators import (
    conv_tbc_backward,
    cross_entropy_loss_grad,
    embedding_dense_backward,
    moe_token_permute_grad,
    rms_norm_grad,
)

__all__ = [
    "conv_tbc",
    "conv_tbc_backward",
    "cross_entropy",
    "cross_entropy_loss_grad",
    "embedding",
    "embedding_dense_backward",
    "moe_token_permute",
    "moe_token_permute_grad",
    "npu_cross_entropy_loss",
    "npu_moe_token_permute",
    "npu_rms_norm",
    "rms_norm",
    "rms_norm_grad",
    "set_device",
    "use",
]
