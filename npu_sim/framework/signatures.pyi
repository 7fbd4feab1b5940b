"""Types of functions and arguments of operators; written by ci/signatures.py from the declarations of the operators."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NotRequired, Protocol, SupportsIndex, TypeAlias, TypedDict
from typing import Unpack, overload

from numpy.typing import NDArray

from npu_sim.cores import Profile
from npu_sim.framework.execution import Prepared, Result
from npu_sim.framework.target import CoreOrder, Limits
from npu_sim.numbers.formats import TensorSpec
from npu_sim.plans.model import Plan
from npu_sim.questions.diff import Comparison
from npu_sim.questions.explain import Explanation
from npu_sim.questions.limits import LimitTable
from npu_sim.studies.certificate import Certificate
from npu_sim.studies.determinism import DeterminismStudy
from npu_sim.studies.invariance import InvarianceStudy
from npu_sim.studies.precision import PrecisionStudy

class SupportsArray(Protocol):
    def __array__(self) -> Any: ...

class SupportsDLPack(Protocol):
    def __dlpack__(self, *, stream: Any = ...) -> Any: ...

Array: TypeAlias = SupportsArray | SupportsDLPack | list[Any] | tuple[Any, ...] | float
Described: TypeAlias = TensorSpec | str | Array | None

__all__ = ['diff', 'explain', 'limits', 'plan', 'prepare', 'run', 'embedding_dense_backward', 'conv_tbc_backward', 'rms_norm', 'rms_norm_grad', 'add_rms_norm', 'cross_entropy_loss', 'cross_entropy_loss_grad', 'moe_token_permute', 'moe_token_permute_grad', 'moe_token_unpermute', 'moe_token_unpermute_grad', 'swi_glu', 'swi_glu_grad', 'rotary_position_embedding', 'rotary_position_embedding_grad', 'apply_adam_w_v2']

class EmbeddingDenseBackwardDescribed(TypedDict):
    grad: Described
    indices: Described
    num_weights: SupportsIndex
    padding_idx: NotRequired[SupportsIndex]
    scale_grad_by_freq: NotRequired[bool]
    out: NotRequired[Described]

class EmbeddingDenseBackwardComputed(TypedDict):
    grad: Array
    indices: Array
    num_weights: SupportsIndex
    padding_idx: NotRequired[SupportsIndex]
    scale_grad_by_freq: NotRequired[bool]

class EmbeddingDenseBackwardNatural(TypedDict):
    grad: NotRequired[Any]
    indices: NotRequired[Any]
    num_weights: NotRequired[Any]
    padding_idx: NotRequired[Any]
    scale_grad_by_freq: NotRequired[Any]
    out: NotRequired[Any]
    grad_dtype: NotRequired[Any]
    indices_dtype: NotRequired[Any]
    dim: NotRequired[Any]
    rows: NotRequired[Any]

class ConvTbcBackwardDescribed(TypedDict):
    grad_output: NotRequired[Described]
    input: Described
    weight: Described
    bias: NotRequired[Described]
    pad: NotRequired[SupportsIndex]
    cube_math_type: NotRequired[SupportsIndex]
    grad_input: NotRequired[Described]
    grad_weight: NotRequired[Described]
    grad_bias: NotRequired[Described]

class ConvTbcBackwardComputed(TypedDict):
    grad_output: Array
    input: Array
    weight: Array
    bias: Array
    pad: NotRequired[SupportsIndex]
    cube_math_type: NotRequired[SupportsIndex]

class ConvTbcBackwardNatural(TypedDict):
    grad_output: NotRequired[Any]
    input: NotRequired[Any]
    weight: NotRequired[Any]
    bias: NotRequired[Any]
    pad: NotRequired[Any]
    cube_math_type: NotRequired[Any]
    grad_input: NotRequired[Any]
    grad_weight: NotRequired[Any]
    grad_bias: NotRequired[Any]
    dtype: NotRequired[Any]
    K: NotRequired[Any]
    Cout: NotRequired[Any]
    Cin: NotRequired[Any]
    B: NotRequired[Any]
    T: NotRequired[Any]

class RmsNormDescribed(TypedDict):
    x: Described
    gamma: Described
    epsilon: NotRequired[float]
    y: NotRequired[Described]
    rstd: NotRequired[Described]

class RmsNormComputed(TypedDict):
    x: Array
    gamma: Array
    epsilon: NotRequired[float]

class RmsNormNatural(TypedDict):
    x: NotRequired[Any]
    gamma: NotRequired[Any]
    epsilon: NotRequired[Any]
    y: NotRequired[Any]
    rstd: NotRequired[Any]
    gamma_dtype: NotRequired[Any]
    dtype: NotRequired[Any]
    col: NotRequired[Any]
    row: NotRequired[Any]

class RmsNormGradDescribed(TypedDict):
    dy: NotRequired[Described]
    x: NotRequired[Described]
    rstd: NotRequired[Described]
    gamma: Described
    dx: NotRequired[Described]
    dgamma: NotRequired[Described]

class RmsNormGradComputed(TypedDict):
    dy: Array
    x: Array
    rstd: Array
    gamma: Array

class RmsNormGradNatural(TypedDict):
    dy: NotRequired[Any]
    x: NotRequired[Any]
    rstd: NotRequired[Any]
    gamma: NotRequired[Any]
    dx: NotRequired[Any]
    dgamma: NotRequired[Any]
    gamma_dtype: NotRequired[Any]
    dtype: NotRequired[Any]
    col: NotRequired[Any]
    row: NotRequired[Any]

class AddRmsNormDescribed(TypedDict):
    x1: NotRequired[Described]
    x2: NotRequired[Described]
    gamma: Described
    epsilon: NotRequired[float]
    outputs: NotRequired[Literal["full", "no_rstd", "y_only"]]
    in_place: NotRequired[bool]
    y: NotRequired[Described]
    rstd: NotRequired[Described]
    x: NotRequired[Described]

class AddRmsNormComputed(TypedDict):
    x1: Array
    x2: Array
    gamma: Array
    epsilon: NotRequired[float]
    outputs: NotRequired[Literal["full", "no_rstd", "y_only"]]
    in_place: NotRequired[bool]

class AddRmsNormNatural(TypedDict):
    x1: NotRequired[Any]
    x2: NotRequired[Any]
    gamma: NotRequired[Any]
    epsilon: NotRequired[Any]
    outputs: NotRequired[Any]
    in_place: NotRequired[Any]
    y: NotRequired[Any]
    rstd: NotRequired[Any]
    x: NotRequired[Any]
    dtype: NotRequired[Any]
    col: NotRequired[Any]
    row: NotRequired[Any]

class CrossEntropyLossDescribed(TypedDict):
    input: Described
    target: NotRequired[Described]
    weight: NotRequired[Described]
    reduction: NotRequired[Literal["none", "mean", "sum"]]
    ignore_index: NotRequired[SupportsIndex]
    label_smoothing: NotRequired[float]
    lse_square_scale_for_zloss: NotRequired[float]
    return_zloss: NotRequired[bool]
    zloss: NotRequired[Described]
    lse_for_zloss: NotRequired[Described]
    loss: NotRequired[Described]
    log_prob: NotRequired[Described]

class CrossEntropyLossComputed(TypedDict):
    input: Array
    target: Array
    weight: NotRequired[Array | None]
    reduction: NotRequired[Literal["none", "mean", "sum"]]
    ignore_index: NotRequired[SupportsIndex]
    label_smoothing: NotRequired[float]
    lse_square_scale_for_zloss: NotRequired[float]
    return_zloss: NotRequired[bool]
    zloss: NotRequired[Array | None]
    lse_for_zloss: NotRequired[Array | None]

class CrossEntropyLossNatural(TypedDict):
    input: NotRequired[Any]
    target: NotRequired[Any]
    weight: NotRequired[Any]
    reduction: NotRequired[Any]
    ignore_index: NotRequired[Any]
    label_smoothing: NotRequired[Any]
    lse_square_scale_for_zloss: NotRequired[Any]
    return_zloss: NotRequired[Any]
    zloss: NotRequired[Any]
    lse_for_zloss: NotRequired[Any]
    loss: NotRequired[Any]
    log_prob: NotRequired[Any]
    dtype: NotRequired[Any]
    weighted: NotRequired[Any]
    C: NotRequired[Any]
    N: NotRequired[Any]

class CrossEntropyLossGradDescribed(TypedDict):
    grad_loss: NotRequired[Described]
    log_prob: Described
    target: NotRequired[Described]
    weight: NotRequired[Described]
    reduction: NotRequired[Literal["none", "mean", "sum"]]
    ignore_index: NotRequired[SupportsIndex]
    label_smoothing: NotRequired[float]
    lse_square_scale_for_zloss: NotRequired[float]
    grad_zloss: NotRequired[Described]
    lse_for_zloss: NotRequired[Described]
    out: NotRequired[Described]

class CrossEntropyLossGradComputed(TypedDict):
    grad_loss: Array
    log_prob: Array
    target: Array
    weight: NotRequired[Array | None]
    reduction: NotRequired[Literal["none", "mean", "sum"]]
    ignore_index: NotRequired[SupportsIndex]
    label_smoothing: NotRequired[float]
    lse_square_scale_for_zloss: NotRequired[float]
    grad_zloss: NotRequired[Array | None]
    lse_for_zloss: NotRequired[Array | None]

class CrossEntropyLossGradNatural(TypedDict):
    grad_loss: NotRequired[Any]
    log_prob: NotRequired[Any]
    target: NotRequired[Any]
    weight: NotRequired[Any]
    reduction: NotRequired[Any]
    ignore_index: NotRequired[Any]
    label_smoothing: NotRequired[Any]
    lse_square_scale_for_zloss: NotRequired[Any]
    grad_zloss: NotRequired[Any]
    lse_for_zloss: NotRequired[Any]
    out: NotRequired[Any]
    dtype: NotRequired[Any]
    weighted: NotRequired[Any]
    C: NotRequired[Any]
    N: NotRequired[Any]

class MoeTokenPermuteDescribed(TypedDict):
    tokens: Described
    indices: Described
    num_out_tokens: NotRequired[SupportsIndex]
    padded_mode: NotRequired[bool]
    permuted_tokens: NotRequired[Described]
    sorted_indices: NotRequired[Described]

class MoeTokenPermuteComputed(TypedDict):
    tokens: Array
    indices: Array
    num_out_tokens: NotRequired[SupportsIndex]
    padded_mode: NotRequired[bool]

class MoeTokenPermuteNatural(TypedDict):
    tokens: NotRequired[Any]
    indices: NotRequired[Any]
    num_out_tokens: NotRequired[Any]
    padded_mode: NotRequired[Any]
    permuted_tokens: NotRequired[Any]
    sorted_indices: NotRequired[Any]
    dtype: NotRequired[Any]
    indices_dtype: NotRequired[Any]
    num_topk: NotRequired[Any]
    hidden: NotRequired[Any]
    num_tokens: NotRequired[Any]

class MoeTokenPermuteGradDescribed(TypedDict):
    permuted_output_grad: Described
    sorted_indices: Described
    num_topk: SupportsIndex
    padded_mode: NotRequired[bool]
    out: NotRequired[Described]

class MoeTokenPermuteGradComputed(TypedDict):
    permuted_output_grad: Array
    sorted_indices: Array
    num_topk: SupportsIndex
    padded_mode: NotRequired[bool]

class MoeTokenPermuteGradNatural(TypedDict):
    permuted_output_grad: NotRequired[Any]
    sorted_indices: NotRequired[Any]
    num_topk: NotRequired[Any]
    padded_mode: NotRequired[Any]
    out: NotRequired[Any]
    dtype: NotRequired[Any]
    hidden: NotRequired[Any]
    tokens: NotRequired[Any]

class MoeTokenUnpermuteDescribed(TypedDict):
    permuted_tokens: Described
    sorted_indices: NotRequired[Described]
    probs: NotRequired[Described]
    padded_mode: NotRequired[bool]
    restore_shape: NotRequired[str | Sequence[int] | None]
    out: NotRequired[Described]

class MoeTokenUnpermuteComputed(TypedDict):
    permuted_tokens: Array
    sorted_indices: Array
    probs: NotRequired[Array | None]
    padded_mode: NotRequired[bool]
    restore_shape: NotRequired[str | Sequence[int] | None]

class MoeTokenUnpermuteNatural(TypedDict):
    permuted_tokens: NotRequired[Any]
    sorted_indices: NotRequired[Any]
    probs: NotRequired[Any]
    padded_mode: NotRequired[Any]
    restore_shape: NotRequired[Any]
    out: NotRequired[Any]
    dtype: NotRequired[Any]
    has_probs: NotRequired[Any]
    probs_dtype: NotRequired[Any]
    num_topk: NotRequired[Any]
    hidden: NotRequired[Any]
    tokens: NotRequired[Any]

class MoeTokenUnpermuteGradDescribed(TypedDict):
    permuted_tokens: NotRequired[Described]
    unpermuted_tokens_grad: NotRequired[Described]
    sorted_indices: NotRequired[Described]
    probs: NotRequired[Described]
    padded_mode: NotRequired[bool]
    restore_shape: NotRequired[str | Sequence[int] | None]
    permuted_tokens_grad: NotRequired[Described]
    probs_grad: NotRequired[Described]

class MoeTokenUnpermuteGradComputed(TypedDict):
    permuted_tokens: NotRequired[Array | None]
    unpermuted_tokens_grad: Array
    sorted_indices: Array
    probs: NotRequired[Array | None]
    padded_mode: NotRequired[bool]
    restore_shape: NotRequired[str | Sequence[int] | None]

class MoeTokenUnpermuteGradNatural(TypedDict):
    permuted_tokens: NotRequired[Any]
    unpermuted_tokens_grad: NotRequired[Any]
    sorted_indices: NotRequired[Any]
    probs: NotRequired[Any]
    padded_mode: NotRequired[Any]
    restore_shape: NotRequired[Any]
    permuted_tokens_grad: NotRequired[Any]
    probs_grad: NotRequired[Any]
    has_tokens: NotRequired[Any]
    dtype: NotRequired[Any]
    has_probs: NotRequired[Any]
    probs_dtype: NotRequired[Any]
    num_topk: NotRequired[Any]
    hidden: NotRequired[Any]
    tokens: NotRequired[Any]

class SwiGluDescribed(TypedDict):
    x: Described
    dim: NotRequired[SupportsIndex]
    out: NotRequired[Described]

class SwiGluComputed(TypedDict):
    x: Array
    dim: NotRequired[SupportsIndex]

class SwiGluNatural(TypedDict):
    x: NotRequired[Any]
    dim: NotRequired[Any]
    out: NotRequired[Any]
    dtype: NotRequired[Any]
    col: NotRequired[Any]
    row: NotRequired[Any]

class SwiGluGradDescribed(TypedDict):
    y_grad: NotRequired[Described]
    x: NotRequired[Described]
    dim: NotRequired[SupportsIndex]
    out: NotRequired[Described]

class SwiGluGradComputed(TypedDict):
    y_grad: Array
    x: Array
    dim: NotRequired[SupportsIndex]

class SwiGluGradNatural(TypedDict):
    y_grad: NotRequired[Any]
    x: NotRequired[Any]
    dim: NotRequired[Any]
    out: NotRequired[Any]
    dtype: NotRequired[Any]
    col: NotRequired[Any]
    row: NotRequired[Any]

class RotaryPositionEmbeddingDescribed(TypedDict):
    x: Described
    cos: NotRequired[Described]
    sin: NotRequired[Described]
    mode: NotRequired[SupportsIndex]
    out: NotRequired[Described]

class RotaryPositionEmbeddingComputed(TypedDict):
    x: Array
    cos: Array
    sin: Array
    mode: NotRequired[SupportsIndex]

class RotaryPositionEmbeddingNatural(TypedDict):
    x: NotRequired[Any]
    cos: NotRequired[Any]
    sin: NotRequired[Any]
    mode: NotRequired[Any]
    out: NotRequired[Any]
    dtype: NotRequired[Any]
    x0: NotRequired[Any]
    x1: NotRequired[Any]
    x2: NotRequired[Any]
    cos0: NotRequired[Any]
    cos1: NotRequired[Any]
    cos2: NotRequired[Any]
    dim: NotRequired[Any]

class RotaryPositionEmbeddingGradDescribed(TypedDict):
    dy: Described
    cos: NotRequired[Described]
    sin: NotRequired[Described]
    x: NotRequired[Described]
    mode: NotRequired[SupportsIndex]
    dx: NotRequired[Described]
    dcos: NotRequired[Described]
    dsin: NotRequired[Described]

class RotaryPositionEmbeddingGradComputed(TypedDict):
    dy: Array
    cos: Array
    sin: Array
    x: NotRequired[Array | None]
    mode: NotRequired[SupportsIndex]

class RotaryPositionEmbeddingGradNatural(TypedDict):
    dy: NotRequired[Any]
    cos: NotRequired[Any]
    sin: NotRequired[Any]
    x: NotRequired[Any]
    mode: NotRequired[Any]
    dx: NotRequired[Any]
    dcos: NotRequired[Any]
    dsin: NotRequired[Any]
    dtype: NotRequired[Any]
    x0: NotRequired[Any]
    x1: NotRequired[Any]
    x2: NotRequired[Any]
    cos0: NotRequired[Any]
    cos1: NotRequired[Any]
    cos2: NotRequired[Any]
    dim: NotRequired[Any]
    has_x: NotRequired[Any]

class ApplyAdamWV2Described(TypedDict):
    var: Described
    m: NotRequired[Described]
    v: NotRequired[Described]
    grad: NotRequired[Described]
    step: NotRequired[Described]
    max_grad_norm: NotRequired[Described]
    lr: NotRequired[float]
    beta1: NotRequired[float]
    beta2: NotRequired[float]
    weight_decay: NotRequired[float]
    eps: NotRequired[float]
    amsgrad: NotRequired[bool]
    maximize: NotRequired[bool]
    var_out: NotRequired[Described]
    m_out: NotRequired[Described]
    v_out: NotRequired[Described]
    max_grad_norm_out: NotRequired[Described]

class ApplyAdamWV2Computed(TypedDict):
    var: Array
    m: Array
    v: Array
    grad: Array
    step: Array
    max_grad_norm: NotRequired[Array | None]
    lr: NotRequired[float]
    beta1: NotRequired[float]
    beta2: NotRequired[float]
    weight_decay: NotRequired[float]
    eps: NotRequired[float]
    amsgrad: NotRequired[bool]
    maximize: NotRequired[bool]

class ApplyAdamWV2Natural(TypedDict):
    var: NotRequired[Any]
    m: NotRequired[Any]
    v: NotRequired[Any]
    grad: NotRequired[Any]
    step: NotRequired[Any]
    max_grad_norm: NotRequired[Any]
    lr: NotRequired[Any]
    beta1: NotRequired[Any]
    beta2: NotRequired[Any]
    weight_decay: NotRequired[Any]
    eps: NotRequired[Any]
    amsgrad: NotRequired[Any]
    maximize: NotRequired[Any]
    var_out: NotRequired[Any]
    m_out: NotRequired[Any]
    v_out: NotRequired[Any]
    max_grad_norm_out: NotRequired[Any]
    dtype: NotRequired[Any]
    m_dtype: NotRequired[Any]
    v_dtype: NotRequired[Any]
    grad_dtype: NotRequired[Any]
    norm_dtype: NotRequired[Any]
    step_dtype: NotRequired[Any]
    with_norm: NotRequired[Any]
    elements: NotRequired[Any]

@overload
def diff(
    operator: Literal["embedding_dense_backward", "EmbeddingDenseBackward", "aclnnEmbeddingDenseBackward"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., products: str | Path | Sequence[str | Path] | None = ..., socs: str | Sequence[str] | None = ..., releases: bool | str | Sequence[str] = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[EmbeddingDenseBackwardDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["conv_tbc_backward", "ConvTbcBackward", "aclnnConvTbcBackward"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., products: str | Path | Sequence[str | Path] | None = ..., socs: str | Sequence[str] | None = ..., releases: bool | str | Sequence[str] = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[ConvTbcBackwardDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["rms_norm", "RmsNorm", "aclnnRmsNorm"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., products: str | Path | Sequence[str | Path] | None = ..., socs: str | Sequence[str] | None = ..., releases: bool | str | Sequence[str] = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[RmsNormDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["rms_norm_grad", "RmsNormGrad", "aclnnRmsNormGrad"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., products: str | Path | Sequence[str | Path] | None = ..., socs: str | Sequence[str] | None = ..., releases: bool | str | Sequence[str] = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[RmsNormGradDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["add_rms_norm", "AddRmsNorm", "aclnnAddRmsNorm"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., products: str | Path | Sequence[str | Path] | None = ..., socs: str | Sequence[str] | None = ..., releases: bool | str | Sequence[str] = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[AddRmsNormDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["cross_entropy_loss", "CrossEntropyLoss", "aclnnCrossEntropyLoss"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., products: str | Path | Sequence[str | Path] | None = ..., socs: str | Sequence[str] | None = ..., releases: bool | str | Sequence[str] = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[CrossEntropyLossDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["cross_entropy_loss_grad", "CrossEntropyLossGrad", "aclnnCrossEntropyLossGrad"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., products: str | Path | Sequence[str | Path] | None = ..., socs: str | Sequence[str] | None = ..., releases: bool | str | Sequence[str] = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[CrossEntropyLossGradDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["moe_token_permute", "MoeTokenPermute", "aclnnMoeTokenPermute"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., products: str | Path | Sequence[str | Path] | None = ..., socs: str | Sequence[str] | None = ..., releases: bool | str | Sequence[str] = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenPermuteDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["moe_token_permute_grad", "MoeTokenPermuteGrad", "aclnnMoeTokenPermuteGrad"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., products: str | Path | Sequence[str | Path] | None = ..., socs: str | Sequence[str] | None = ..., releases: bool | str | Sequence[str] = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenPermuteGradDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["moe_token_unpermute", "MoeTokenUnpermute", "aclnnMoeTokenUnpermute"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., products: str | Path | Sequence[str | Path] | None = ..., socs: str | Sequence[str] | None = ..., releases: bool | str | Sequence[str] = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenUnpermuteDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["moe_token_unpermute_grad", "MoeTokenUnpermuteGrad", "aclnnMoeTokenUnpermuteGrad"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., products: str | Path | Sequence[str | Path] | None = ..., socs: str | Sequence[str] | None = ..., releases: bool | str | Sequence[str] = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[MoeTokenUnpermuteGradDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["swi_glu", "SwiGlu", "aclnnSwiGlu"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., products: str | Path | Sequence[str | Path] | None = ..., socs: str | Sequence[str] | None = ..., releases: bool | str | Sequence[str] = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[SwiGluDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["swi_glu_grad", "SwiGluGrad", "aclnnSwiGluGrad"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., products: str | Path | Sequence[str | Path] | None = ..., socs: str | Sequence[str] | None = ..., releases: bool | str | Sequence[str] = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[SwiGluGradDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["rotary_position_embedding", "RotaryPositionEmbedding", "aclnnRotaryPositionEmbedding"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., products: str | Path | Sequence[str | Path] | None = ..., socs: str | Sequence[str] | None = ..., releases: bool | str | Sequence[str] = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[RotaryPositionEmbeddingDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["rotary_position_embedding_grad", "RotaryPositionEmbeddingGrad", "aclnnRotaryPositionEmbeddingGrad"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., products: str | Path | Sequence[str | Path] | None = ..., socs: str | Sequence[str] | None = ..., releases: bool | str | Sequence[str] = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[RotaryPositionEmbeddingGradDescribed]
) -> Comparison: ...

@overload
def diff(
    operator: Literal["apply_adam_w_v2", "ApplyAdamWV2", "aclnnApplyAdamWV2"], *, product: str | Path | Sequence[str | Path] | None = ..., soc: str | Sequence[str] | None = ..., release: str | Sequence[str] | None = ..., products: str | Path | Sequence[str | Path] | None = ..., socs: str | Sequence[str] | None = ..., releases: bool | str | Sequence[str] = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[ApplyAdamWV2Described]
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
    operator: Literal["add_rms_norm", "AddRmsNorm", "aclnnAddRmsNorm"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[AddRmsNormDescribed]
) -> Explanation: ...

@overload
def explain(
    operator: Literal["cross_entropy_loss", "CrossEntropyLoss", "aclnnCrossEntropyLoss"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[CrossEntropyLossDescribed]
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
    operator: Literal["embedding_dense_backward", "EmbeddingDenseBackward", "aclnnEmbeddingDenseBackward"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., products: str | Sequence[str] | None = ..., socs: str | Sequence[str] | None = ..., deterministic: bool = ..., **arguments: Unpack[EmbeddingDenseBackwardNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["conv_tbc_backward", "ConvTbcBackward", "aclnnConvTbcBackward"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., products: str | Sequence[str] | None = ..., socs: str | Sequence[str] | None = ..., deterministic: bool = ..., **arguments: Unpack[ConvTbcBackwardNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["rms_norm", "RmsNorm", "aclnnRmsNorm"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., products: str | Sequence[str] | None = ..., socs: str | Sequence[str] | None = ..., deterministic: bool = ..., **arguments: Unpack[RmsNormNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["rms_norm_grad", "RmsNormGrad", "aclnnRmsNormGrad"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., products: str | Sequence[str] | None = ..., socs: str | Sequence[str] | None = ..., deterministic: bool = ..., **arguments: Unpack[RmsNormGradNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["add_rms_norm", "AddRmsNorm", "aclnnAddRmsNorm"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., products: str | Sequence[str] | None = ..., socs: str | Sequence[str] | None = ..., deterministic: bool = ..., **arguments: Unpack[AddRmsNormNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["cross_entropy_loss", "CrossEntropyLoss", "aclnnCrossEntropyLoss"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., products: str | Sequence[str] | None = ..., socs: str | Sequence[str] | None = ..., deterministic: bool = ..., **arguments: Unpack[CrossEntropyLossNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["cross_entropy_loss_grad", "CrossEntropyLossGrad", "aclnnCrossEntropyLossGrad"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., products: str | Sequence[str] | None = ..., socs: str | Sequence[str] | None = ..., deterministic: bool = ..., **arguments: Unpack[CrossEntropyLossGradNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["moe_token_permute", "MoeTokenPermute", "aclnnMoeTokenPermute"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., products: str | Sequence[str] | None = ..., socs: str | Sequence[str] | None = ..., deterministic: bool = ..., **arguments: Unpack[MoeTokenPermuteNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["moe_token_permute_grad", "MoeTokenPermuteGrad", "aclnnMoeTokenPermuteGrad"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., products: str | Sequence[str] | None = ..., socs: str | Sequence[str] | None = ..., deterministic: bool = ..., **arguments: Unpack[MoeTokenPermuteGradNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["moe_token_unpermute", "MoeTokenUnpermute", "aclnnMoeTokenUnpermute"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., products: str | Sequence[str] | None = ..., socs: str | Sequence[str] | None = ..., deterministic: bool = ..., **arguments: Unpack[MoeTokenUnpermuteNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["moe_token_unpermute_grad", "MoeTokenUnpermuteGrad", "aclnnMoeTokenUnpermuteGrad"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., products: str | Sequence[str] | None = ..., socs: str | Sequence[str] | None = ..., deterministic: bool = ..., **arguments: Unpack[MoeTokenUnpermuteGradNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["swi_glu", "SwiGlu", "aclnnSwiGlu"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., products: str | Sequence[str] | None = ..., socs: str | Sequence[str] | None = ..., deterministic: bool = ..., **arguments: Unpack[SwiGluNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["swi_glu_grad", "SwiGluGrad", "aclnnSwiGluGrad"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., products: str | Sequence[str] | None = ..., socs: str | Sequence[str] | None = ..., deterministic: bool = ..., **arguments: Unpack[SwiGluGradNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["rotary_position_embedding", "RotaryPositionEmbedding", "aclnnRotaryPositionEmbedding"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., products: str | Sequence[str] | None = ..., socs: str | Sequence[str] | None = ..., deterministic: bool = ..., **arguments: Unpack[RotaryPositionEmbeddingNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["rotary_position_embedding_grad", "RotaryPositionEmbeddingGrad", "aclnnRotaryPositionEmbeddingGrad"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., products: str | Sequence[str] | None = ..., socs: str | Sequence[str] | None = ..., deterministic: bool = ..., **arguments: Unpack[RotaryPositionEmbeddingGradNatural]
) -> LimitTable: ...

@overload
def limits(
    operator: Literal["apply_adam_w_v2", "ApplyAdamWV2", "aclnnApplyAdamWV2"], vary: str | Sequence[str] | None = ..., *, product: str | Sequence[str] | None = ..., soc: str | Sequence[str] | None = ..., release: str | None = ..., products: str | Sequence[str] | None = ..., socs: str | Sequence[str] | None = ..., deterministic: bool = ..., **arguments: Unpack[ApplyAdamWV2Natural]
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
    operator: Literal["add_rms_norm", "AddRmsNorm", "aclnnAddRmsNorm"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[AddRmsNormDescribed]
) -> Plan: ...

@overload
def plan(
    operator: Literal["cross_entropy_loss", "CrossEntropyLoss", "aclnnCrossEntropyLoss"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., limits: Limits = ..., **arguments: Unpack[CrossEntropyLossDescribed]
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
    operator: Literal["add_rms_norm", "AddRmsNorm", "aclnnAddRmsNorm"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[AddRmsNormDescribed]
) -> Prepared: ...

@overload
def prepare(
    operator: Literal["cross_entropy_loss", "CrossEntropyLoss", "aclnnCrossEntropyLoss"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[CrossEntropyLossDescribed]
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
    operator: Literal["add_rms_norm", "AddRmsNorm", "aclnnAddRmsNorm"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ..., **arguments: Unpack[AddRmsNormComputed]
) -> Result: ...

@overload
def run(
    operator: Literal["cross_entropy_loss", "CrossEntropyLoss", "aclnnCrossEntropyLoss"], *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ..., **arguments: Unpack[CrossEntropyLossComputed]
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

def add_rms_norm(
    x1: Array, x2: Array, gamma: Array, epsilon: float = ..., outputs: Literal["full", "no_rstd", "y_only"] = ..., in_place: bool = ...,
    *, product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., out: Any = ...,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]: ...

def cross_entropy_loss(
    input: Array, target: Array, weight: Array | None = ..., reduction: Literal["none", "mean", "sum"] = ..., ignore_index: SupportsIndex = ..., label_smoothing: float = ..., lse_square_scale_for_zloss: float = ..., return_zloss: bool = ..., zloss: Array | None = ..., lse_for_zloss: Array | None = ...,
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
    operator: Literal["add_rms_norm", "AddRmsNorm", "aclnnAddRmsNorm"], *, probe: bool = ..., deterministic: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[AddRmsNormComputed]
) -> list[Certificate]: ...

@overload
def certificate(
    operator: Literal["cross_entropy_loss", "CrossEntropyLoss", "aclnnCrossEntropyLoss"], *, probe: bool = ..., deterministic: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[CrossEntropyLossComputed]
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
    operator: Literal["add_rms_norm", "AddRmsNorm", "aclnnAddRmsNorm"], *, random_orders: int = ..., seed: int = ..., adversarial: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., limits: Limits = ..., **arguments: Unpack[AddRmsNormComputed]
) -> DeterminismStudy: ...

@overload
def determinism(
    operator: Literal["cross_entropy_loss", "CrossEntropyLoss", "aclnnCrossEntropyLoss"], *, random_orders: int = ..., seed: int = ..., adversarial: bool = ..., progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., limits: Limits = ..., **arguments: Unpack[CrossEntropyLossComputed]
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
    operator: Literal["add_rms_norm", "AddRmsNorm", "aclnnAddRmsNorm"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[AddRmsNormComputed]
) -> InvarianceStudy: ...

@overload
def invariance(
    operator: Literal["cross_entropy_loss", "CrossEntropyLoss", "aclnnCrossEntropyLoss"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[CrossEntropyLossComputed]
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
    operator: Literal["add_rms_norm", "AddRmsNorm", "aclnnAddRmsNorm"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[AddRmsNormComputed]
) -> PrecisionStudy: ...

@overload
def precision(
    operator: Literal["cross_entropy_loss", "CrossEntropyLoss", "aclnnCrossEntropyLoss"], *, progress: Callable[[str, float], None] | None = ..., product: str | Path | Profile | None = ..., soc: str | None = ..., release: str | None = ..., deterministic: bool = ..., core_order: CoreOrder = ..., seed: int = ..., limits: Limits = ..., **arguments: Unpack[CrossEntropyLossComputed]
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
