"""Calls for tests of timelines, reports and the explorer: name to operator, product, arguments."""

EMBEDDING = "embedding_dense_backward"


def embedding(grad, indices="int32", **more):
    rows = grad.split("x", maxsplit=1)[0]
    return {"grad": grad, "indices": f"{rows}:{indices}", "num_weights": 3000, **more}


CONV = "conv_tbc_backward"
PERMUTE = "moe_token_permute"
MOE = "moe_token_permute_grad"
UNPERMUTE = "moe_token_unpermute"
UNPERMUTE_GRAD = "moe_token_unpermute_grad"
RMS = "rms_norm_grad"
CROSS_ENTROPY = "cross_entropy_loss_grad"


def conv(sizes, dtype, **more):
    time, batch, in_channels, out_channels, taps, pad = sizes
    tensors = {
        "grad_output": f"{time + 2 * pad - taps + 1}x{batch}x{out_channels}:{dtype}",
        "input": f"{time}x{batch}x{in_channels}:{dtype}",
        "weight": f"{taps}x{in_channels}x{out_channels}:{dtype}",
        "bias": f"{out_channels}:{dtype}",
    }
    return {**tensors, "pad": pad, **more}


def rms(rows, columns, dtype, **more):
    return {
        "dy": f"{rows}x{columns}:{dtype}",
        "x": f"{rows}x{columns}:{dtype}",
        "rstd": f"{rows}:fp32",
        "gamma": f"{columns}:{dtype}",
        **more,
    }


def cross_entropy(rows, columns, dtype, **more):
    scalar = "scalar" if more.get("reduction", "mean") != "none" else rows
    return {
        "grad_loss": f"{scalar}:{dtype}",
        "log_prob": f"{rows}x{columns}:{dtype}",
        "target": f"{rows}:int64",
        **more,
    }


def moe(tokens, topk, hidden, dtype, rows=None):
    rows = tokens * topk if rows is None else rows
    return {
        "permuted_output_grad": f"{rows}x{hidden}:{dtype}",
        "sorted_indices": f"{tokens * topk}:int32",
        "num_topk": topk,
    }


def unpermute(tokens, topk, hidden, dtype, probs, rows=None):
    rows = tokens * topk if rows is None else rows
    call = {
        "permuted_tokens": f"{rows}x{hidden}:{dtype}",
        "sorted_indices": f"{tokens * topk}:int32",
    }
    return call if probs is None else {**call, "probs": f"{tokens}x{topk}:{probs}"}


def unpermute_grad(tokens, topk, hidden, dtype, probs, rows=None, **more):
    return {
        **unpermute(tokens, topk, hidden, dtype, probs, rows),
        "unpermuted_tokens_grad": f"{tokens}x{hidden}:{dtype}",
        **more,
    }


def permute(tokens, topk, hidden, dtype, indices="int32", **more):
    return {"tokens": f"{tokens}x{hidden}:{dtype}", "indices": f"{tokens}x{topk}:{indices}", **more}


