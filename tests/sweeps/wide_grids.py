"""Ranges of every operator that reach all its paths and some of its refusals."""

DTYPES = "fp32,fp16,bf16"
MODES = {"deterministic": "true,false", "limits": "documented,hardware"}

SWI_GLU = {"row": "0..1000000:log", "col": "0..100000:log", "dtype": DTYPES, **MODES}
WIDE_GRIDS = {
    "swi_glu": SWI_GLU,
    "swi_glu_grad": SWI_GLU,
    "embedding_dense_backward": {
        "rows": "0..10000000:log",
        "dim": "0..40000:log",
        "num_weights": "0..20000000:log",
        "grad_dtype": DTYPES,
        "indices_dtype": "int32,int64,float32",
        "scale_grad_by_freq": "true,false",
        **MODES,
    },
    "moe_token_permute": {
        "num_tokens": "0..3000000:log",
        "num_topk": "0..600:log",
        "hidden": "0..100000:log",
        "num_out_tokens": "-100000,-5,0,7,100000",
        "dtype": DTYPES,
        "indices_dtype": "int32,int64",
        **MODES,
    },
    "moe_token_permute_grad": {
        "tokens": "0..1000000:log",
        "num_topk": "0..60000:log",
        "hidden": "0..100000:log",
        "dtype": DTYPES,
        **MODES,
    },
    "moe_token_unpermute": {
        "tokens": "0..1000000:log",
        "num_topk": "0..700:log",
        "hidden": "0..100000:log",
        "dtype": DTYPES,
        "has_probs": "true,false",
        "probs_dtype": DTYPES,
        **MODES,
    },
    "moe_token_unpermute_grad": {
        "tokens": "0..1000000:log",
        "num_topk": "0..700:log",
        "hidden": "0..100000:log",
        "dtype": DTYPES,
        "has_tokens": "true,true,true,false",
        "has_probs": "true,false",
        "probs_dtype": DTYPES,
        **MODES,
    },
    "conv_tbc_backward": {
        "T": "0..6000:log",
        "B": "0..64:log",
        "Cin": "0..1024:log",
        "Cout": "0..1024:log",
        "K": "0..300:log",
        "pad": "0..300:log",
        "dtype": DTYPES,
        "cube_math_type": "0,1,2,3",
        **MODES,
    },
    "rms_norm": {
        "row": "0..5000000000:log",
        "col": "0..5000000000:log",
        "dtype": DTYPES,
        "gamma_dtype": DTYPES,
        **MODES,
    },
    "rms_norm_grad": {
        "row": "0..5000000000:log",
        "col": "0..5000000000:log",
        "dtype": DTYPES,
        "gamma_dtype": DTYPES,
        **MODES,
    },
    "cross_entropy_loss_grad": {
        "N": "0..700000:log",
        "C": "0..300000:log",
        "dtype": DTYPES,
        "reduction": "none,mean,sum",
        "weighted": "true,false",
        "ignore_index": "-100,0,7,100000",
        **MODES,
    },
}
