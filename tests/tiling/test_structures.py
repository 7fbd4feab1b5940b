"""Bytes of the tiling structures: layout, round trip, and errors."""

import json
import struct
from pathlib import Path

import pytest

from npu_sim import UsageError, decode_tiling
from npu_sim.cores import release_names
from npu_sim.tiling import find_structure, flattened, layout, pack, plan_kernel, structures
from tests.cli.runner import npu_sim
from tests.golden import tiling_lines

SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "failures"
"""Data of the vendor's sources beside the repository; it is not part of it."""
KERNELS = [
    "rms_norm",
    "rms_norm_grad",
    "cross_entropy_loss_grad",
    "moe_token_permute",
    "moe_token_permute_grad",
    "moe_token_unpermute",
    "moe_token_unpermute_grad",
    "embedding_dense_grad_v2",
]
SIZES = {
    ("EmbeddingDenseGradV2", "8.3"): (368, 46),
    ("EmbeddingDenseGradV2", "9.1"): (408, 51),
    ("RmsNorm", "8.3"): (88, 18),
    ("RmsNorm", "8.5"): (144, 28),
    ("RmsNormGrad", "9.0"): (72, 17),
    ("RmsNormGrad", "9.1"): (88, 21),
    ("CrossEntropyLossGrad", "9.1"): (176, 22),
    ("MoeTokenPermute", "9.1"): (336, 42),
    ("MoeTokenPermuteGrad", "9.1"): (96, 12),
    ("MoeTokenUnpermute", "9.1"): (96, 12),
    ("MoeTokenUnpermuteGrad", "9.1"): (136, 17),
    ("Conv3DBackpropFilterV2", "9.0"): (272, 64),
    ("Conv3DBackpropFilterV2", "9.1"): (280, 66),
    ("Conv3DBackpropInputV2", "9.1"): (312, 73),
}


@pytest.mark.parametrize(("key", "size"), SIZES.items(), ids=str)
def test_sizes_are_those_of_the_page(key, size):
    kernel, release = key
    laid = layout(find_structure(kernel), release)
    assert (laid.bytes, len(laid.members)) == size


@pytest.mark.parametrize("kernel", KERNELS)
def test_golden_tilings_survive_the_bytes(kernel):
    expected = [line["expect"] for line in tiling_lines(kernel)[:60]]
    tilings = [one["tiling"] for one in expected if "tiling" in one]
    assert tilings
    for tiling in tilings:
        values = dict(flattened(tiling))
        assert decode_tiling(kernel, pack(kernel, tiling, "9.1")) == pytest.approx(values, rel=1e-8)


@pytest.mark.parametrize("release", release_names())
def test_planners_fill_the_whole_structure_of_a_release(release):
    inputs = {
        "x_shape": [64, 4096],
        "gamma_shape": [4096],
        "y_shape": [64, 4096],
        "rstd_shape": [64, 1],
        "x_dtype": "float16",
        "gamma_dtype": "float16",
        "epsilon": 1e-6,
    }
    tiling = plan_kernel("rms_norm", "Ascend910B1", inputs, release=release)["tiling"]
    decoded = decode_tiling("RmsNorm", pack("RmsNorm", tiling, release), release=release)
    assert decoded["num_col"] == 4096
    assert set(decoded) == {name for name, _ in flattened(tiling)}


def test_words_behind_the_structure_are_ignored():
    words = [2048, 4, 44, 2048, 1, 0, 1, 0, 1, 1, 0, 4]
    tail = ["0xa5a5a5a500000000", 0]
    assert list(decode_tiling("MoeTokenPermuteGrad", [*words, *tail]).values()) == words


def test_fields_are_aligned_to_their_width():
    words = struct.pack("<qqfxxxx19q", 1, -100, 0.1, *range(19))
    decoded = decode_tiling("CrossEntropyLossGrad", words)
    assert (decoded["ignoreIndex"], decoded["labelSmoothing"]) == (-100, 0.100000001)
    assert decoded["rowVal"] == 0


