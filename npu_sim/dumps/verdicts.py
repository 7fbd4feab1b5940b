"""Verdicts on the results of a dumped call whose tensors are all in the dump."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from npu_sim.dumps.calls import DumpedCall
from npu_sim.dumps.folder import DumpedTensor
from npu_sim.kernels.elementwise import narrow_array
from npu_sim.numbers.formats import canonical_dtype
from npu_sim.verdicts.answers import EQUAL, STATUSES, UNDECIDED, UNREACHABLE, OutputVerdict
from npu_sim.verdicts.judging import equal_bits
from npu_sim.verdicts.verify import verify


@dataclass(frozen=True)
class CallVerdicts:
    """Verdicts of one call: status by result, and alternatives that explain unreachable results."""

    statuses: dict[str, str]
    explanations: tuple[str, ...]


def verdicts_of(
    call: DumpedCall, target: dict[str, Any], timing: Collection[str]
) -> CallVerdicts | None:
    """Return the verdicts on the results of a call; None where a tensor has no file.

    - ``target``: product, SoC and release as for :func:`npu_sim.verify`; None tries all.
    - ``timing``: results that depend on timing without the determinism switch.

    Raises UsageError for a damaged tensor file, AclnnError for a call that no target accepts.
    """
    tensors = [*call.arguments.values(), *call.results.values()]
    if any(isinstance(value, DumpedTensor) and value.file is None for value in tensors):
        return None
    measured = {name: value.values() for name, value in call.results.items()}
    arguments: dict[str, Any] = target | measured
    for name, value in call.arguments.items():
        arguments[name] = value.values() if isinstance(value, DumpedTensor) else value
    answer = verify(call.operator, **arguments)
    statuses, explanations = dict[str, str](), list[str]()
    for name, verdict in answer.outputs.items():
        statuses[name] = _status(verdict, measured[name], name in timing)
        if statuses[name] == STATUSES[UNREACHABLE]:
            explanations += [one.alternative for one in verdict.explanations]
    return CallVerdicts(statuses, tuple(dict.fromkeys(explanations)))


def _status(verdict: OutputVerdict, measured: np.ndarray, depends_on_timing: bool) -> str:
    """Return the status of a result; autograd may have cast it to the dtype of the input.

    A cast result is compared with the cast result of the sequential order; the values of other
    orders are not searched.
    """
    if measured.dtype.kind in "iu" or measured.dtype.itemsize >= verdict.expected.dtype.itemsize:
        return verdict.status
    cast = narrow_array(verdict.expected.astype(np.float32), canonical_dtype(measured.dtype))
    if equal_bits(np.asarray(measured), cast).all():
        return STATUSES[EQUAL]
    return STATUSES[UNDECIDED if depends_on_timing else UNREACHABLE]
