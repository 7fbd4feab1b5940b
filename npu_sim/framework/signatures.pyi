"""Types of the arguments of the operators; written by ci/signatures.py from the declarations of the operators."""

from collections.abc import Sequence
from typing import Any, Literal, NotRequired, Protocol, SupportsIndex, TypeAlias, TypedDict

from npu_sim.numbers.formats import TensorSpec

class SupportsArray(Protocol):
    def __array__(self) -> Any: ...

class SupportsDLPack(Protocol):
    def __dlpack__(self, *, stream: Any = ...) -> Any: ...

Array: TypeAlias = SupportsArray | SupportsDLPack | list[Any] | tuple[Any, ...] | float
Described: TypeAlias = TensorSpec | str | Array | None

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
    m: Described
    v: Described
    grad: Described
    step: Described
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
