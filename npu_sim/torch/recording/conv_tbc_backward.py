"""Calls of a temporal convolution, whose gradients ConvTbcBackward computes."""

import torch

from npu_sim.torch.recording.recorder import Span, spec_of


def _conv_tbc(
    span: Span,
    result: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    pad: int = 0,
) -> None:
    call = {"input": spec_of(input), "weight": spec_of(weight), "bias": spec_of(bias), "pad": pad}
    span.backward(
        result, "conv_tbc_backward", lambda gradient: {"grad_output": spec_of(gradient), **call}
    )


FUNCTIONS = {torch.conv_tbc: _conv_tbc}
KERNELS = {"aten::conv_tbc_backward": "conv_tbc"}
