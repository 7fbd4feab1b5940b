"""Launches of a call: pages ``workspace`` and ``releases``, and a public device profile."""

import pytest

import npu_sim
from npu_sim.cores import release_names
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Launch, LaunchTensor, WorkspacePart
from npu_sim.plans.workspace import executor_workspace
from npu_sim.show.forms.layout import UNLIMITED, render
from npu_sim.show.plans import plan_view
from tests.timelines.calls import CALLS

VOCABULARY = {"grad": "1x4096x1024:bf16", "indices": "1x4096:int64", "num_weights": 151936}
OUT = "151936x1024"


def spelled(launches):
    """Return launches as a profile lists them: kernel, inputs and outputs with shape and dtype."""
    return [
        (
            launch.kernel,
            *(
                " ".join(str(npu_sim.TensorSpec(tensor.shape, tensor.dtype)) for tensor in side)
                for side in (launch.inputs, launch.outputs)
            ),
        )
        for launch in launches
    ]


CAST_INDICES = ("Cast", "1x4096:int64", "1x4096:int32")
SORT = ("Sort", "4096:fp32", "4096:fp32 4096:int32")
NATIVE = ("EmbeddingDenseGradV2", "1x4096x1024:bf16 4096:int32 4096:int32", f"{OUT}:bf16")
NATIVE_LAUNCHES = {
    "8.5": [CAST_INDICES, SORT, ("MemSet", "", f"{OUT}:bf16"), NATIVE],
    "9.0": [
        CAST_INDICES,
        SORT,
        ("ZerosLike", "", f"{OUT}:bf16"),
        ("MemSet", "", f"{OUT}:bf16"),
        NATIVE,
    ],
    "9.1": [
        CAST_INDICES,
        SORT,
        ("ZerosLike", "", f"{OUT}:bf16"),
        ("MemSet", "", f"{OUT}:bf16"),
        NATIVE,
    ],
}
NATIVE_LAUNCHES |= dict.fromkeys(("9.1.1", "9.2"), NATIVE_LAUNCHES["9.1"])
CAST_LAUNCHES = [
    ("Cast", "1x4096x1024:bf16", "1x4096x1024:fp32"),
    CAST_INDICES,
    SORT,
    ("MemSet", "", f"{OUT}:fp32"),
    ("EmbeddingDenseGradV2", "1x4096x1024:fp32 4096:int32 4096:int32", f"{OUT}:fp32"),
    ("Cast", f"{OUT}:fp32", f"{OUT}:bf16"),
]
"""Launches of a device with release 8.3, from a profile."""


@pytest.mark.parametrize("release", NATIVE_LAUNCHES)
def test_launches_of_a_native_16_bit_call_by_release(release):
    planned = npu_sim.plan(
        "embedding_dense_backward", soc="Ascend910B3", release=release, **VOCABULARY
    )
    assert spelled(planned.launches) == NATIVE_LAUNCHES[release]


def test_release_8_3_has_the_launches_of_the_measured_device():
    planned = npu_sim.plan(
        "embedding_dense_backward", soc="Ascend910B3", release="8.3", **VOCABULARY
    )
    assert spelled(planned.launches) == CAST_LAUNCHES
    assert planned.workspace.total_bytes == 655919616
    assert [launch.block_dim for launch in planned.launches] == [None, None, 1, None, 40, None]


@pytest.mark.parametrize("release", release_names())
def test_without_sorting_memset_alone_clears(release):
    planned = npu_sim.plan(
        "embedding_dense_backward",
        release=release,
        grad="100x64:fp32",
        indices="100:int32",
        num_weights=5000,
    )
    assert [launch.kernel for launch in planned.launches] == ["MemSet", "EmbeddingDenseGradV2"]


def test_memset_is_certain_only_where_a_device_profile_shows_it():
    arguments = {"grad": "100x64:fp32", "indices": "100:int32", "num_weights": 5000}
    evidence = {
        release: npu_sim.plan("embedding_dense_backward", release=release, **arguments)
        .launches[0]
        .evidence
        for release in release_names()
    }
    assert evidence == {"8.3": Evidence.EXACT} | dict.fromkeys(release_names()[1:], Evidence.MODEL)