CALLS = {
    "small dim": (EMBEDDING, "atlas_a2", embedding("20000x512:fp32")),
    "small dim, scaled": (
        EMBEDDING,
        "atlas_a2",
        embedding("20000x100:fp16", scale_grad_by_freq=True),
    ),
    "small dim, native 16-bit": (
        EMBEDDING,
        "atlas_a2",
        embedding("200000x512:bf16", num_weights=32000),
    ),
    "sorted": (EMBEDDING, "atlas_a2", embedding("20000x513:fp32", padding_idx=3)),
    "sorted, in pieces": (EMBEDDING, "atlas_a3", embedding("777x40000:fp32")),
    "sorted, native 16-bit": (EMBEDDING, "atlas_a2", embedding("60000x1024:bf16", "int64")),
    "deterministic, scaled": (
        EMBEDDING,
        "atlas_a2",
        embedding("5000x64:fp32", scale_grad_by_freq=True, deterministic=True),
    ),
    "atomic rows": (EMBEDDING, "atlas_train", embedding("20000x128:fp16", "int64")),
    "weights split": (
        EMBEDDING,
        "atlas_train",
        embedding("20000x128:fp32", scale_grad_by_freq=True),
    ),
    "one row": (EMBEDDING, "atlas_a2", embedding("1x8:fp32")),
    "billions of rows": (
        EMBEDDING,
        "atlas_a2",
        embedding("2000000000x8000:fp32", num_weights=20000000),
    ),
    "conv": (CONV, "atlas_a2", conv((1024, 16, 512, 512, 3, 1), "bf16")),
    "conv, fp32, split": (CONV, "atlas_a2", conv((600, 3, 33, 17, 3, 1), "fp32")),
    "conv, deterministic": (
        CONV,
        "atlas_a2",
        conv((1000, 50, 64, 64, 9, 4), "fp16", deterministic=True),
    ),
    "conv, split tail": (
        CONV,
        "atlas_a3",
        conv((17, 70, 3, 500, 2, 1), "fp32", deterministic=True),
    ),
    "conv, many samples": (CONV, "atlas_a2", conv((50, 300000, 16, 16, 3, 1), "fp16")),
    "conv, training series": (CONV, "atlas_train", conv((128, 4, 64, 96, 3, 1), "fp16")),
    "conv as matrix products": (CONV, "atlas_a2", conv((5, 2, 8, 8, 5, 0), "fp16")),
    "moe": (MOE, "atlas_a2", moe(4096, 8, 7168, "bf16")),
    "moe, fp32, wide": (MOE, "atlas_a2", moe(100, 3, 70000, "fp32")),
    "moe, dropped": (MOE, "atlas_a2", moe(1000, 4, 512, "fp16", rows=2500)),
    "unpermute": (UNPERMUTE, "atlas_a2", unpermute(4096, 8, 7168, "bf16", "bf16")),
    "unpermute, fp32, wide": (UNPERMUTE, "atlas_a3", unpermute(100, 3, 70000, "fp32", "fp32")),
    "unpermute, dropped": (
        UNPERMUTE,
        "atlas_a2",
        unpermute(1000, 4, 512, "fp16", "fp32", rows=2500),
    ),
    "unpermute without probs": (UNPERMUTE, "atlas_a2", unpermute(1000, 1, 512, "fp32", None)),
    "unpermute gradient": (
        UNPERMUTE_GRAD,
        "atlas_a2",
        unpermute_grad(4096, 8, 7168, "bf16", "bf16"),
    ),
    "unpermute gradient, wide": (
        UNPERMUTE_GRAD,
        "atlas_a3",
        unpermute_grad(100, 3, 20000, "fp32", "fp32"),
    ),
    "unpermute gradient, narrow": (
        UNPERMUTE_GRAD,
        "atlas_a2",
        unpermute_grad(10, 300, 40, "fp16", "fp32"),
    ),
    "unpermute gradient, dropped": (
        UNPERMUTE_GRAD,
        "atlas_a2",
        unpermute_grad(100, 8, 512, "fp16", "bf16", rows=500, release="9.0"),
    ),
    "unpermute gradient, copies": (
        UNPERMUTE_GRAD,
        "atlas_a2",
        unpermute_grad(100, 1, 20000, "fp16", None),
    ),
    "unpermute, all dropped": (
        UNPERMUTE,
        "atlas_a2",
        unpermute(1000, 1, 512, "fp32", None, rows=0),
    ),
    "permute": (PERMUTE, "atlas_a2", permute(4096, 8, 7168, "bf16")),
    "permute, one core sorts": (PERMUTE, "atlas_a3", permute(500, 8, 1024, "fp16", "int64")),
    "permute, split rows, dropped": (
        PERMUTE,
        "atlas_a2",
        permute(3000, 3, 50000, "fp16", num_out_tokens=-1000),
    ),
    "permute, long pieces": (PERMUTE, "atlas_a2", permute(1000000, 16, 8, "fp32", "int64")),
    "rms forward, merged": ("rms_norm", "atlas_a2", {"x": "4096x1024:bf16", "gamma": "1024:bf16"}),
    "rms forward, merged, few": (
        "rms_norm",
        "atlas_a2",
        {"x": "100x1024:fp16", "gamma": "1024:fp16"},
    ),
    "rms forward, normal": ("rms_norm", "atlas_a3", {"x": "4096x4096:fp32", "gamma": "4096:fp32"}),
    "rms forward, single row": (
        "rms_norm",
        "atlas_a2",
        {"x": "512x13000:bf16", "gamma": "13000:fp32"},
    ),
    "rms forward, pieces": (
        "rms_norm",
        "atlas_inference",
        {"x": "300x30000:fp16", "gamma": "30000:fp16"},
    ),
    "rms, long": (RMS, "atlas_a2", rms(4096, 8192, "bf16")),
    "rms, long, deterministic": (RMS, "atlas_a2", rms(4096, 8192, "fp16", deterministic=True)),
    "rms, short": (RMS, "atlas_a2", rms(100000, 640, "fp32")),
    "rms, middle": (RMS, "atlas_a3", rms(5000, 4100, "fp16", deterministic=True)),
    "rms, inference": (RMS, "atlas_inference", rms(3000, 1024, "fp16")),
    "rms, inference, deterministic": (
        RMS,
        "atlas_inference",
        rms(3000, 7000, "fp32", deterministic=True),
    ),
    "cross entropy, mean": (CROSS_ENTROPY, "atlas_a2", cross_entropy(8192, 32000, "bf16")),
    "cross entropy, none, weights": (
        CROSS_ENTROPY,
        "atlas_a2",
        cross_entropy(199999, 1000, "fp32", weight="1000:fp32", reduction="none"),
    ),
    "cross entropy, sum": (
        CROSS_ENTROPY,
        "atlas_a2",
        cross_entropy(20, 150000, "fp16", reduction="sum"),
    ),
    "empty": (EMBEDDING, "atlas_a2", embedding("0x8:fp32")),
}
