"""Small calls of every operator, one for every path that accumulates."""

from typing import Any

import ml_dtypes
import numpy as np

DTYPES = {"fp32": np.float32, "bf16": ml_dtypes.bfloat16, "fp16": np.float16}


def embedding(
    rows: int,
    dim: int,
    num_weights: int,
    dtype: str = "fp32",
    seed: int = 0,
    used_weights: int | None = None,
    **more: Any,
) -> dict[str, Any]:
    """An embedding gradient with indices drawn from the first ``used_weights`` weight rows."""
    rng = np.random.default_rng(seed)
    indices = rng.integers(0, used_weights or num_weights, rows, dtype=np.int32)
    return {
        "grad": rng.standard_normal((rows, dim)).astype(DTYPES[dtype]),
        "indices": indices,
        "num_weights": num_weights,
        **more,
    }


def rms_norm(
    rows: int, columns: int, dtype: str = "fp32", seed: int = 0, **more: Any
) -> dict[str, Any]:
    """A normalisation gradient."""
    rng = np.random.default_rng(seed)
    dy, x = (rng.standard_normal((rows, columns)).astype(DTYPES[dtype]) for _ in range(2))
    rstd = (1 / np.sqrt(np.mean(x.astype(np.float64) ** 2, axis=1) + 1e-6)).astype(np.float32)
    return {
        "dy": dy,
        "x": x,
        "rstd": rstd,
        "gamma": rng.standard_normal(columns).astype(DTYPES[dtype]),
        **more,
    }


def add_rms_norm(
    rows: int, columns: int, dtype: str = "bf16", seed: int = 0, **more: Any
) -> dict[str, Any]:
    """A residual addition and its normalisation."""
    rng = np.random.default_rng(seed)
    x1, x2 = (rng.standard_normal((rows, columns)).astype(DTYPES[dtype]) for _ in range(2))
    gamma = (1 + 0.1 * rng.standard_normal(columns)).astype(DTYPES[dtype])
    return {"x1": x1, "x2": x2, "gamma": gamma, **more}


def swi_glu_grad(rows: int, columns: int, dtype: str = "fp32", seed: int = 0) -> dict[str, Any]:
    """A gradient of SwiGlu."""
    rng = np.random.default_rng(seed)
    x, y_grad = rng.standard_normal((rows, 2 * columns)), rng.standard_normal((rows, columns))
    return {"x": x.astype(DTYPES[dtype]), "y_grad": y_grad.astype(DTYPES[dtype])}


def rotary_grad(rows: int, columns: int, dtype: str = "fp32", seed: int = 0) -> dict[str, Any]:
    """A gradient of RotaryPositionEmbedding with that of cos and sin."""
    rng = np.random.default_rng(seed)
    shapes = {"dy": 3, "x": 3, "cos": 1, "sin": 1}
    return {
        name: rng.standard_normal((2 if heads > 1 else 1, rows, heads, columns)).astype(
            DTYPES[dtype]
        )
        for name, heads in shapes.items()
    }


def rms_norm_forward(
    rows: int,
    columns: int,
    dtype: str = "fp32",
    gamma: str | None = None,
    seed: int = 0,
    **more: Any,
) -> dict[str, Any]:
    """A normalisation."""
    rng = np.random.default_rng(seed)
    x, scale = rng.standard_normal((rows, columns)), rng.standard_normal(columns)
    return {"x": x.astype(DTYPES[dtype]), "gamma": scale.astype(DTYPES[gamma or dtype]), **more}


def cross_entropy(
    rows: int, columns: int, dtype: str = "fp32", seed: int = 0, **more: Any
) -> dict[str, Any]:
    """A loss gradient."""
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((rows, columns))
    log_prob = (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).astype(DTYPES[dtype])
    return {
        "grad_loss": np.ones((), DTYPES[dtype]),
        "log_prob": log_prob,
        "target": rng.integers(0, columns, rows),
        **more,
    }


def cross_entropy_loss(
    rows: int, columns: int, dtype: str = "fp32", seed: int = 0, **more: Any
) -> dict[str, Any]:
    """Logits and labels."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.standard_normal((rows, columns), np.float32)
    return {"input": logits.astype(DTYPES[dtype]), "target": rng.integers(0, columns, rows), **more}


def moe(
    tokens: int, top_k: int, hidden: int, dtype: str = "fp32", seed: int = 0, dropped: int = 0
) -> dict[str, Any]:
    """A permutation gradient, the last ``dropped`` rows dropped."""
    rng = np.random.default_rng(seed)
    grad = rng.standard_normal((tokens * top_k - dropped, hidden)).astype(DTYPES[dtype])
    return {
        "permuted_output_grad": grad,
        "sorted_indices": rng.permutation(tokens * top_k).astype(np.int32),
        "num_topk": top_k,
    }


def unpermute(
    tokens: int,
    top_k: int,
    hidden: int,
    dtype: str = "fp32",
    probs: str | None = "fp32",
    seed: int = 0,
    dropped: int = 0,
) -> dict[str, Any]:
    """A weighted sum over experts without the last ``dropped`` rows; plain copies without probs."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((tokens * top_k - dropped, hidden)).astype(DTYPES[dtype])
    call = {
        "permuted_tokens": rows,
        "sorted_indices": rng.permutation(tokens * top_k).astype(np.int32),
    }
    return (
        call
        if probs is None
        else {**call, "probs": rng.random((tokens, top_k)).astype(DTYPES[probs])}
    )


def unpermute_grad(
    tokens: int,
    top_k: int,
    hidden: int,
    dtype: str = "fp32",
    probs: str | None = "fp32",
    **more: Any,
) -> dict[str, Any]:
    """The gradient of a weighted sum over experts."""
    rows = unpermute(tokens, top_k, hidden, dtype, probs)
    return {
        **rows,
        "unpermuted_tokens_grad": np.random.default_rng(1)
        .standard_normal((tokens, hidden))
        .astype(DTYPES[dtype]),
        **more,
    }


def permutation(
    tokens: int, top_k: int, hidden: int, dtype: str = "fp32", seed: int = 0, **more: Any
) -> dict[str, Any]:
    """A permutation of tokens to seven experts."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((tokens, hidden)).astype(DTYPES[dtype])
    return {
        "tokens": values,
        "indices": rng.integers(0, 7, (tokens, top_k), dtype=np.int32),
        **more,
    }


def conv(
    time: int,
    batch: int,
    in_channels: int,
    out_channels: int,
    taps: int,
    pad: int,
    seed: int = 0,
    **more: Any,
) -> dict[str, Any]:
    """A convolution gradient in fp32."""
    rng = np.random.default_rng(seed)
    shapes = {
        "grad_output": (time + 2 * pad - taps + 1, batch, out_channels),
        "input": (time, batch, in_channels),
        "weight": (taps, in_channels, out_channels),
        "bias": (out_channels,),
    }
    tensors = {
        name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
    }
    return {**tensors, "pad": pad, "cube_math_type": 0, **more}
