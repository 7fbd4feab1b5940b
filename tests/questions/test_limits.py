import dataclasses
import re

import pytest

import npu_sim
from npu_sim import AclnnError
from npu_sim.cores import load_profile
from npu_sim.framework.planning import fixed_call
from npu_sim.operators.loading import load_operator
from npu_sim.questions.limits import find_bound, legal_ranges, refusals
from npu_sim.questions.varied_calls import device_groups
from npu_sim.tiling import cross_entropy_loss_grad as cross_entropy
from tests.cases import every
from tests.rules import rules_of


def largest(row, limits):
    return getattr(row, limits).largest


def embedding_formula(limits, cores, num_weights, index_bytes):
    """Closed formulas of the specification page, strict for the documented bound."""
    counts = num_weights // cores + num_weights % cores
    factor = {4: 36, 8: 20}[index_bytes]
    if limits == "documented":
        return -(-(180192 - index_bytes * counts) // factor) - 1
    return (262144 - 16384 - 32 - index_bytes * counts) // factor


@pytest.mark.parametrize(("index_dtype", "index_bytes"), [("int32", 4), ("int64", 8), ("uint8", 4)])
@pytest.mark.parametrize("num_weights", [1, 33, 32000, 500000])
def test_embedding_dims_follow_the_closed_formulas(index_dtype, index_bytes, num_weights):
    table = npu_sim.limits(
        "embedding_dense_backward",
        "dim",
        product="atlas_train",
        scale_grad_by_freq=True,
        num_weights=num_weights,
        indices_dtype=index_dtype,
    )
    cores = {"Ascend910A": 32, "Ascend910B": 30}
    assert [row.socs[0] for row in table.rows] == list(cores)
    for row in table.rows:
        for limits in ("documented", "hardware"):
            assert largest(row, limits) == embedding_formula(
                limits, cores[row.socs[0]], num_weights, index_bytes
            )
            assert "embeddingDim" in getattr(row, limits).above.message


def test_the_embedding_frontier_follows_the_closed_formula():
    table = npu_sim.limits(
        "embedding_dense_backward",
        ["dim", "num_weights"],
        product="atlas_train",
        soc="Ascend910A",
        scale_grad_by_freq=True,
    )
    assert len(table.rows) > 15
    for row in table.rows:
        for limits in ("documented", "hardware"):
            expected = embedding_formula(limits, 32, row.at, 4)
            assert getattr(row, limits).ranges == (
                (0, max(expected, 0)),
            )  # zero columns are always legal
    listed = npu_sim.limits(
        "embedding_dense_backward",
        ["dim", "num_weights=7,1000"],
        product="atlas_train",
        scale_grad_by_freq=True,
    )
    assert [row.at for row in listed.rows] == [7, 1000, 7, 1000]


EMBEDDING, CROSS_ENTROPY, MOE, RMS_NORM, CONV = (
    "embedding_dense_backward",
    "cross_entropy_loss_grad",
    "moe_token_permute_grad",
    "rms_norm_grad",
    "conv_tbc_backward",
)
BRUTE = [
    (EMBEDDING, "dim", 0, "atlas_train", {"scale_grad_by_freq": True, "num_weights": 1430000}),
    (EMBEDDING, "num_weights", 0, "atlas_train", {"scale_grad_by_freq": True, "dim": 4990}),
    (EMBEDDING, "rows", 0, "atlas_a2", {}),
    (CROSS_ENTROPY, "N", 444800, "atlas_a2", {"C": 32000}),
    (CROSS_ENTROPY, "N", 199700, "atlas_a2", {"C": 3}),
    (CROSS_ENTROPY, "C", 0, "atlas_a2", {"N": 447360, "ignore_index": 5}),
    (CROSS_ENTROPY, "ignore_index", -1000, "atlas_a2", {"C": 1000}),
    (MOE, "hidden", 7500, "atlas_a2", {"num_topk": 9000, "dtype": "fp32"}),
    (MOE, "num_topk", 0, "atlas_a2", {"hidden": 11776}),
    (RMS_NORM, "col", 0, "atlas_inference", {"dtype": "fp16", "gamma_dtype": "fp16"}),
    (CONV, "K", 0, "atlas_a2", {"T": 300, "pad": 3}),
    (CONV, "pad", 0, "atlas_train", {"T": 1, "K": 9}),
    (CONV, "T", 0, "atlas_a2", {"K": 200, "pad": 20, "deterministic": True}),
]


@pytest.mark.parametrize(("operator", "name", "start", "product", "fixed"), every(3, BRUTE))
@pytest.mark.parametrize("limits", ["documented", "hardware"])
def test_bisection_equals_brute_force(operator, name, start, product, fixed, limits):
    """The search covers the whole domain, brute force six hundred numbers of it."""
    declaration = load_operator(operator)
    fixed = dict(fixed)
    call = fixed_call(declaration, fixed, bool(fixed.pop("deterministic", False)))
    axis, profile = declaration.axis(name), load_profile(product)
    bound = find_bound(call, axis, profile, limits)
    refusal = refusals(call, axis, profile, limits)
    for number in range(start, start + 600):
        legal = any(first <= number <= last for first, last in bound.ranges)
        assert legal == (refusal(number) is None), number


@pytest.mark.parametrize(
    ("operator", "name", "product", "fixed", "largest", "argument"),
    [
        (
            MOE,
            "num_topk",
            "ascend_950",
            {"tokens": 1 << 20, "hidden": 1 << 14},
            1 << 28,
            "p.*_grad",
        ),
        (MOE, "tokens", "atlas_a2", {"num_topk": 1, "hidden": 1 << 30}, 1 << 32, "p.*_grad"),
        ("rms_norm", "row", "atlas_a2", {"col": 1 << 30}, 1 << 32, "x"),
        (EMBEDDING, "num_weights", "atlas_a2", {"dim": 1 << 36, "rows": 1}, 1 << 25, "out"),
        ("swi_glu", "col", "atlas_a2", {"row": 1 << 30}, 1 << 31, "x"),
    ],
)
def test_a_tensor_that_int64_does_not_count_is_beyond_the_limit(
    operator, name, product, fixed, largest, argument
):
    (row, *_) = npu_sim.limits(operator, name, product=product, **fixed).rows
    assert row.hardware.largest == largest - 1
    error = row.hardware.above
    assert re.fullmatch(argument, error.argument)
    assert "more than int64 counts" in error.message


def test_where_every_size_is_beyond_int64_nothing_is_legal():
    (row,) = npu_sim.limits(MOE, "num_topk", soc="910B3", tokens=1 << 40, hidden=1 << 40).rows
    assert row.hardware.ranges == ()
    assert "more than int64 counts" in row.hardware.above.message


@pytest.mark.parametrize(("largest_col", "is_said"), [(1 << 20, True), (1 << 30, False)])
def test_an_open_end_states_where_the_search_ended(largest_col, is_said):
    text = str(npu_sim.limits("rms_norm", "row", soc="Ascend910B3", col=largest_col))
    assert ("nothing is refused up to 1,099,511,627,776, where the search ends" in text) == is_said


def test_other_arguments_that_affect_legality_are_checked():
    table = npu_sim.limits(CROSS_ENTROPY, "N", product="atlas_a2", label_smoothing=0.5)
    assert all(row.documented.ranges == () for row in table.rows)
    assert all("label_smoothing" in row.documented.above.message for row in table.rows)
    strided = npu_sim.limits(
        RMS_NORM,
        "row",
        product="atlas_a2",
        dy="4x64:bf16",
        x="4x64:bf16:strided",
        rstd="4:fp32",
        gamma="64:bf16",
    )
    assert all("contiguous" in row.hardware.above.message for row in strided.rows)


# Largest N before the unsigned arithmetic wraps, and largest N with C = 32000, for 48 and 40 cores;
# from the page, "The limit".
CROSS_ENTROPY_ROWS = {
    ("none", False): {
        "float32": ((448512, 445056), (373760, 370880)),
        "float16": ((409728, 405504), (341440, 337920)),
    },
    ("none", True): {
        "float32": ((376704, 374016), (313920, 311680)),
        "float16": ((348864, 345216), (290720, 287680)),
    },
    ("mean", False): {
        "float32": ((448512, 445056), (373760, 370880)),
        "float16": ((448512, 443904), (373760, 369920)),
    },
    ("mean", True): {
        "float32": ((376704, 373824), (313920, 311520)),
        "float16": ((376704, 372864), (313920, 310720)),
    },
    ("sum", False): {
        "float32": ((554304, 549888), (461920, 458240)),
        "float16": ((554304, 548352), (461920, 456960)),
    },
    ("sum", True): {
        "float32": ((448512, 445056), (373760, 370880)),
        "float16": ((448512, 443904), (373760, 369920)),
    },
}


@pytest.mark.parametrize(("reduction", "weighted"), CROSS_ENTROPY_ROWS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_cross_entropy_rows_equal_the_specification_page(reduction, weighted, dtype):
    fixed = {"reduction": reduction, "weighted": weighted, "dtype": dtype, "C": 32000}
    table = npu_sim.limits(CROSS_ENTROPY, "N", product="atlas_a2", **fixed)
    expected = CROSS_ENTROPY_ROWS[reduction, weighted][dtype]
    for row, (before_wrap, before_refusal) in zip(table.rows, expected, strict=True):
        assert row.documented.ranges == ((0, 199999),)
        assert row.hardware.ranges == ((0, before_refusal),)
        device, code = (
            load_profile("atlas_a2", row.socs[0]).device,
            cross_entropy.DTYPE_CODES[dtype],
        )

        def fits(rows, device=device, code=code):
            problem = cross_entropy.Problem(
                rows, 32000, code, weighted, cross_entropy.REDUCTIONS.index(reduction)
            )
            return cross_entropy.tile(problem, device, rules_of(CROSS_ENTROPY)).wraps == 0

        assert legal_ranges(fits, 1, 2**40) == [(1, before_wrap)]


@pytest.mark.parametrize(
    ("dtype", "hidden", "largest"),
    [("bf16", 1024, 44416), ("fp32", 1024, 43904), ("fp16", 11776, 1920), ("fp32", 15872, 1408)],
)
def test_moe_topk_is_512_documented_and_bounded_by_hardware(dtype, hidden, largest):
    for row in npu_sim.limits(MOE, "num_topk", product="atlas_a2", dtype=dtype, hidden=hidden).rows:
        assert row.documented.ranges == ((1, 512),)
        assert row.hardware.ranges == ((1, largest),)
        assert "512" in row.documented.above.message


@pytest.mark.parametrize(("dtype", "worst"), [("bf16", 1920), ("fp32", 1408)])
def test_every_hidden_size_accepts_exactly_the_smallest_topk_limit(dtype, worst):
    def hidden_sizes(num_topk):
        (row, *_) = npu_sim.limits(
            MOE, "hidden", product="atlas_a2", dtype=dtype, num_topk=num_topk
        ).rows
        return row.hardware

    assert hidden_sizes(worst).as_dict()["unlimited"]
    assert len(hidden_sizes(worst).ranges) == 1
    assert (
        not hidden_sizes(worst + 1).as_dict()["unlimited"]
        or len(hidden_sizes(worst + 1).ranges) > 1
    )


@pytest.mark.parametrize(("dtype", "minimum"), [("fp16", 16), ("fp32", 8)])
def test_the_last_axis_of_rms_norm_holds_32_bytes_on_the_inference_series(dtype, minimum):
    table = npu_sim.limits(RMS_NORM, "col", dtype=dtype, gamma_dtype=dtype)
    by_product = {row.product: row for row in table.rows}
    for limits in ("documented", "hardware"):  # no physical reason is published: both
        assert getattr(by_product["atlas_inference"], limits).ranges == ((minimum, 2**32 - 1),)
        assert getattr(by_product["atlas_a2"], limits).ranges == ((1, 2**32 - 1),)
    assert "32 bytes" in by_product["atlas_inference"].documented.below.message


def test_conv_taps_are_limited_by_the_document_the_sequence_or_the_buffers():
    def taps(product, **fixed):
        (row, *_) = npu_sim.limits(CONV, "K", product=product, dtype="fp16", **fixed).rows
        return row

    assert taps("atlas_a2", T=100, pad=2).documented.largest == 100 + 2 * 2
    assert taps("atlas_a2", T=1000).documented.largest == 255
    buffers = taps("atlas_a2", T=4000).hardware
    assert buffers.above.status == 561103
    assert buffers.largest < 4000


def test_ends_of_the_ranges_are_exact_and_have_a_reason():
    table = npu_sim.limits(
        "embedding_dense_backward",
        "num_weights",
        product="atlas_train",
        scale_grad_by_freq=True,
        dim=1533,
    )
    for row in table.rows:
        for limits in ("documented", "hardware"):
            bound = getattr(row, limits)
            # legal and refused sizes alternate at the end, with the remainder by the cores
            assert len(bound.ranges) > 20
            assert bound.smallest == 1
            assert bound.below.argument == "num_weights"
            call = {"grad": "1024x1533:fp32", "indices": "1024:int32", "scale_grad_by_freq": True}
            options = {"product": "atlas_train", "soc": row.socs[0], "limits": limits}
            npu_sim.plan("embedding_dense_backward", num_weights=bound.largest, **call, **options)
            with pytest.raises(AclnnError) as caught:
                npu_sim.plan(
                    "embedding_dense_backward", num_weights=bound.largest + 1, **call, **options
                )
            assert caught.value.message == bound.above.message


def test_unsupported_products_and_unlimited_sizes_are_marked():
    table = npu_sim.limits("embedding_dense_backward", "dim")
    by_product = {row.product: row for row in table.rows}
    assert by_product["atlas_inference"].documented.ranges == ()
    assert "not supported" in by_product["atlas_inference"].documented.above.message
    assert by_product["atlas_a2"].documented.as_dict()["unlimited"] is True
    assert {soc for row in table.rows for soc in row.socs} == {
        soc for _, socs in device_groups(None) for soc in socs
    }


def test_tensors_and_size_names_give_the_same_limits():
    natural = {
        "rows": 8,
        "num_weights": 100,
        "scale_grad_by_freq": True,
        "indices_dtype": "int64",
        "product": "atlas_train",
    }
    tensors = {
        "grad": "2x4x16:fp32",
        "indices": "2x4:int64",
        "num_weights": 100,
        "scale_grad_by_freq": True,
        "product": "atlas_train",
    }
    by_sizes = npu_sim.limits("embedding_dense_backward", "dim", **natural)
    by_tensors = npu_sim.limits("embedding_dense_backward", "dim", **tensors)
    assert [row.as_dict() for row in by_sizes.rows] == [row.as_dict() for row in by_tensors.rows]
    assert by_sizes.fixed == by_tensors.fixed


def test_an_own_product_has_its_own_limits(tmp_path):
    from npu_sim.cores import config_directory

    text = (config_directory() / "atlas_train.yaml").read_text(encoding="utf-8")
    profile = tmp_path / "mine.yaml"
    profile.write_text(text.replace("ub_bytes: 262144", "ub_bytes: 131072"), encoding="utf-8")
    (row, *_) = npu_sim.limits(
        "embedding_dense_backward",
        "dim",
        product=str(profile),
        scale_grad_by_freq=True,
        num_weights=32,
    ).rows
    assert row.hardware.largest == (131072 - 16384 - 32 - 4 * 1) // 36
    assert row.documented.largest == -(-(180192 - 4 * 1) // 36) - 1


@pytest.mark.parametrize(
    ("vary", "fixed", "texts"),
    [
        ("width", {}, ("width", "dim")),
        ("grad_dtype", {}, ("grad_dtype", "numbers")),
        (["dim", "rows", "num_weights"], {}, ("3 names",)),
        (["dim", "dim"], {}, ("twice",)),
        ("dim", {"rows": "few"}, ("rows", "few")),
        ("dim", {"colour": 1}, ("colour",)),
        ("dim", {"product": "atlas_a9"}, ("atlas_a9",)),
        ("dim", {"soc": "Ascend911"}, ("Ascend911",)),
    ],
)
def test_unknown_names_are_named_in_the_error(vary, fixed, texts):
    with pytest.raises(npu_sim.UsageError) as caught:
        npu_sim.limits("embedding_dense_backward", vary, **fixed)
    for word in texts:
        assert word in f"{caught.value.argument} {caught.value.message} {caught.value.hint}"


def test_the_table_prints_its_content():
    table = npu_sim.limits(
        "embedding_dense_backward",
        "dim",
        product="atlas_train",
        scale_grad_by_freq=True,
        num_weights=32000,
    )
    text = str(table)
    assert "0 .. 4894" in text
    assert "0 .. 6714" in text
    assert "must be < 180192" in " ".join(text.split())
    assert dataclasses.asdict(table.rows[0].documented)["ranges"] == ((0, 4894),)
