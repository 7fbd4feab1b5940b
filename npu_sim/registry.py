"""The operators, one line each: adding an operator means its own files and one line here.

This module imports nothing of the package, so every layer may read it.
"""

from typing import NamedTuple


class OperatorEntry(NamedTuple):
    """Names of one operator.

    Attributes
    ----------
    name
        Name of the operator here: the module name in ``ops``, ``tiling`` and ``kernels``, and the Python function.
    title
        Name in the product documents, without the ``aclnn`` prefix.
    kernels
        Names of the vendor's kernels whose raw planners :func:`npu_sim.tiling.plan_kernel` reproduces.
    """

    name: str
    title: str
    kernels: tuple[str, ...]


OPERATORS: tuple[OperatorEntry, ...] = (
    OperatorEntry("embedding_dense_backward", "EmbeddingDenseBackward", ("embedding_dense_grad_v2",)),
    OperatorEntry("conv_tbc_backward", "ConvTbcBackward", ("conv_tbc_grad_weight_deterministic",)),
    OperatorEntry("rms_norm_grad", "RmsNormGrad", ("rms_norm_grad",)),
    OperatorEntry("cross_entropy_loss_grad", "CrossEntropyLossGrad", ("cross_entropy_loss_grad",)),
    OperatorEntry("moe_token_permute_grad", "MoeTokenPermuteGrad", ("moe_token_permute_grad",)),
)

OPERATOR_NAMES: tuple[str, ...] = tuple(entry.name for entry in OPERATORS)


def find_operator(name: str) -> OperatorEntry | None:
    """Return the entry of an operator by its name here or in the product documents; None when there is none."""
    wanted = name.removeprefix("aclnn").replace("-", "_").lower()
    for entry in OPERATORS:
        if wanted in (entry.name, entry.title.lower()):
            return entry
    return None


def find_kernel(kernel: str) -> OperatorEntry | None:
    """Return the operator whose vendor kernel has this name; None when there is none."""
    for entry in OPERATORS:
        if kernel in entry.kernels:
            return entry
    return None
