import numpy as np
import pytest

import npu_sim
from npu_sim.operators.shared.study import formula_results, study_call
from npu_sim.show.precision import precision_document, precision_lines
from npu_sim.studies.determinism import terms_of
from npu_sim.studies.precision import HISTOGRAM_EDGES, study_precision
from tests.studies import calls

CALLS = {
    "embedding_dense_backward": calls.embedding(200, 20, 30, scale_grad_by_freq=True),
    "rms_norm": calls.rms_norm_forward(30, 60),
    "rms_norm_grad": calls.rms_norm(30, 60),
    "cross_entropy_loss_grad": calls.cross_entropy(20, 15),
    "moe_token_permute": calls.permutation(20, 4, 16),
    "moe_token_permute_grad": calls.moe(20, 4, 16),
    "moe_token_unpermute": calls.unpermute(20, 4, 16, dropped=3),
    "moe_token_unpermute_grad": calls.unpermute_grad(20, 4, 16),
    "conv_tbc_backward": calls.conv(6, 3, 8, 8, 2, 1),
}


@pytest.mark.parametrize("operator", CALLS)
def test_every_dtype_passes_its_standard(operator):
    study = study_precision(operator, **CALLS[operator])
    assert {entry.dtype for entry in study.outputs} >= {"float32"}
    assert len({entry.variant for entry in study.outputs}) == (
        12 if operator == "conv_tbc_backward" else 3
    )
    for entry in study.outputs:
        assert entry.verdicts[0].passed, (entry.variant, entry.output, entry.verdicts[0])


@pytest.mark.parametrize("operator", CALLS)
def test_the_error_terms_of_an_element_equal_the_formula(operator):
    call = study_call(operator, CALLS[operator])
    golden = formula_results(operator, call.arguments, call.tensors)
    for output, values in golden.items():
        for place in (0, values.size // 2, values.size - 1):
            index = tuple(int(at) for at in np.unravel_index(place, values.shape))
            total = sum(term.value for term in terms_of(call, output, index))
            assert total == pytest.approx(float(values[index]), rel=1e-6, abs=1e-9), (output, index)


def test_copies_have_no_error_and_positions_have_no_ulp():
    outputs = study_precision("moe_token_permute", **CALLS["moe_token_permute"]).outputs
    assert {(entry.output, entry.max_ulp) for entry in outputs} == {("permuted_tokens", 0.0)}


def test_the_histogram_counts_every_element_once():
    for entry in study_precision(
        "moe_token_permute_grad", **CALLS["moe_token_permute_grad"]
    ).outputs:
        assert sum(count for _, count in entry.histogram) == 20 * 16
        assert tuple(edge for edge, _ in entry.histogram) == HISTOGRAM_EDGES


def test_a_single_rounding_has_an_error_of_at_most_half_an_ulp():
    for entry in study_precision(
        "moe_token_permute_grad", **CALLS["moe_token_permute_grad"]
    ).outputs:
        final = next(cause for cause in entry.causes if cause.name == "final rounding")
        assert 0.25 < final.max_ulp <= 0.5


def test_hf32_has_larger_errors_than_fp32_and_bias_is_never_converted():
    study = study_precision("conv_tbc_backward", **CALLS["conv_tbc_backward"])
    by_variant = {
        (entry.variant.split(",")[0], entry.variant.split()[2], entry.output): entry.max_ulp
        for entry in study.outputs
    }
    assert (
        by_variant["float32", "3", "grad_weight"] > 100 * by_variant["float32", "0", "grad_weight"]
    )
    assert by_variant["float32", "3", "grad_bias"] == by_variant["float32", "0", "grad_bias"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("study", ["precision", "determinism", "invariance"])
def test_inf_and_nan_are_studied_without_a_warning_of_numpy(study):
    row = [np.inf, np.nan, 1e38, -1e38, 3e38, 1.0, 0.0, 2.0]
    grad, indices = np.array([row] * 4, np.float32), np.zeros(4, np.int32)
    call = {"grad": grad, "indices": indices, "num_weights": 3}
    answer = getattr(npu_sim.study, study)("embedding_dense_backward", **call)
    assert answer.operator == "embedding_dense_backward"


def test_equal_outputs_are_shown_once_with_all_their_variants():
    call = {"input": "6x2x16:fp16", "weight": "1x16x16:fp16"}
    study = study_precision("conv_tbc_backward", **call)
    assert len([output for output in study.outputs if output.output == "grad_bias"]) == 12
    labels, shown = [], ""
    for label, value, _ in precision_lines(study):
        shown = label or shown  # stands once, above all lines that it labels
        if value.startswith("grad_bias"):
            labels.append(shown)
    assert labels == [
        "float16",
        "bfloat16",
        "float32, cubeMathType 0",
        "float32, cubeMathType 1, 3",
        "float32, cubeMathType 2",
    ]
    charts = precision_document(study).sections[-1].blocks
    assert len({chart.caption for chart in charts}) == len(charts) < len(study.outputs)


def test_a_missing_input_is_named():
    with pytest.raises(npu_sim.UsageError, match="input is missing"):
        study_precision("conv_tbc_backward")


def test_an_output_without_elements_has_no_verdict():
    study = study_precision("rms_norm", x="0x8:bf16", gamma="8:bf16")
    assert {(output.elements, output.verdicts, output.causes) for output in study.outputs} == {
        (0, (), ())
    }
    text = str(study)
    assert text.startswith("rms_norm on atlas_a2, Ascend910B1: no elements")
    assert "y bfloat16: no elements" in text
    assert "passes" not in text.partition("against")[0]
    assert precision_document(study).sections[-1].blocks


def test_results_beyond_the_range_of_a_dtype_are_counted():
    call = {"grad": np.full((4, 8), 60000, np.float32), "indices": np.zeros(4, np.int32)}
    half, *others = study_precision("embedding_dense_backward", num_weights=2, **call).outputs
    assert half.input_dtype == "float16"
    (note,) = [cause.note for cause in half.causes if cause.name == "overflow"]
    assert note.startswith("8 results beyond the range become infinite")
    assert not half.verdicts[0].passed
    assert all(cause.name != "overflow" for other in others for cause in other.causes)
