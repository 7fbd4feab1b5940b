"""Recording of a PyTorch program's calls, on the CPU or the meta device, for ``preflight``.

:mod:`npu_sim.torch.recording.recorder` observes the program. A file lists the functions, modules
and kernels that correspond to an operator, or to a forward operator and its gradient; it has the
name of the gradient.
"""

import builtins
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
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
    ``torch.conv_tbc`` ...), code that computes RMS norms, cross entropies or the routing of tokens
    to experts by hand, and functions of ``torch_npu``, which the block can import. Threads that
    the block starts are recorded; forked processes that make calls are named. Other kernels are
    counted by name.

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
    file = None if path is None else Path(path).absolute()  # the block may change the directory
    recorder = Recorder()
    with _torch_npu_importable(), recorder.watching():
        yield recorder.recording
    if file is not None and not recorder.recording.forked:
        recorder.recording.write(file)


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
    """Make ``import torch_npu`` work in the block, unless the real one is installed.

    Only import statements find the replacement. It is not in ``sys.modules``, and
    ``importlib.util.find_spec`` returns None, so that libraries that look for an NPU find none.
    """
    if TORCH_NPU in sys.modules or find_spec(TORCH_NPU) is not None:
        yield
        return
    module = _TorchNpu(TORCH_NPU, "The names of torch_npu that npu_sim records.")
    functions = differentiable_functions().items()
    vars(module).update({name: value for name, value in functions if name.startswith("npu_")})
    import_module = builtins.__import__

    def import_or_replace(name: str, *arguments: Any, **options: Any) -> ModuleType:
        return module if name == TORCH_NPU else import_module(name, *arguments, **options)

    builtins.__import__ = import_or_replace
    try:
        yield
    finally:
        builtins.__import__ = import_module
