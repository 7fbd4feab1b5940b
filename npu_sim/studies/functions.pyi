"""Types of the studies; written by ci/signatures.py from the declarations of the operators."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, Unpack, overload

from npu_sim.cores import Profile
from npu_sim.framework.target import CoreOrder, Limits
from npu_sim.studies.certificate import Certificate
from npu_sim.studies.determinism import DeterminismStudy
from npu_sim.studies.invariance import InvarianceStudy
from npu_sim.studies.precision import PrecisionStudy

from npu_sim.framework.signatures import EmbeddingDenseBackwardComputed, ConvTbcBackwardComputed, RmsNormComputed, RmsNormGradComputed, CrossEntropyLossGradComputed, MoeTokenPermuteComputed, MoeTokenPermuteGradComputed, MoeTokenUnpermuteComputed, MoeTokenUnpermuteGradComputed, SwiGluComputed, SwiGluGradComputed, RotaryPositionEmbeddingComputed, RotaryPositionEmbeddingGradComputed, ApplyAdamWV2Computed

__all__: list[str]

@overload
def certificate(
    operator: Literal["embedding_dense_backward", "EmbeddingDenseBackward", "aclnnEmbeddingDenseBackward"], *, probe: bool = ..., deterministic: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[EmbeddingDenseBackwardComputed]
) -> list[Certificate]: ...

@overload
def certificate(
    operator: Literal["conv_tbc_backward", "ConvTbcBackward", "aclnnConvTbcBackward"], *, probe: bool = ..., deterministic: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[ConvTbcBackwardComputed]
) -> list[Certificate]: ...

@overload
def certificate(
    operator: Literal["rms_norm", "RmsNorm", "aclnnRmsNorm"], *, probe: bool = ..., deterministic: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[RmsNormComputed]
) -> list[Certificate]: ...

@overload
def certificate(
    operator: Literal["rms_norm_grad", "RmsNormGrad", "aclnnRmsNormGrad"], *, probe: bool = ..., deterministic: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[RmsNormGradComputed]
) -> list[Certificate]: ...

@overload
def certificate(
    operator: Literal["cross_entropy_loss_grad", "CrossEntropyLossGrad", "aclnnCrossEntropyLossGrad"], *, probe: bool = ..., deterministic: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[CrossEntropyLossGradComputed]
) -> list[Certificate]: ...

@overload
def certificate(
    operator: Literal["moe_token_permute", "MoeTokenPermute", "aclnnMoeTokenPermute"], *, probe: bool = ..., deterministic: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenPermuteComputed]
) -> list[Certificate]: ...

@overload
def certificate(
    operator: Literal["moe_token_permute_grad", "MoeTokenPermuteGrad", "aclnnMoeTokenPermuteGrad"], *, probe: bool = ..., deterministic: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenPermuteGradComputed]
) -> list[Certificate]: ...

@overload
def certificate(
    operator: Literal["moe_token_unpermute", "MoeTokenUnpermute", "aclnnMoeTokenUnpermute"], *, probe: bool = ..., deterministic: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenUnpermuteComputed]
) -> list[Certificate]: ...

@overload
def certificate(
    operator: Literal["moe_token_unpermute_grad", "MoeTokenUnpermuteGrad", "aclnnMoeTokenUnpermuteGrad"], *, probe: bool = ..., deterministic: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenUnpermuteGradComputed]
) -> list[Certificate]: ...

@overload
def certificate(
    operator: Literal["swi_glu", "SwiGlu", "aclnnSwiGlu"], *, probe: bool = ..., deterministic: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[SwiGluComputed]
) -> list[Certificate]: ...

@overload
def certificate(
    operator: Literal["swi_glu_grad", "SwiGluGrad", "aclnnSwiGluGrad"], *, probe: bool = ..., deterministic: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[SwiGluGradComputed]
) -> list[Certificate]: ...

@overload
def certificate(
    operator: Literal["rotary_position_embedding", "RotaryPositionEmbedding", "aclnnRotaryPositionEmbedding"], *, probe: bool = ..., deterministic: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[RotaryPositionEmbeddingComputed]
) -> list[Certificate]: ...

@overload
def certificate(
    operator: Literal["rotary_position_embedding_grad", "RotaryPositionEmbeddingGrad", "aclnnRotaryPositionEmbeddingGrad"], *, probe: bool = ..., deterministic: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[RotaryPositionEmbeddingGradComputed]
) -> list[Certificate]: ...

@overload
def certificate(
    operator: Literal["apply_adam_w_v2", "ApplyAdamWV2", "aclnnApplyAdamWV2"], *, probe: bool = ..., deterministic: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[ApplyAdamWV2Computed]
) -> list[Certificate]: ...

@overload
def determinism(
    operator: Literal["embedding_dense_backward", "EmbeddingDenseBackward", "aclnnEmbeddingDenseBackward"], *, random_orders: int = ..., seed: int = ..., adversarial: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., limits: Limits = ..., **arguments: Unpack[EmbeddingDenseBackwardComputed]
) -> DeterminismStudy: ...

@overload
def determinism(
    operator: Literal["conv_tbc_backward", "ConvTbcBackward", "aclnnConvTbcBackward"], *, random_orders: int = ..., seed: int = ..., adversarial: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., limits: Limits = ..., **arguments: Unpack[ConvTbcBackwardComputed]
) -> DeterminismStudy: ...

@overload
def determinism(
    operator: Literal["rms_norm", "RmsNorm", "aclnnRmsNorm"], *, random_orders: int = ..., seed: int = ..., adversarial: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., limits: Limits = ..., **arguments: Unpack[RmsNormComputed]
) -> DeterminismStudy: ...

@overload
def determinism(
    operator: Literal["rms_norm_grad", "RmsNormGrad", "aclnnRmsNormGrad"], *, random_orders: int = ..., seed: int = ..., adversarial: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., limits: Limits = ..., **arguments: Unpack[RmsNormGradComputed]
) -> DeterminismStudy: ...

@overload
def determinism(
    operator: Literal["cross_entropy_loss_grad", "CrossEntropyLossGrad", "aclnnCrossEntropyLossGrad"], *, random_orders: int = ..., seed: int = ..., adversarial: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., limits: Limits = ..., **arguments: Unpack[CrossEntropyLossGradComputed]
) -> DeterminismStudy: ...

@overload
def determinism(
    operator: Literal["moe_token_permute", "MoeTokenPermute", "aclnnMoeTokenPermute"], *, random_orders: int = ..., seed: int = ..., adversarial: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenPermuteComputed]
) -> DeterminismStudy: ...

@overload
def determinism(
    operator: Literal["moe_token_permute_grad", "MoeTokenPermuteGrad", "aclnnMoeTokenPermuteGrad"], *, random_orders: int = ..., seed: int = ..., adversarial: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenPermuteGradComputed]
) -> DeterminismStudy: ...

@overload
def determinism(
    operator: Literal["moe_token_unpermute", "MoeTokenUnpermute", "aclnnMoeTokenUnpermute"], *, random_orders: int = ..., seed: int = ..., adversarial: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenUnpermuteComputed]
) -> DeterminismStudy: ...

@overload
def determinism(
    operator: Literal["moe_token_unpermute_grad", "MoeTokenUnpermuteGrad", "aclnnMoeTokenUnpermuteGrad"], *, random_orders: int = ..., seed: int = ..., adversarial: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenUnpermuteGradComputed]
) -> DeterminismStudy: ...

@overload
def determinism(
    operator: Literal["swi_glu", "SwiGlu", "aclnnSwiGlu"], *, random_orders: int = ..., seed: int = ..., adversarial: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., limits: Limits = ..., **arguments: Unpack[SwiGluComputed]
) -> DeterminismStudy: ...

@overload
def determinism(
    operator: Literal["swi_glu_grad", "SwiGluGrad", "aclnnSwiGluGrad"], *, random_orders: int = ..., seed: int = ..., adversarial: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., limits: Limits = ..., **arguments: Unpack[SwiGluGradComputed]
) -> DeterminismStudy: ...

@overload
def determinism(
    operator: Literal["rotary_position_embedding", "RotaryPositionEmbedding", "aclnnRotaryPositionEmbedding"], *, random_orders: int = ..., seed: int = ..., adversarial: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., limits: Limits = ..., **arguments: Unpack[RotaryPositionEmbeddingComputed]
) -> DeterminismStudy: ...

@overload
def determinism(
    operator: Literal["rotary_position_embedding_grad", "RotaryPositionEmbeddingGrad", "aclnnRotaryPositionEmbeddingGrad"], *, random_orders: int = ..., seed: int = ..., adversarial: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., limits: Limits = ..., **arguments: Unpack[RotaryPositionEmbeddingGradComputed]
) -> DeterminismStudy: ...

@overload
def determinism(
    operator: Literal["apply_adam_w_v2", "ApplyAdamWV2", "aclnnApplyAdamWV2"], *, random_orders: int = ..., seed: int = ..., adversarial: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., limits: Limits = ..., **arguments: Unpack[ApplyAdamWV2Computed]
) -> DeterminismStudy: ...

@overload
def invariance(
    operator: Literal["embedding_dense_backward", "EmbeddingDenseBackward", "aclnnEmbeddingDenseBackward"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[EmbeddingDenseBackwardComputed]
) -> InvarianceStudy: ...

@overload
def invariance(
    operator: Literal["conv_tbc_backward", "ConvTbcBackward", "aclnnConvTbcBackward"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[ConvTbcBackwardComputed]
) -> InvarianceStudy: ...

@overload
def invariance(
    operator: Literal["rms_norm", "RmsNorm", "aclnnRmsNorm"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[RmsNormComputed]
) -> InvarianceStudy: ...

@overload
def invariance(
    operator: Literal["rms_norm_grad", "RmsNormGrad", "aclnnRmsNormGrad"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[RmsNormGradComputed]
) -> InvarianceStudy: ...

@overload
def invariance(
    operator: Literal["cross_entropy_loss_grad", "CrossEntropyLossGrad", "aclnnCrossEntropyLossGrad"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[CrossEntropyLossGradComputed]
) -> InvarianceStudy: ...

@overload
def invariance(
    operator: Literal["moe_token_permute", "MoeTokenPermute", "aclnnMoeTokenPermute"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenPermuteComputed]
) -> InvarianceStudy: ...

@overload
def invariance(
    operator: Literal["moe_token_permute_grad", "MoeTokenPermuteGrad", "aclnnMoeTokenPermuteGrad"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenPermuteGradComputed]
) -> InvarianceStudy: ...

@overload
def invariance(
    operator: Literal["moe_token_unpermute", "MoeTokenUnpermute", "aclnnMoeTokenUnpermute"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenUnpermuteComputed]
) -> InvarianceStudy: ...

@overload
def invariance(
    operator: Literal["moe_token_unpermute_grad", "MoeTokenUnpermuteGrad", "aclnnMoeTokenUnpermuteGrad"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenUnpermuteGradComputed]
) -> InvarianceStudy: ...

@overload
def invariance(
    operator: Literal["swi_glu", "SwiGlu", "aclnnSwiGlu"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[SwiGluComputed]
) -> InvarianceStudy: ...

@overload
def invariance(
    operator: Literal["swi_glu_grad", "SwiGluGrad", "aclnnSwiGluGrad"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[SwiGluGradComputed]
) -> InvarianceStudy: ...

@overload
def invariance(
    operator: Literal["rotary_position_embedding", "RotaryPositionEmbedding", "aclnnRotaryPositionEmbedding"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[RotaryPositionEmbeddingComputed]
) -> InvarianceStudy: ...

@overload
def invariance(
    operator: Literal["rotary_position_embedding_grad", "RotaryPositionEmbeddingGrad", "aclnnRotaryPositionEmbeddingGrad"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[RotaryPositionEmbeddingGradComputed]
) -> InvarianceStudy: ...

@overload
def invariance(
    operator: Literal["apply_adam_w_v2", "ApplyAdamWV2", "aclnnApplyAdamWV2"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[ApplyAdamWV2Computed]
) -> InvarianceStudy: ...

@overload
def precision(
    operator: Literal["embedding_dense_backward", "EmbeddingDenseBackward", "aclnnEmbeddingDenseBackward"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[EmbeddingDenseBackwardComputed]
) -> PrecisionStudy: ...

@overload
def precision(
    operator: Literal["conv_tbc_backward", "ConvTbcBackward", "aclnnConvTbcBackward"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[ConvTbcBackwardComputed]
) -> PrecisionStudy: ...

@overload
def precision(
    operator: Literal["rms_norm", "RmsNorm", "aclnnRmsNorm"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[RmsNormComputed]
) -> PrecisionStudy: ...

@overload
def precision(
    operator: Literal["rms_norm_grad", "RmsNormGrad", "aclnnRmsNormGrad"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[RmsNormGradComputed]
) -> PrecisionStudy: ...

@overload
def precision(
    operator: Literal["cross_entropy_loss_grad", "CrossEntropyLossGrad", "aclnnCrossEntropyLossGrad"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[CrossEntropyLossGradComputed]
) -> PrecisionStudy: ...

@overload
def precision(
    operator: Literal["moe_token_permute", "MoeTokenPermute", "aclnnMoeTokenPermute"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenPermuteComputed]
) -> PrecisionStudy: ...

@overload
def precision(
    operator: Literal["moe_token_permute_grad", "MoeTokenPermuteGrad", "aclnnMoeTokenPermuteGrad"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenPermuteGradComputed]
) -> PrecisionStudy: ...

@overload
def precision(
    operator: Literal["moe_token_unpermute", "MoeTokenUnpermute", "aclnnMoeTokenUnpermute"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenUnpermuteComputed]
) -> PrecisionStudy: ...

@overload
def precision(
    operator: Literal["moe_token_unpermute_grad", "MoeTokenUnpermuteGrad", "aclnnMoeTokenUnpermuteGrad"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenUnpermuteGradComputed]
) -> PrecisionStudy: ...

@overload
def precision(
    operator: Literal["swi_glu", "SwiGlu", "aclnnSwiGlu"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[SwiGluComputed]
) -> PrecisionStudy: ...

@overload
def precision(
    operator: Literal["swi_glu_grad", "SwiGluGrad", "aclnnSwiGluGrad"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[SwiGluGradComputed]
) -> PrecisionStudy: ...

@overload
def precision(
    operator: Literal["rotary_position_embedding", "RotaryPositionEmbedding", "aclnnRotaryPositionEmbedding"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[RotaryPositionEmbeddingComputed]
) -> PrecisionStudy: ...

@overload
def precision(
    operator: Literal["rotary_position_embedding_grad", "RotaryPositionEmbeddingGrad", "aclnnRotaryPositionEmbeddingGrad"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[RotaryPositionEmbeddingGradComputed]
) -> PrecisionStudy: ...

@overload
def precision(
    operator: Literal["apply_adam_w_v2", "ApplyAdamWV2", "aclnnApplyAdamWV2"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[ApplyAdamWV2Computed]
) -> PrecisionStudy: ...
