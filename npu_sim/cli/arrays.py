"""Typed arguments of operators with arrays for tensors: from files, or generated from shapes."""

from typing import Any

from npu_sim.cores import Profile
from npu_sim.files.tensors import read_tensor
from npu_sim.framework.target import Limits, Order, Target
from npu_sim.operators.loading import load_operator
from npu_sim.operators.shared.generate import with_data


def typed_arrays(
    operator: str,
    typed: dict[str, Any],
    profile: Profile,
    limits: Limits = "documented",
    seed: int = 0,
) -> dict[str, Any]:
    """Return the arguments with arrays for tensors: read from files, or generated from shapes.

    Data is generated only for a call that is not refused.

    Raises UsageError when a file cannot be read; AclnnError with the product's status when the call
    is refused.
    """
    return with_data(
        load_operator(operator), typed, Target(profile, order=Order(seed=seed), limits=limits)
    )


def read_arrays(operator: str, typed: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with arrays for tensors, outputs under the names of the results.

    Raises UsageError when a tensor is not a file, or a file cannot be read.
    """
    declared = load_operator(operator)
    results = {output.name: output.output for output in declared.outputs}
    return {
        results.get(name, name): read_tensor(results.get(name, name), value)
        if name in declared.tensor_names
        else value
        for name, value in typed.items()
    }
