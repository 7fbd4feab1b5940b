"""Workspace: the worked examples of the specification page, and invariants of every layout."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npu_sim
from npu_sim.plans.answers import Evidence
from npu_sim.plans.model import Launch, LaunchTensor, WorkspacePart, contiguous_copy
from npu_sim.plans.workspace import aligned_bytes, executor_workspace, kernel_workspace
from npu_sim.tiling.common import sort_workspace_bytes

SYSTEM = 16 * 2**20
EMBEDDING_SAMPLE = {"grad": "2x3:fp32", "indices": "2:int64", "num_weights": 4}
EMBEDDING_SMALL = {
    "grad": "1000x64:fp16",
    "indices": "1000:int64",
    "num_weights": 5000,
    "scale_grad_by_freq": True,
}
EMBEDDING_SORTED = {"grad": "1000x1024:fp16", "indices": "1000:int64", "num_weights": 5000}
CONV_SAMPLE = {
    "grad_output": "5x1x2:fp32",
    "input": "5x1x2:fp32",
    "weight": "1x2x2:fp32",
    "bias": "2:fp32",
    "pad": 0,
    "cube_math_type": 1,
}
CONV = {
    "grad_output": "128x4x96:{0}",
    "input": "128x4x64:{0}",
    "weight": "3x64x96:{0}",
    "bias": "96:{0}",
    "pad": 1,
}
RMS_SMALL = {"dy": "10x128:fp32", "x": "10x128:fp32", "rstd": "10:fp32", "gamma": "128:fp32"}
RMS_LARGE = {
    "dy": "4096x8192:bf16",
    "x": "4096x8192:bf16",
    "rstd": "4096:fp32",
    "gamma": "8192:bf16",
}
CROSS_ENTROPY = {"grad_loss": "scalar:fp32", "log_prob": "64x32:fp32", "target": "64:int64"}
MOE = {"permuted_output_grad": "64x32:bf16", "sorted_indices": "64:int32", "num_topk": 2}


def conv(dtype, **more):
    return {
        name: value.format(dtype) if isinstance(value, str) else value
        for name, value in CONV.items()
    } | more


WORKED = [
    (
        "moe_token_permute",
        {"tokens": "3x4:fp32", "indices": "3x2:int32"},
        {},
        16777424,
        {"system": SYSTEM, "sort": 144, "sync": 64},
    ),
    (
        "moe_token_permute",
        {"tokens": "4096x64:bf16", "indices": "4096x8:int64"},
        {},
        17566720,
        {"system": SYSTEM, "sort": 786432, "sync": 3072},
    ),
    ("moe_token_permute_grad", MOE, {}, 16777216, {"system": SYSTEM}),
    ("cross_entropy_loss_grad", CROSS_ENTROPY, {}, 16777408, {"system": SYSTEM, "*": 192}),
    (
        "cross_entropy_loss_grad",
        CROSS_ENTROPY,
        {"soc": "Ascend910B4"},
        16777376,
        {"system": SYSTEM, "*": 160},
    ),
    ("rms_norm_grad", RMS_SMALL, {}, 16777536, {"system": SYSTEM, "*": 320}),
    ("rms_norm_grad", RMS_SMALL, {"deterministic": True}, 16782656, {"system": SYSTEM, "*": 5440}),
    ("rms_norm_grad", RMS_LARGE, {}, 16778752, {"system": SYSTEM, "*": 1536}),
    (
        "rms_norm_grad",
        RMS_LARGE,
        {"deterministic": True},
        18351616,
        {"system": SYSTEM, "*": 1574400},
    ),
    (
        "embedding_dense_backward",
        {"grad": "2x3:fp32", "indices": "2:int32", "num_weights": 4},
        {},
        16777728,
        {"system": SYSTEM, "alignment": 512},
    ),
    (
        "embedding_dense_backward",
        EMBEDDING_SAMPLE,
        {},
        16778240,
        {"system": SYSTEM, "indices as int32": 8, "alignment": 512 + 504},
    ),
    (
        "embedding_dense_backward",
        EMBEDDING_SMALL,
        {},
        18338816,
        {
            "grad as fp32": 256000,
            "indices as int32": 4000,
            "system": SYSTEM,
            "frequency counters": 20000,
            "result": 1280000,
            "alignment": 1600,
        },
    ),
    (
        "embedding_dense_backward",
        EMBEDDING_SORTED,
        {},
        41362944,
        {
            "grad as fp32": 4096000,
            "result": 20480000,
            "sorted indices": 4000,
            "positions": 4000,
            "system": SYSTEM,
            "alignment": 1728,  # the 96 bytes of Sort share the area of the later result
        },
    ),
    ("conv_tbc_backward", CONV_SAMPLE, {}, 4608, None),
    ("conv_tbc_backward", conv("fp16", cube_math_type=0), {}, 337920, None),
    ("conv_tbc_backward", conv("fp32", cube_math_type=2), {}, 534528, None),
]


@pytest.mark.parametrize(("operator", "arguments", "options", "total", "parts"), WORKED)
def test_worked_examples_have_their_documented_parts(operator, arguments, options, total, parts):
    workspace = npu_sim.plan(operator, **options, **arguments).workspace
    assert workspace.total_bytes == total
    assert sum(part.bytes for part in workspace.parts) == total
    if parts is None:
        return
    sizes = {part.name: part.bytes for part in workspace.parts}
    others = sum(size for name, size in sizes.items() if name not in parts)
    assert {name: sizes[name] for name in parts if name != "*"} == {
        name: size for name, size in parts.items() if name != "*"
    }
    assert others == parts.get("*", 0)


def overlaps(first, second):
    return (
        first.offset < second.offset + second.bytes and second.offset < first.offset + first.bytes
    )


def lifetimes_overlap(first, second):
    return first.first_node <= second.last_node and second.first_node <= first.last_node


@pytest.mark.parametrize(("operator", "arguments", "options", "total", "parts"), WORKED)
def test_areas_with_overlapping_lifetimes_do_not_overlap(
    operator, arguments, options, total, parts
):
    workspace = npu_sim.plan(operator, **options, **arguments).workspace
    assert workspace.areas
    for number, area in enumerate(workspace.areas):
        bucket = workspace.buckets[area.bucket]
        assert bucket.offset <= area.offset
        assert area.offset + area.bytes <= bucket.offset + bucket.bytes <= total
        for other in workspace.areas[:number]:
            assert not (lifetimes_overlap(area, other) and overlaps(area, other))
    assert sum(bucket.bytes for bucket in workspace.buckets) == total


@pytest.mark.parametrize(
    ("size", "aligned"),
    [(0, 512), (8, 512), (480, 512), (481, 1024), (4000, 4096), (16777216, 16777728)],
)
def test_alignment(size, aligned):
    assert aligned_bytes(size) == aligned


STRIDED = [
    # a copy of grad before its cast, one of indices before its cast, and the result before it is
    # copied to a strided out
    (
        "1000x64:fp16:strided",
        "1000:int64:strided",
        "5000x64:fp16:strided",
        ["contiguous grad", "contiguous indices", "result in the dtype of out"],
    ),
    ("1000x64:fp32:strided", "1000:int32", None, ["contiguous grad"]),
    ("1000x64:fp32", "1000:int32:strided", None, ["contiguous indices"]),
    ("1000x64:fp32", "1000:int32", "5000x64:fp32:strided", ["result"]),
]


@pytest.mark.parametrize(("grad", "indices", "out", "copies"), STRIDED)
def test_embedding_copies_non_contiguous_tensors(grad, indices, out, copies):
    more = {} if out is None else {"out": out}
    workspace = npu_sim.plan(
        "embedding_dense_backward", grad=grad, indices=indices, num_weights=5000, **more
    ).workspace
    plain = npu_sim.plan(
        "embedding_dense_backward",
        grad=grad.removesuffix(":strided"),
        indices=indices.removesuffix(":strided"),
        num_weights=5000,
    ).workspace
    assert {area.name for area in workspace.areas} - {area.name for area in plain.areas} == set(
        copies
    )
    assert workspace.nodes[-1].name == ("ViewCopy" if out else plain.nodes[-1].name)


def test_one_row_is_not_sorted():
    nodes = npu_sim.plan(
        "embedding_dense_backward", grad="1x1024:fp32", indices="1:int32", num_weights=9
    ).workspace.nodes
    assert [node.name for node in nodes] == ["ZerosLike", "EmbeddingDenseGradV2"]


def test_the_kernel_has_no_workspace_on_atlas_train():
    arguments = {"grad": "100x64:fp16", "indices": "100:int64", "num_weights": 50}
    workspace = npu_sim.plan(
        "embedding_dense_backward", product="atlas_train", **arguments
    ).workspace
    assert [area.name for area in workspace.areas] == ["grad as fp32", "result"]
    assert workspace.total_bytes == aligned_bytes(100 * 64 * 4) + aligned_bytes(50 * 64 * 4)


def test_sort_has_a_workspace_at_its_node_with_model_evidence():
    workspace = npu_sim.plan("embedding_dense_backward", **EMBEDDING_SORTED).workspace
    (part,) = next(node for node in workspace.nodes if node.name == "Sort").workspace
    assert (part.bytes, part.evidence) == (96, Evidence.MODEL)
    assert workspace.unknown == ()


@pytest.mark.parametrize(
    ("rows", "size"),
    [(1, 96), (6112, 96), (6113, 16 * 6120 + 64), (2139095039, 16 * 2139095040 + 64)],
)
def test_one_core_sorts_up_to_6112_rows(rows, size):
    assert sort_workspace_bytes(rows) == size


def test_other_dtypes_are_sorted_by_the_ai_cpu_with_an_unpublished_workspace():
    arguments = {"grad": "2139095040x1024:fp32", "indices": "2139095040:int32", "num_weights": 9}
    planned = npu_sim.plan("embedding_dense_backward", **arguments)
    assert [part.name for part in planned.workspace.unknown] == ["workspace of Sort"]
    total = planned.workspace.total_bytes
    assert (
        str(planned.workspace).splitlines()[0]
        == f"16.0 GiB ({total:,}) of workspace + unknown (workspace of Sort)"
    )
    (sort,) = (launch for launch in planned.launches if launch.kernel == "Sort")
    assert (sort.note, sort.inputs[0].dtype, sort.block_dim) == ("on the AI CPU", "int32", 0)


PRODUCT = {
    "grad_output": "1x{B}x{Cout}:{dtype}",
    "input": "5x{B}x4:{dtype}",
    "weight": "5x4x{Cout}:{dtype}",
    "bias": "{Cout}:{dtype}",
}


@pytest.mark.parametrize(
    ("sizes", "kernels"),
    [
        ({"B": 1, "Cout": 1, "dtype": "fp32"}, ["Mul", "Mul"]),
        ({"B": 1, "Cout": 2, "dtype": "fp16"}, ["BatchMatMul", "Mul"]),
        ({"B": 2, "Cout": 1, "dtype": "bf16"}, ["Mul", "BatchMatMul"]),
    ],
)
def test_a_product_whose_contraction_has_length_1_is_a_mul_without_workspace(sizes, kernels):
    arguments = {name: text.format(**sizes) for name, text in PRODUCT.items()}
    planned = npu_sim.plan("conv_tbc_backward", **arguments)
    assert [launch.kernel for launch in planned.launches] == ["Transpose"] * 3 + [
        "ReduceSum"
    ] + kernels + ["Transpose"] * 2
    unknown = [part.name for part in planned.workspace.unknown]
    products = zip(("gradInput", "gradWeight"), kernels, strict=True)
    assert unknown == ["workspace of ReduceSum"] + [
        f"workspace of BatchMatMul of {name}" for name, kernel in products if kernel != "Mul"
    ]


def test_the_operands_of_a_product_are_cast_only_to_fp16():
    arguments = {name: text.format(B=2, Cout=3, dtype="fp32") for name, text in PRODUCT.items()}

    def kernels(cube_math_type):
        launches = npu_sim.plan(
            "conv_tbc_backward", **arguments, cube_math_type=cube_math_type
        ).launches
        return [launch.kernel for launch in launches[4:-2]]

    assert kernels(1) == ["BatchMatMul"] * 2
    assert kernels(2) == ["Cast", "Cast", "BatchMatMul", "Cast"] * 2


def test_only_910_chips_reduce_without_workspace():
    documented = npu_sim.plan(
        "conv_tbc_backward", product="atlas_train", **conv("fp16", cube_math_type=0)
    ).workspace
    unknown = npu_sim.plan("conv_tbc_backward", **conv("fp16", cube_math_type=0)).workspace
    assert (documented.total_bytes, documented.unknown) == (unknown.total_bytes, ())
    assert [part.name for part in unknown.unknown] == ["workspace of ReduceSum"]


def area(name, size):
    return LaunchTensor(name=name, shape=(size,), dtype="uint8", intermediate=True)


def test_the_last_free_bucket_is_used():
    a, b, c = area("a", 100), area("b", 1000), area("c", 5000)
    nodes = [
        Launch(kernel="a", outputs=(a, b)),
        Launch(kernel="b", inputs=(a, b), outputs=(c,)),
        Launch(kernel="c", inputs=(c,), outputs=(area("d", 50), area("e", 60), area("f", 70))),
    ]
    workspace = executor_workspace(nodes, 0)
    assert {area.name: area.bucket for area in workspace.areas} == {
        "a": 0,
        "b": 1,
        "c": 2,
        "d": 1,
        "e": 0,
        "f": 3,
    }
    assert workspace.total_bytes == 512 + 1536 + 5120 + 512


def test_a_view_needs_no_memory_and_in_place_results_keep_their_area():
    result = area("result", 1000)
    nodes = [
        Launch(kernel="ZerosLike", outputs=(result,)),
        Launch(kernel="kernel", outputs=(result,)),
        Launch(kernel="Cast", inputs=(result,)),
    ]
    cleared = [
        nodes[0],
        Launch(kernel="MemSet", outputs=(area("other", 9), result), is_node=False),
        *nodes[1:],
    ]
    assert executor_workspace(cleared, 0) == executor_workspace(nodes, 0)
    (lying,) = executor_workspace(nodes, 0).areas
    assert (lying.name, lying.first_node, lying.last_node) == ("result", 0, 2)


@st.composite
def executors(draw):
    """Kernels that read results of earlier kernels, write up to three, and may have a workspace."""
    nodes, written = [], []
    for number in range(draw(st.integers(1, 9))):
        inputs = (
            tuple(draw(st.lists(st.sampled_from(written), max_size=3, unique=True)))
            if written
            else ()
        )
        outputs = tuple(
            area(f"{number}.{place}", draw(st.integers(0, 5000)))
            for place in range(draw(st.integers(0, 3)))
        )
        scratch = (
            WorkspacePart(
                name=f"scratch {number}", bytes=draw(st.integers(1, 5000)), kind="kernel"
            ),
        )
        workspace = scratch if draw(st.booleans()) else ()
        nodes.append(
            Launch(kernel=f"kernel {number}", inputs=inputs, outputs=outputs, workspace=workspace)
        )
        written += outputs
    return nodes


def specified_placement(nodes):
    """Return the bucket of every entry (by node, its workspace first) and the total."""
    entries = []
    for number, node in enumerate(nodes):
        entries += [(part.name, part.bytes, number, number) for part in node.workspace]
        for area in node.outputs:
            uses = [later for later, other in enumerate(nodes) if area in other.inputs]
            entries.append((area.name, area.bytes, number, max([number, *uses])))
    buckets = []
    for name, size, first, last in entries:
        free = [
            bucket
            for bucket in buckets
            if bucket[-1][2] != first
            and bucket[-1][3] < first
            and bucket[-1][0] not in [tensor.name for tensor in nodes[first].inputs]
        ]
        if free:
            free[-1].append((name, size, first, last))
        else:
            buckets.append([(name, size, first, last)])
    total = sum(
        max((size + 32 + 511) // 512 * 512 for _, size, _, _ in bucket) for bucket in buckets
    )
    return {name: number for number, bucket in enumerate(buckets) for name, *_ in bucket}, total


@settings(max_examples=200)
@given(executors())
def test_every_executor_is_placed_as_specified(nodes):
    workspace = executor_workspace(nodes, 0)
    expected, total = specified_placement(nodes)
    assert {area.name: area.bucket for area in workspace.areas} == expected
    assert workspace.total_bytes == total == sum(part.bytes for part in workspace.parts)
    for number, area in enumerate(workspace.areas):
        for other in workspace.areas[:number]:
            assert not (lifetimes_overlap(area, other) and overlaps(area, other))


def test_copies_of_a_single_kernel_follow_it_and_share_nothing():
    system = WorkspacePart(name="system", bytes=SYSTEM, kind="system")
    workspace = kernel_workspace(
        [system], [contiguous_copy("a", (1000,), "uint8"), contiguous_copy("b", (10,), "uint8")]
    )
    assert workspace.total_bytes == SYSTEM + 1536 + 512
    assert [(area.name, area.offset) for area in workspace.areas] == [
        ("contiguous a", SYSTEM),
        ("contiguous b", SYSTEM + 1536),
        ("system", 0),
    ]


def test_unknown_parts_are_listed_once():
    unknown = WorkspacePart(name="scratch", bytes=0, kind="kernel", evidence=Evidence.UNKNOWN)
    system = WorkspacePart(name="system", bytes=100, kind="system")
    parts = executor_workspace([Launch(kernel="a", workspace=(system, unknown))], 100).parts
    assert [part.name for part in parts] == ["system", "alignment", "scratch"]
