"""Types of the package; written by ci/signatures.py from the declarations of the operators."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, SupportsIndex, Unpack, overload

from numpy.typing import NDArray

from npu_sim import aclnn, torch as torch
from npu_sim.framework.execution import Prepared
from npu_sim.framework.target import CoreOrder, Limits
from npu_sim.questions.compare import Comparison
from npu_sim.questions.explain import Explanation
from npu_sim.questions.limits import LimitTable
from npu_sim.studies import functions as study
from npu_sim.framework.signatures import Array, EmbeddingDenseBackwardDescribed, EmbeddingDenseBackwardComputed, EmbeddingDenseBackwardNatural, ConvTbcBackwardDescribed, ConvTbcBackwardComputed, ConvTbcBackwardNatural, RmsNormDescribed, RmsNormComputed, RmsNormNatural, RmsNormGradDescribed, RmsNormGradComputed, RmsNormGradNatural, CrossEntropyLossGradDescribed, CrossEntropyLossGradComputed, CrossEntropyLossGradNatural, MoeTokenPermuteDescribed, MoeTokenPermuteComputed, MoeTokenPermuteNatural, MoeTokenPermuteGradDescribed, MoeTokenPermuteGradComputed, MoeTokenPermuteGradNatural, MoeTokenUnpermuteDescribed, MoeTokenUnpermuteComputed, MoeTokenUnpermuteNatural, MoeTokenUnpermuteGradDescribed, MoeTokenUnpermuteGradComputed, MoeTokenUnpermuteGradNatural, SwiGluDescribed, SwiGluComputed, SwiGluNatural, SwiGluGradDescribed, SwiGluGradComputed, SwiGluGradNatural, RotaryPositionEmbeddingDescribed, RotaryPositionEmbeddingComputed, RotaryPositionEmbeddingNatural, RotaryPositionEmbeddingGradDescribed, RotaryPositionEmbeddingGradComputed, RotaryPositionEmbeddingGradNatural, ApplyAdamWV2Described, ApplyAdamWV2Computed, ApplyAdamWV2Natural
from npu_sim.status import AclnnError as AclnnError
from npu_sim.status import NpuSimError as NpuSimError
from npu_sim.framework.execution import OrderMask as OrderMask
from npu_sim.plans.model import Plan as Plan
from npu_sim.cores import Profile as Profile
from npu_sim.framework.execution import Result as Result
from npu_sim.status import Status as Status
from npu_sim.numbers.formats import TensorSpec as TensorSpec
from npu_sim.status import UsageError as UsageError
from npu_sim.device_kit.check import check_kit as check_kit
from npu_sim.questions.measured_profile import compare_profiles as compare_profiles
from npu_sim.tiling import decode_tiling as decode_tiling
from npu_sim.failures.diagnosis import diagnose as diagnose
from npu_sim.device_kit.folder import kit as kit
from npu_sim.cores import load_profile as load_profile
from npu_sim.functions import model as model
from npu_sim.functions import preflight as preflight
from npu_sim.functions import profile as profile
from npu_sim.dumps.reading import read_dump as read_dump
from npu_sim.questions.measured_profile import read_profile as read_profile
from npu_sim.framework.registration import register as register
from npu_sim.framework.registration import register_file as register_file
from npu_sim.sweeps.runner import sweep as sweep
from npu_sim.sweeps.runner import sweep_to as sweep_to
from npu_sim.functions import timeline as timeline
from npu_sim.verdicts.verify import verify as verify
from npu_sim.functions import workspace as workspace

__version__: str
__all__: list[str]

@overload
def compare(
    operator: Literal["embedding_dense_backward", "EmbeddingDenseBackward", "aclnnEmbeddingDenseBackward"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[EmbeddingDenseBackwardDescribed]
) -> Comparison: ...

@overload
def compare(
    operator: Literal["conv_tbc_backward", "ConvTbcBackward", "aclnnConvTbcBackward"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[ConvTbcBackwardDescribed]
) -> Comparison: ...

@overload
def compare(
    operator: Literal["rms_norm", "RmsNorm", "aclnnRmsNorm"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[RmsNormDescribed]
) -> Comparison: ...

@overload
def compare(
    operator: Literal["rms_norm_grad", "RmsNormGrad", "aclnnRmsNormGrad"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[RmsNormGradDescribed]
) -> Comparison: ...

@overload
def compare(
    operator: Literal["cross_entropy_loss_grad", "CrossEntropyLossGrad", "aclnnCrossEntropyLossGrad"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[CrossEntropyLossGradDescribed]
) -> Comparison: ...

@overload
def compare(
    operator: Literal["moe_token_permute", "MoeTokenPermute", "aclnnMoeTokenPermute"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenPermuteDescribed]
) -> Comparison: ...

@overload
def compare(
    operator: Literal["moe_token_permute_grad", "MoeTokenPermuteGrad", "aclnnMoeTokenPermuteGrad"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenPermuteGradDescribed]
) -> Comparison: ...

@overload
def compare(
    operator: Literal["moe_token_unpermute", "MoeTokenUnpermute", "aclnnMoeTokenUnpermute"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenUnpermuteDescribed]
) -> Comparison: ...

@overload
def compare(
    operator: Literal["moe_token_unpermute_grad", "MoeTokenUnpermuteGrad", "aclnnMoeTokenUnpermuteGrad"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenUnpermuteGradDescribed]
) -> Comparison: ...

@overload
def compare(
    operator: Literal["swi_glu", "SwiGlu", "aclnnSwiGlu"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[SwiGluDescribed]
) -> Comparison: ...

@overload
def compare(
    operator: Literal["swi_glu_grad", "SwiGluGrad", "aclnnSwiGluGrad"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[SwiGluGradDescribed]
) -> Comparison: ...

@overload
def compare(
    operator: Literal["rotary_position_embedding", "RotaryPositionEmbedding", "aclnnRotaryPositionEmbedding"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[RotaryPositionEmbeddingDescribed]
) -> Comparison: ...

@overload
def compare(
    operator: Literal["rotary_position_embedding_grad", "RotaryPositionEmbeddingGrad", "aclnnRotaryPositionEmbeddingGrad"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[RotaryPositionEmbeddingGradDescribed]
) -> Comparison: ...

@overload
def compare(
    operator: Literal["apply_adam_w_v2", "ApplyAdamWV2", "aclnnApplyAdamWV2"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[ApplyAdamWV2Described]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["embedding_dense_backward", "EmbeddingDenseBackward", "aclnnEmbeddingDenseBackward"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[EmbeddingDenseBackwardDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["conv_tbc_backward", "ConvTbcBackward", "aclnnConvTbcBackward"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[ConvTbcBackwardDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["rms_norm", "RmsNorm", "aclnnRmsNorm"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[RmsNormDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["rms_norm_grad", "RmsNormGrad", "aclnnRmsNormGrad"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[RmsNormGradDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["cross_entropy_loss_grad", "CrossEntropyLossGrad", "aclnnCrossEntropyLossGrad"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[CrossEntropyLossGradDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["moe_token_permute", "MoeTokenPermute", "aclnnMoeTokenPermute"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenPermuteDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["moe_token_permute_grad", "MoeTokenPermuteGrad", "aclnnMoeTokenPermuteGrad"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenPermuteGradDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["moe_token_unpermute", "MoeTokenUnpermute", "aclnnMoeTokenUnpermute"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenUnpermuteDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["moe_token_unpermute_grad", "MoeTokenUnpermuteGrad", "aclnnMoeTokenUnpermuteGrad"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenUnpermuteGradDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["swi_glu", "SwiGlu", "aclnnSwiGlu"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[SwiGluDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["swi_glu_grad", "SwiGluGrad", "aclnnSwiGluGrad"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[SwiGluGradDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["rotary_position_embedding", "RotaryPositionEmbedding", "aclnnRotaryPositionEmbedding"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[RotaryPositionEmbeddingDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["rotary_position_embedding_grad", "RotaryPositionEmbeddingGrad", "aclnnRotaryPositionEmbeddingGrad"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[RotaryPositionEmbeddingGradDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["apply_adam_w_v2", "ApplyAdamWV2", "aclnnApplyAdamWV2"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[ApplyAdamWV2Described]
) -> Comparison: ...

@overload
def explain(
    operator: Literal["embedding_dense_backward", "EmbeddingDenseBackward", "aclnnEmbeddingDenseBackward"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[EmbeddingDenseBackwardDescribed]
) -> Explanation: ...

@overload
def explain(
    operator: Literal["conv_tbc_backward", "ConvTbcBackward", "aclnnConvTbcBackward"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[ConvTbcBackwardDescribed]
) -> Explanation: ...

@overload
def explain(
    operator: Literal["rms_norm", "RmsNorm", "aclnnRmsNorm"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[RmsNormDescribed]
) -> Explanation: ...

@overload
def explain(
    operator: Literal["rms_norm_grad", "RmsNormGrad", "aclnnRmsNormGrad"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[RmsNormGradDescribed]
) -> Explanation: ...

@overload
def explain(
    operator: Literal["cross_entropy_loss_grad", "CrossEntropyLossGrad", "aclnnCrossEntropyLossGrad"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[CrossEntropyLossGradDescribed]
) -> Explanation: ...

@overload
def explain(
    operator: Literal["moe_token_permute", "MoeTokenPermute", "aclnnMoeTokenPermute"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenPermuteDescribed]
) -> Explanation: ...

@overload
def explain(
    operator: Literal["moe_token_permute_grad", "MoeTokenPermuteGrad", "aclnnMoeTokenPermuteGrad"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenPermuteGradDescribed]
) -> Explanation: ...

@overload
def explain(
    operator: Literal["moe_token_unpermute", "MoeTokenUnpermute", "aclnnMoeTokenUnpermute"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenUnpermuteDescribed]
) -> Explanation: ...

@overload
def explain(
    operator: Literal["moe_token_unpermute_grad", "MoeTokenUnpermuteGrad", "aclnnMoeTokenUnpermuteGrad"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenUnpermuteGradDescribed]
) -> Explanation: ...

@overload
def explain(
    operator: Literal["swi_glu", "SwiGlu", "aclnnSwiGlu"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[SwiGluDescribed]
) -> Explanation: ...

@overload
def explain(
    operator: Literal["swi_glu_grad", "SwiGluGrad", "aclnnSwiGluGrad"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[SwiGluGradDescribed]
) -> Explanation: ...

@overload
def explain(
    operator: Literal["rotary_position_embedding", "RotaryPositionEmbedding", "aclnnRotaryPositionEmbedding"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[RotaryPositionEmbeddingDescribed]
) -> Explanation: ...

@overload
def explain(
    operator: Literal["rotary_position_embedding_grad", "RotaryPositionEmbeddingGrad", "aclnnRotaryPositionEmbeddingGrad"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[RotaryPositionEmbeddingGradDescribed]
) -> Explanation: ...

@overload
def explain(
    operator: Literal["apply_adam_w_v2", "ApplyAdamWV2", "aclnnApplyAdamWV2"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[ApplyAdamWV2Described]
) -> Explanation: ...

@overload
def limits(
    operator: Literal["embedding_dense_backward", "EmbeddingDenseBackward", "aclnnEmbeddingDenseBackward"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., deterministic: bool = ..., **arguments: Unpack[EmbeddingDenseBackwardNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["conv_tbc_backward", "ConvTbcBackward", "aclnnConvTbcBackward"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., deterministic: bool = ..., **arguments: Unpack[ConvTbcBackwardNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["rms_norm", "RmsNorm", "aclnnRmsNorm"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., deterministic: bool = ..., **arguments: Unpack[RmsNormNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["rms_norm_grad", "RmsNormGrad", "aclnnRmsNormGrad"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., deterministic: bool = ..., **arguments: Unpack[RmsNormGradNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["cross_entropy_loss_grad", "CrossEntropyLossGrad", "aclnnCrossEntropyLossGrad"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., deterministic: bool = ..., **arguments: Unpack[CrossEntropyLossGradNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["moe_token_permute", "MoeTokenPermute", "aclnnMoeTokenPermute"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., deterministic: bool = ..., **arguments: Unpack[MoeTokenPermuteNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["moe_token_permute_grad", "MoeTokenPermuteGrad", "aclnnMoeTokenPermuteGrad"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., deterministic: bool = ..., **arguments: Unpack[MoeTokenPermuteGradNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["moe_token_unpermute", "MoeTokenUnpermute", "aclnnMoeTokenUnpermute"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., deterministic: bool = ..., **arguments: Unpack[MoeTokenUnpermuteNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["moe_token_unpermute_grad", "MoeTokenUnpermuteGrad", "aclnnMoeTokenUnpermuteGrad"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., deterministic: bool = ..., **arguments: Unpack[MoeTokenUnpermuteGradNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["swi_glu", "SwiGlu", "aclnnSwiGlu"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., deterministic: bool = ..., **arguments: Unpack[SwiGluNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["swi_glu_grad", "SwiGluGrad", "aclnnSwiGluGrad"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., deterministic: bool = ..., **arguments: Unpack[SwiGluGradNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["rotary_position_embedding", "RotaryPositionEmbedding", "aclnnRotaryPositionEmbedding"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., deterministic: bool = ..., **arguments: Unpack[RotaryPositionEmbeddingNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["rotary_position_embedding_grad", "RotaryPositionEmbeddingGrad", "aclnnRotaryPositionEmbeddingGrad"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., deterministic: bool = ..., **arguments: Unpack[RotaryPositionEmbeddingGradNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["apply_adam_w_v2", "ApplyAdamWV2", "aclnnApplyAdamWV2"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., deterministic: bool = ..., **arguments: Unpack[ApplyAdamWV2Natural]
) -> LimitTable: ...

@overload
def plan(
    operator: Literal["embedding_dense_backward", "EmbeddingDenseBackward", "aclnnEmbeddingDenseBackward"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[EmbeddingDenseBackwardDescribed]
) -> Plan: ...

@overload
def plan(
    operator: Literal["conv_tbc_backward", "ConvTbcBackward", "aclnnConvTbcBackward"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[ConvTbcBackwardDescribed]
) -> Plan: ...

@overload
def plan(
    operator: Literal["rms_norm", "RmsNorm", "aclnnRmsNorm"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[RmsNormDescribed]
) -> Plan: ...

@overload
def plan(
    operator: Literal["rms_norm_grad", "RmsNormGrad", "aclnnRmsNormGrad"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[RmsNormGradDescribed]
) -> Plan: ...

@overload
def plan(
    operator: Literal["cross_entropy_loss_grad", "CrossEntropyLossGrad", "aclnnCrossEntropyLossGrad"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[CrossEntropyLossGradDescribed]
) -> Plan: ...

@overload
def plan(
    operator: Literal["moe_token_permute", "MoeTokenPermute", "aclnnMoeTokenPermute"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenPermuteDescribed]
) -> Plan: ...

@overload
def plan(
    operator: Literal["moe_token_permute_grad", "MoeTokenPermuteGrad", "aclnnMoeTokenPermuteGrad"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenPermuteGradDescribed]
) -> Plan: ...

@overload
def plan(
    operator: Literal["moe_token_unpermute", "MoeTokenUnpermute", "aclnnMoeTokenUnpermute"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenUnpermuteDescribed]
) -> Plan: ...

@overload
def plan(
    operator: Literal["moe_token_unpermute_grad", "MoeTokenUnpermuteGrad", "aclnnMoeTokenUnpermuteGrad"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenUnpermuteGradDescribed]
) -> Plan: ...

@overload
def plan(
    operator: Literal["swi_glu", "SwiGlu", "aclnnSwiGlu"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[SwiGluDescribed]
) -> Plan: ...

@overload
def plan(
    operator: Literal["swi_glu_grad", "SwiGluGrad", "aclnnSwiGluGrad"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[SwiGluGradDescribed]
) -> Plan: ...

@overload
def plan(
    operator: Literal["rotary_position_embedding", "RotaryPositionEmbedding", "aclnnRotaryPositionEmbedding"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[RotaryPositionEmbeddingDescribed]
) -> Plan: ...

@overload
def plan(
    operator: Literal["rotary_position_embedding_grad", "RotaryPositionEmbeddingGrad", "aclnnRotaryPositionEmbeddingGrad"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[RotaryPositionEmbeddingGradDescribed]
) -> Plan: ...

@overload
def plan(
    operator: Literal["apply_adam_w_v2", "ApplyAdamWV2", "aclnnApplyAdamWV2"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[ApplyAdamWV2Described]
) -> Plan: ...

@overload
def prepare(
    operator: Literal["embedding_dense_backward", "EmbeddingDenseBackward", "aclnnEmbeddingDenseBackward"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[EmbeddingDenseBackwardDescribed]
) -> Prepared: ...

@overload
def prepare(
    operator: Literal["conv_tbc_backward", "ConvTbcBackward", "aclnnConvTbcBackward"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[ConvTbcBackwardDescribed]
) -> Prepared: ...

@overload
def prepare(
    operator: Literal["rms_norm", "RmsNorm", "aclnnRmsNorm"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[RmsNormDescribed]
) -> Prepared: ...

@overload
def prepare(
    operator: Literal["rms_norm_grad", "RmsNormGrad", "aclnnRmsNormGrad"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[RmsNormGradDescribed]
) -> Prepared: ...

@overload
def prepare(
    operator: Literal["cross_entropy_loss_grad", "CrossEntropyLossGrad", "aclnnCrossEntropyLossGrad"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[CrossEntropyLossGradDescribed]
) -> Prepared: ...

@overload
def prepare(
    operator: Literal["moe_token_permute", "MoeTokenPermute", "aclnnMoeTokenPermute"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenPermuteDescribed]
) -> Prepared: ...

@overload
def prepare(
    operator: Literal["moe_token_permute_grad", "MoeTokenPermuteGrad", "aclnnMoeTokenPermuteGrad"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenPermuteGradDescribed]
) -> Prepared: ...

@overload
def prepare(
    operator: Literal["moe_token_unpermute", "MoeTokenUnpermute", "aclnnMoeTokenUnpermute"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenUnpermuteDescribed]
) -> Prepared: ...

@overload
def prepare(
    operator: Literal["moe_token_unpermute_grad", "MoeTokenUnpermuteGrad", "aclnnMoeTokenUnpermuteGrad"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenUnpermuteGradDescribed]
) -> Prepared: ...

@overload
def prepare(
    operator: Literal["swi_glu", "SwiGlu", "aclnnSwiGlu"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[SwiGluDescribed]
) -> Prepared: ...

@overload
def prepare(
    operator: Literal["swi_glu_grad", "SwiGluGrad", "aclnnSwiGluGrad"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[SwiGluGradDescribed]
) -> Prepared: ...

@overload
def prepare(
    operator: Literal["rotary_position_embedding", "RotaryPositionEmbedding", "aclnnRotaryPositionEmbedding"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[RotaryPositionEmbeddingDescribed]
) -> Prepared: ...

@overload
def prepare(
    operator: Literal["rotary_position_embedding_grad", "RotaryPositionEmbeddingGrad", "aclnnRotaryPositionEmbeddingGrad"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[RotaryPositionEmbeddingGradDescribed]
) -> Prepared: ...

@overload
def prepare(
    operator: Literal["apply_adam_w_v2", "ApplyAdamWV2", "aclnnApplyAdamWV2"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[ApplyAdamWV2Described]
) -> Prepared: ...

@overload
def run(
    operator: Literal["embedding_dense_backward", "EmbeddingDenseBackward", "aclnnEmbeddingDenseBackward"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ..., **arguments: Unpack[EmbeddingDenseBackwardComputed]
) -> Result: ...

@overload
def run(
    operator: Literal["conv_tbc_backward", "ConvTbcBackward", "aclnnConvTbcBackward"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ..., **arguments: Unpack[ConvTbcBackwardComputed]
) -> Result: ...

@overload
def run(
    operator: Literal["rms_norm", "RmsNorm", "aclnnRmsNorm"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ..., **arguments: Unpack[RmsNormComputed]
) -> Result: ...

@overload
def run(
    operator: Literal["rms_norm_grad", "RmsNormGrad", "aclnnRmsNormGrad"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ..., **arguments: Unpack[RmsNormGradComputed]
) -> Result: ...

@overload
def run(
    operator: Literal["cross_entropy_loss_grad", "CrossEntropyLossGrad", "aclnnCrossEntropyLossGrad"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ..., **arguments: Unpack[CrossEntropyLossGradComputed]
) -> Result: ...

@overload
def run(
    operator: Literal["moe_token_permute", "MoeTokenPermute", "aclnnMoeTokenPermute"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ..., **arguments: Unpack[MoeTokenPermuteComputed]
) -> Result: ...

@overload
def run(
    operator: Literal["moe_token_permute_grad", "MoeTokenPermuteGrad", "aclnnMoeTokenPermuteGrad"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ..., **arguments: Unpack[MoeTokenPermuteGradComputed]
) -> Result: ...

@overload
def run(
    operator: Literal["moe_token_unpermute", "MoeTokenUnpermute", "aclnnMoeTokenUnpermute"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ..., **arguments: Unpack[MoeTokenUnpermuteComputed]
) -> Result: ...

@overload
def run(
    operator: Literal["moe_token_unpermute_grad", "MoeTokenUnpermuteGrad", "aclnnMoeTokenUnpermuteGrad"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ..., **arguments: Unpack[MoeTokenUnpermuteGradComputed]
) -> Result: ...

@overload
def run(
    operator: Literal["swi_glu", "SwiGlu", "aclnnSwiGlu"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ..., **arguments: Unpack[SwiGluComputed]
) -> Result: ...

@overload
def run(
    operator: Literal["swi_glu_grad", "SwiGluGrad", "aclnnSwiGluGrad"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ..., **arguments: Unpack[SwiGluGradComputed]
) -> Result: ...

@overload
def run(
    operator: Literal["rotary_position_embedding", "RotaryPositionEmbedding", "aclnnRotaryPositionEmbedding"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ..., **arguments: Unpack[RotaryPositionEmbeddingComputed]
) -> Result: ...

@overload
def run(
    operator: Literal["rotary_position_embedding_grad", "RotaryPositionEmbeddingGrad", "aclnnRotaryPositionEmbeddingGrad"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ..., **arguments: Unpack[RotaryPositionEmbeddingGradComputed]
) -> Result: ...

@overload
def run(
    operator: Literal["apply_adam_w_v2", "ApplyAdamWV2", "aclnnApplyAdamWV2"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ..., **arguments: Unpack[ApplyAdamWV2Computed]
) -> Result: ...

def embedding_dense_backward(
    grad: Array, indices: Array, num_weights: SupportsIndex, padding_idx: SupportsIndex = ..., scale_grad_by_freq: bool = ...,
    *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ...,
) -> NDArray[Any]: ...

def conv_tbc_backward(
    grad_output: Array, input: Array, weight: Array, bias: Array, pad: SupportsIndex = ..., cube_math_type: SupportsIndex = ...,
    *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ...,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]: ...

def rms_norm(
    x: Array, gamma: Array, epsilon: float = ...,
    *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ...,
) -> tuple[NDArray[Any], NDArray[Any]]: ...

def rms_norm_grad(
    dy: Array, x: Array, rstd: Array, gamma: Array,
    *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ...,
) -> tuple[NDArray[Any], NDArray[Any]]: ...

def cross_entropy_loss_grad(
    grad_loss: Array, log_prob: Array, target: Array, weight: Array | None = ..., reduction: Literal["none", "mean", "sum"] = ..., ignore_index: SupportsIndex = ..., label_smoothing: float = ..., lse_square_scale_for_zloss: float = ..., grad_zloss: Array | None = ..., lse_for_zloss: Array | None = ...,
    *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ...,
) -> NDArray[Any]: ...

def moe_token_permute(
    tokens: Array, indices: Array, num_out_tokens: SupportsIndex = ..., padded_mode: bool = ...,
    *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ...,
) -> tuple[NDArray[Any], NDArray[Any]]: ...

def moe_token_permute_grad(
    permuted_output_grad: Array, sorted_indices: Array, num_topk: SupportsIndex, padded_mode: bool = ...,
    *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ...,
) -> NDArray[Any]: ...

def moe_token_unpermute(
    permuted_tokens: Array, sorted_indices: Array, probs: Array | None = ..., padded_mode: bool = ..., restore_shape: str | Sequence[int] | None = ...,
    *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ...,
) -> NDArray[Any]: ...

def moe_token_unpermute_grad(
    permuted_tokens: Array | None, unpermuted_tokens_grad: Array, sorted_indices: Array, probs: Array | None = ..., padded_mode: bool = ..., restore_shape: str | Sequence[int] | None = ...,
    *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ...,
) -> tuple[NDArray[Any], NDArray[Any] | None]: ...

def swi_glu(
    x: Array, dim: SupportsIndex = ...,
    *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ...,
) -> NDArray[Any]: ...

def swi_glu_grad(
    y_grad: Array, x: Array, dim: SupportsIndex = ...,
    *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ...,
) -> NDArray[Any]: ...

def rotary_position_embedding(
    x: Array, cos: Array, sin: Array, mode: SupportsIndex = ...,
    *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ...,
) -> NDArray[Any]: ...

def rotary_position_embedding_grad(
    dy: Array, cos: Array, sin: Array, x: Array | None = ..., mode: SupportsIndex = ...,
    *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ...,
) -> tuple[NDArray[Any], NDArray[Any] | None, NDArray[Any] | None]: ...

def apply_adam_w_v2(
    var: Array, m: Array, v: Array, grad: Array, step: Array, max_grad_norm: Array | None = ..., lr: float = ..., beta1: float = ..., beta2: float = ..., weight_decay: float = ..., eps: float = ..., amsgrad: bool = ..., maximize: bool = ...,
    *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ...,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any] | None]: ...
