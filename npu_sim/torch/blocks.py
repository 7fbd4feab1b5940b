"""The block in which the functions of :mod:`npu_sim.torch` have a target."""

import warnings

from npu_sim.framework.target import device
from npu_sim.language import Text


class use(device):  # noqa: N801 (used like a function)
    """Like :class:`npu_sim.aclnn.device`, for the functions of :mod:`npu_sim.torch`.

    Warns
    -----
    UserWarning
        At the end of a block without one simulated call. A model that calls PyTorch's own functions
        runs as without the block: :func:`npu_sim.torch.emulate` replaces those.
    """

    def _end(self, used: bool) -> None:
        if not used:
            warnings.warn(
                Text(
                    "no call was simulated in this block: nothing in it calls a function of "
                    "npu_sim.torch or npu_sim.aclnn; npu_sim.torch.emulate replaces PyTorch's own"
                ),
                stacklevel=3,
            )
