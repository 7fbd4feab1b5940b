"""Storage formats: public formats are accepted, private formats are refused."""

import pytest

import npu_sim
from npu_sim.framework.checks import PLAIN_FORMATS
from npu_sim.status import AclnnError

CALLS = {
    "embedding_dense_backward": {
        "grad": "1000x64:fp32",
        "indices": "1000:int32",
        "num_weights": 5000,
    },
    "rms_norm": {"x": "60x128:fp32", "gamma": "128:fp32"},
    "rms_norm_grad": {
        "dy": "60x128:fp32",
        "x": "60x128:fp32",
        "rstd": "60:fp32",
        "gamma": "128:fp32",
    },
}


@pytest.mark.parametrize("storage_format", sorted({*PLAIN_FORMATS, "HWCN"}))
@pytest.mark.parametrize("operator", CALLS)
def test_public_formats_do_not_change_the_tiling(operator, storage_format):
    call = CALLS[operator]
    first = next(iter(call))
    assert (
        npu_sim.plan(operator, **{**call, first: f"{call[first]}:{storage_format}"}).tiling
        == npu_sim.plan(operator, **call).tiling
    )


@pytest.mark.parametrize("storage_format", ["NC1HWC0", "FRACTAL_Z", "FRACTAL_NZ", "NDC1HWC0"])
@pytest.mark.parametrize("operator", CALLS)
def test_private_formats_are_refused(operator, storage_format):
    call = CALLS[operator]
    first = next(iter(call))
    with pytest.raises(AclnnError, match=f"private format {storage_format}") as refused:
        npu_sim.plan(operator, **{**call, first: f"{call[first]}:{storage_format}"})
    assert refused.value.argument == first
