"""Tensors as arrays and back, sharing memory; bfloat16 goes through its bit patterns, which NumPy and PyTorch both know."""

from typing import Any

import numpy as np
import torch

from npu_sim.language import Text
from npu_sim.numbers.arrays import bfloat16

Array = np.ndarray[Any, Any]


def tensor_as_array(tensor: torch.Tensor) -> Array:
    """Return a CPU tensor's memory as an array of the same shape and strides; writable.

    Raises
    ------
    TypeError
        For a tensor on another device, or a sparse one.
    """
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise TypeError(
            Text(
                "the simulator takes dense CPU tensors, not {layout} on {device}: use tensor.cpu()",
                layout=tensor.layout,
                device=tensor.device,
            )
        )
    plain = tensor.detach()
    if plain.dtype == torch.bfloat16:
        bits: Array = plain.view(torch.int16).numpy()
        return bits.view(bfloat16())
    array: Array = plain.numpy()
    return array


def array_as_tensor(array: Array) -> torch.Tensor:
    """Return an array's memory as a tensor."""
    if array.dtype == bfloat16():
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def torch_dtype(name: str) -> torch.dtype:
    """Return PyTorch's dtype of a canonical name."""
    dtype: torch.dtype = getattr(torch, name)
    return dtype
