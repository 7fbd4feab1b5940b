"""Recording of a PyTorch program's calls, on the CPU or the meta device, for ``preflight``.

:mod:`npu_sim.torch.recording.recorder` observes the program. A file lists the functions, modules
and kernels that correspond to an operator, or to a forward operator and its gradient; it has the
name of the gradient.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from npu_sim.language import Text
from npu_sim.torch.differentiable import differentiable_functions
from npu_sim.torch.recording.calls import Recording
from npu_sim.torch.recording.recorder import Recorder

__all__ = ["Recording", "record"]

TORCH_NPU = "torch_npu"


@contextmanager
def record(path: str | Path | None = None) -> Iterator[Recording]:
    """Record the forward and backward calls of this package's operators in a block of code.

    No device is needed: models compute as usual, on the CPU or the meta device. The recorder
    recognises PyTorch functions (``F.embedding``, ``F.cross_entropy``, ``F.rms_norm``,
    ``torch.conv_tbc`` ...), modules of model libraries that compute such a function by hand
    (``LlamaRMSNorm``, experts behind a top-k router), and functions of ``torch_npu``, which the
    block can import. Other kernels are counted by name.

    Parameters
    ----------
    path
        JSON Lines file for the calls, written if the block ends without an exception; None writes
        no file.

    Yields
    ------
    Recording
        The calls, complete when the block has ended.
    """
    recorder = Recorder()
    with _torch_npu_importable(), recorder.watching():
        yield recorder.recording
    if path is not None:
        recorder.recording.write(path)


class _TorchNpu(ModuleType):
    """Replacement for ``torch_npu`` with the functions of this package."""

    def __getattr__(self, name: str) -> Any:
        known = ", ".join(sorted(key for key in vars(self) if key.startswith("npu_")))
        raise AttributeError(
            Text(
                "{module}.{name} is not available while npu_sim records; available: {known}",
                module=TORCH_NPU,
                name=name,
                known=known,
            )
        )


@contextmanager
def _torch_npu_importable() -> Iterator[None]:
    """Make ``import torch_npu`` work in the block; a real one that is already loaded stays."""
    if TORCH_NPU in sys.modules:
        yield
        return
    module = _TorchNpu(TORCH_NPU, "The names of torch_npu that npu_sim records.")
    functions = differentiable_functions().items()
    vars(module).update({name: value for name, value in functions if name.startswith("npu_")})
    sys.modules[TORCH_NPU] = module
    try:
        yield
    finally:
        del sys.modules[TORCH_NPU]
