"""A ``torch_npu`` that exists while a block is recorded: its names that this package knows, on tensors of any device."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from npu_sim.language import Text
from npu_sim.torch.differentiable import differentiable_functions

NAME = "torch_npu"


class _StandIn(ModuleType):
    """What a program sees as ``torch_npu``."""

    def __getattr__(self, name: str) -> Any:
        known = ", ".join(sorted(one for one in vars(self) if one.startswith("npu_")))
        raise AttributeError(
            Text(
                "{module}.{name} is not available while npu_sim records; available: {known}",
                module=NAME,
                name=name,
                known=known,
            )
        )


@contextmanager
def torch_npu_stand_in() -> Iterator[None]:
    """Let the block import ``torch_npu``; a real one that is already loaded stays."""
    if NAME in sys.modules:
        yield
        return
    module = _StandIn(NAME, "The names of torch_npu that npu_sim records.")
    vars(module).update(
        {
            name: function
            for name, function in differentiable_functions().items()
            if name.startswith("npu_")
        }
    )
    sys.modules[NAME] = module
    try:
        yield
    finally:
        del sys.modules[NAME]