@pytest.mark.parametrize("clears", [False, True], ids=["MemSet", "ZerosLike"])
def test_the_workspace_of_the_measured_launches(clears):
    """bf16 grad 1x4096x1024, int64 indices, 151936 weights: 655919616 bytes."""

    def tensor(name, shape, dtype):
        return LaunchTensor(name=name, shape=shape, dtype=dtype, intermediate=True)

    grad, indices, result = (
        tensor("grad", (4096, 1024), "float32"),
        tensor("indices", (4096,), "int32"),
        tensor("result", (151936, 1024), "float32"),
    )
    pairs = tensor("sorted", (4096,), "float32"), tensor("positions", (4096,), "int32")
    workspaces = {
        size: (WorkspacePart(name=f"{size}", bytes=size, kind="kernel"),)
        for size in (96, 16 * 2**20)
    }
    launches = [
        Launch(kernel="Cast", outputs=(grad,)),
        Launch(kernel="Cast", outputs=(indices,)),
        Launch(kernel="Sort", inputs=(indices,), outputs=pairs, workspace=workspaces[96]),
        Launch(kernel="ZerosLike" if clears else "MemSet", outputs=(result,), is_node=clears),
        Launch(
            kernel="EmbeddingDenseGradV2",
            inputs=(grad, *pairs),
            outputs=(result,),
            workspace=workspaces[16 * 2**20],
        ),
        Launch(kernel="Cast", inputs=(result,)),
    ]
    assert executor_workspace(launches, 0).total_bytes == 655919616


@pytest.mark.parametrize("name", CALLS)
def test_every_plan_lists_its_launches(name):
    operator, product, arguments = CALLS[name]
    planned = npu_sim.plan(operator, product=product, **arguments)
    assert [launch.kernel for launch in planned.launches if launch.is_node] == [
        node.name for node in planned.workspace.nodes
    ]
    assert bool(planned.launches) == bool(planned.block_dim)
    intermediate = {
        tensor.name: tensor.bytes
        for launch in planned.launches
        for tensor in (*launch.inputs, *launch.outputs)
        if tensor.intermediate
    }
    assert intermediate == {
        area.name: area.bytes for area in planned.workspace.areas if area.name in intermediate
    }
    for launch, data in zip(planned.launches, planned.as_dict()["launches"], strict=True):
        assert (data["read_bytes"], data["written_bytes"]) == (
            launch.read_bytes,
            launch.written_bytes,
        )


def test_an_operator_with_one_kernel_launches_its_declared_kernel():
    (launch,) = npu_sim.plan("rms_norm_grad", dy="4096x1024:bf16", gamma="1024:bf16").launches
    assert spelled([launch]) == [
        (
            "RmsNormGrad",
            "4096x1024:bf16 4096x1024:bf16 4096:fp32 1024:bf16",
            "4096x1024:bf16 1024:fp32",
        )
    ]
    assert (launch.block_dim, launch.evidence) == (48, Evidence.EXACT)


def test_a_strided_input_is_copied_before_the_kernel():
    arguments = {"grad_loss": "scalar:fp32", "log_prob": "64x32:fp32:strided", "target": "64:int64"}
    copy, kernel = npu_sim.plan("cross_entropy_loss_grad", **arguments).launches
    assert (copy.kernel, copy.outputs[0].name, copy.evidence) == (
        "Contiguous",
        "contiguous log_prob",
        Evidence.MODEL,
    )
    assert copy.outputs[0] in kernel.inputs


CONVOLUTION = (
    "Transpose x3, ReduceSum, TransData x3, Conv2DBackpropInput, TransData, MemSet, "
    "Conv2DBackpropFilter, TransData, Transpose x2"
)


def test_a_plan_shows_its_launches_in_one_line_and_an_explanation_in_full():
    arguments = {
        "grad_output": "5x1x2:fp32",
        "input": "5x1x2:fp32",
        "weight": "1x2x2:fp32",
        "bias": "2:fp32",
    }
    shown = render(plan_view(npu_sim.plan("conv_tbc_backward", **arguments)), UNLIMITED)
    assert CONVOLUTION in " ".join(shown.split())
    text = " ".join(str(npu_sim.explain("conv_tbc_backward", **arguments)).split())
    assert "launches: 14, one after the other" in text
    assert "writes 512 bytes: weight in cube layout 1x1x16x8:fp32" in text