@pytest.mark.parametrize(
    ("kernel", "words", "release", "argument"),
    [
        ("RmsNorm", [1, 2, 3], None, "words_or_bytes"),
        ("RmsNorm", ["none"], None, "words_or_bytes"),
        ("RmsNorm", [2**64], None, "words_or_bytes"),
        ("RmsNorm", 3, None, "words_or_bytes"),
        ("GemmaRmsNorm", [0] * 40, None, "kernel"),
        ("Conv3DBackpropInputV2", [0] * 40, "8.3", "release"),
        ("RmsNorm", [0] * 40, "7.0", "release"),
    ],
)
def test_what_cannot_be_decoded_is_an_error(kernel, words, release, argument):
    with pytest.raises(UsageError) as error:
        decode_tiling(kernel, words, release=release)
    assert error.value.argument == argument


@pytest.mark.parametrize("release", ["8.3", "9.1"])
@pytest.mark.parametrize("kernel", ["SwiGlu", "SwiGluGrad"])
def test_the_structure_of_swi_glu(kernel, release):
    laid = layout(find_structure(kernel), release)
    assert laid.bytes == 80
    assert [(member.name, member.offset) for member in laid.members] == [
        *(("is32BAligned", 0), ("isDoubleBuffer", 4), ("rowLen", 8), ("colLen", 16)),
        *(("baseRowLen", 24), ("baseColLen", 28), ("activateLeft", 32), ("biasIsEmpty", 36)),
        *(("quantScaleIsEmpty", 40), ("activateScaleIsEmpty", 44), ("swiColLen", 48)),
        *(("perRowLen", 56), ("modRowLen", 64), ("usedCoreNum", 72)),
    ]


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the data beside the repository")
def test_layouts_and_vectors_of_the_public_sources():
    layouts = json.loads((SHARED / "tiling_layouts.json").read_text())
    for kernel, releases in layouts.items():
        for release in set(releases) & set(release_names()):
            laid = layout(find_structure(kernel), release)
            public = releases[release]
            assert laid.bytes == public["bytes"]
            assert [tuple(member) for member in laid.members] == [
                (one["name"], one["type"], one["offset"]) for one in public["fields"]
            ]
    unlisted = {
        *("CrossEntropyLoss", "SwiGlu", "SwiGluGrad", "ApplyAdamWV2"),
        *("RotaryPositionEmbedding", "RotaryPositionEmbeddingGrad"),
        *("AddRmsNorm", "InplaceAddRmsNorm"),
    }
    assert {one.kernel for one in structures()} - set(layouts) == unlisted
    for line in (SHARED / "tiling_vectors.jsonl").read_text().splitlines():
        vector = json.loads(line)
        decoded = decode_tiling(vector["kernel"], vector["words"], release=vector["release"])
        assert decoded == vector["fields"]


CALL = ("plan", "rms_norm_grad", "--dy", "64x4096:bf16", "--gamma", "4096:bf16")


def test_plan_writes_the_bytes_of_its_tiling(capsys, monkeypatch, tmp_path):
    file = tmp_path / "tiling.bin"
    options = ("--release", "9.0", "--tiling-bytes", file, "--json")
    plan = npu_sim(capsys, monkeypatch, *CALL, *options).data["plan"]
    decoded = decode_tiling(plan["kernel"], file.read_bytes(), release="9.0")
    assert decoded == dict(flattened(plan["tiling"]))


def test_a_kernel_without_a_known_structure_is_refused(capsys, monkeypatch, tmp_path):
    call = ("conv_tbc_backward", "--self", "64x2x32:fp16", "--input", "64x2x16:fp16")
    weight = ("--weight", "1x16x32:fp16", "--bias", "32:fp16", "--pad", "0")
    file = tmp_path / "tiling.bin"
    outcome = npu_sim(capsys, monkeypatch, "plan", *call, *weight, "--tiling-bytes", file)
    assert outcome.code == 64
    assert not file.exists()
