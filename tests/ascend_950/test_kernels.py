"""Results on Ascend 950 against golden results, bit for bit."""

import hashlib
import json

import ml_dtypes
import numpy as np
import pytest

import npu_sim
from npu_sim.kernels.shared.elementwise import ulp_distance
from tests.cases import every
from tests.golden import DATA

FILES = sorted((DATA / "kernels" / "ascend_950").glob("*.npz"))
ATTRIBUTES = {
    "rms_norm": ("epsilon",),
    "cross_entropy_loss": ("reduction", "ignore_index", "label_smoothing"),
    "cross_entropy_loss_grad": ("reduction", "ignore_index"),
    "moe_token_permute": ("num_out_tokens",),
    "moe_token_permute_grad": ("num_topk",),
    "embedding_dense_backward": ("num_weights", "padding_idx", "scale_grad_by_freq"),
    "swi_glu": ("dim",),
    "swi_glu_grad": ("dim",),
    "apply_adam_w_v2": ("lr", "beta1", "beta2", "weight_decay", "eps", "amsgrad", "maximize"),
}
"""Attributes of a call that the files state, by operator."""
ULPS = {"cross_entropy_loss_grad": 2}
"""Allowed distance where a result depends on exp, whose last bits are not known; 0 elsewhere."""


def bits(array):
    """Bit patterns; every nan has the same."""
    if array.dtype.kind == "i":
        return array
    found = array.view(np.uint16 if array.itemsize == 2 else np.uint32).copy()
    found[np.isnan(array.astype(np.float32))] = np.iinfo(found.dtype).max
    return found


def values(array):
    return array.view(ml_dtypes.bfloat16) if array.dtype == np.uint16 else array


@pytest.mark.parametrize("path", every(5, FILES), ids=lambda path: path.stem)
def test_golden_results_bit_for_bit(path):
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    meta = json.loads(str(arrays.pop("meta")))
    inputs = {
        name.removeprefix("in_"): values(array)
        for name, array in arrays.items()
        if name.startswith("in_")
    }
    attributes = {name: meta[name] for name in ATTRIBUTES.get(meta["op"], ())}
    device = {"soc": meta["soc"], "release": meta.get("release")}
    result = npu_sim.run(meta["op"], **device, **inputs, **attributes)
    assert result.plan.tiling_key == meta["tiling_key"]
    assert all(order.fixed for order in result.plan.order)
    for name, array in arrays.items():
        if name.startswith("out_"):
            own = result.outputs[name.removeprefix("out_").removesuffix("_fixed")]
            expected = values(array).reshape(own.shape)
            if meta["op"] in ULPS:
                assert ulp_distance(own, expected, own.dtype).max() <= ULPS[meta["op"]]
            else:
                assert np.array_equal(bits(own), bits(expected))
    for name, digest in meta["digests"].items():
        own = result.outputs[name.removeprefix("out_").removesuffix("_fixed")]
        assert hashlib.sha256(bits(own).tobytes()).hexdigest() == digest
    assert len(meta["digests"]) + sum(name.startswith("out_") for name in arrays) == len(
        result.outputs
    )
