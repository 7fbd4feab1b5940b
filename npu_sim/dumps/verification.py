"""Verdicts on the results of a dumped call whose tensors are all in the dump."""

from typing import Any

from npu_sim.dumps.calls import DumpedCall
from npu_sim.dumps.folder import DumpedTensor
from npu_sim.verdicts.answers import Verification
from npu_sim.verdicts.verify import verify


def verify_call(call: DumpedCall, target: dict[str, Any]) -> Verification | None:
    """Return the verdicts on the results of a call; None where a tensor has no file.

    - ``target``: product, SoC and release as for :func:`npu_sim.verify`; None tries all.

    Raises UsageError for a damaged tensor file, AclnnError for a call that no target accepts.
    """
    tensors = [*call.arguments.values(), *call.results.values()]
    if any(isinstance(value, DumpedTensor) and value.file is None for value in tensors):
        return None
    arguments: dict[str, Any] = target | {
        name: value.values() if isinstance(value, DumpedTensor) else value
        for name, value in (*call.arguments.items(), *call.results.items())
    }
    return verify(call.operator, **arguments)
