"""Function of torch_npu whose calls are RmsNorm, and whose gradients are RmsNormGrad, in dumps."""

from npu_sim.operators.shared.study import Function

RMS_NORM = Function(("npu_rms_norm", "RmsNorm"), ("x", "gamma", "epsilon"), ("x", "gamma"))
