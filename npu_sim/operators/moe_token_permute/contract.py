"""Axes of MoeTokenPermute, for every family of products."""

from npu_sim.framework.arguments import INT64_MAX
from npu_sim.framework.axes import FLOAT_DTYPES, Number, Word
from npu_sim.operators.moe_token_permute.compute import ID_DTYPES

AXES = (
    Word("dtype", "dtype of tokens", FLOAT_DTYPES, "bfloat16"),
    Word("indices_dtype", "dtype of indices", ID_DTYPES, "int32"),
    Number(
        "num_out_tokens",
        "numOutTokens",
        0,
        low=-INT64_MAX - 1,
        high=INT64_MAX,
        unit="row",
        aliases=("numOutTokens",),
    ),
    Number(
        "num_topk",
        "experts of a token, second axis of indices",
        8,
        unit="expert",
        aliases=("topk", "K"),
    ),
    Number(
        "hidden",
        "product of the axes of tokens but the first",
        1024,
        unit="column",
        aliases=("cols", "H", "hidden_size"),
    ),
    Number(
        "num_tokens",
        "tokens, first axis of tokens and indices",
        1024,
        unit="token",
        aliases=("n", "T"),
    ),
)
