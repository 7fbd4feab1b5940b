"""What a model asks of the device: the calls of a PyTorch program on the CPU or on the meta device, in the form ``preflight`` reads.

:mod:`npu_sim.torch.recording.recorder` watches; which functions, modules and kernels stand for an operator is said in a file of the
operator's name.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from npu_sim.torch.recording.calls import Recording
from npu_sim.torch.recording.recorder import Recorder
from npu_sim.torch.recording.stand_in import torch_npu_stand_in

__all__ = ["Recording", "record"]


@contextmanager
def record(path: str | Path | None = None) -> Iterator[Recording]:
    """Record the calls of this package's operators that the code in the block makes, forward and backward; no device is needed.

    Models keep computing as they do without it, on the CPU or on the meta device. Seen are functions (``F.embedding``,
    ``F.cross_entropy``, ``F.rms_norm``, ``torch.conv_tbc`` ...), modules of model libraries that compute such a function by hand
    (``LlamaRMSNorm``, experts behind a top-k router), and names of ``torch_npu``, which the block can import. Kernels that none of these
    account for are counted by name.

    Parameters
    ----------
    path
        File for the calls, one JSON object a line, written when the block ends without an exception; None writes none.

    Yields
    ------
    Recording
        The calls, complete when the block has ended.
    """
    recorder = Recorder()
    with torch_npu_stand_in(), recorder.watching():
        yield recorder.recording
    if path is not None:
        recorder.recording.write(path)
