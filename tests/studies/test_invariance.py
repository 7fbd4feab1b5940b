import numpy as np
import pytest

import npu_sim
from npu_sim.operators.add_rms_norm import study as add_rms_norm
from npu_sim.operators.cross_entropy_loss import study as cross_entropy_loss
from npu_sim.operators.shared.study import study_call
from npu_sim.studies.invariance import study_invariance
from tests.studies import calls


def answers(operator, call):
    return {
        (row.change, row.output): row.changes for row in study_invariance(operator, **call).rows
    }


def test_a_row_of_rms_norm_is_batch_invariant_but_dgamma_depends_on_the_cores():
    verdicts = answers("rms_norm_grad", calls.rms_norm(230, 300))
    assert verdicts["batch twice as large", "dx"] is False
    assert verdicts["8 padding rows", "dx"] is False
    assert verdicts["another position in the batch", "dx"] is False
    cores = next(change for change, _ in verdicts if change.startswith("40 vector"))
    assert verdicts[cores, "dx"] is False
    assert verdicts[cores, "dgamma"] is True
    assert verdicts["batch twice as large", "dgamma"] is None


def test_an_embedding_row_depends_on_batch_position_cores_and_mode():
    verdicts = answers("embedding_dense_backward", calls.embedding(900, 40, 40, used_weights=30))
    for change in (
        "batch twice as large",
        "another position in the batch",
        "deterministic computation on",
    ):
        assert verdicts[change, "grad_weight"] is True


def test_tokens_and_losses_are_invariant():
    for operator, output, call in (
        ("moe_token_permute_grad", "input_grad", calls.moe(20, 4, 16)),
        ("moe_token_unpermute", "unpermuted_tokens", calls.unpermute(20, 4, 16)),
        ("moe_token_unpermute_grad", "probs_grad", calls.unpermute_grad(20, 4, 16)),
        ("moe_token_permute", "permuted_tokens", calls.permutation(20, 4, 16)),
        ("moe_token_permute", "sorted_indices", calls.permutation(20, 4, 16)),
        ("cross_entropy_loss_grad", "x_grad", calls.cross_entropy(20, 16, reduction="sum")),
    ):
        verdicts = answers(operator, call)
        assert verdicts["batch twice as large", output] is False
        of_one_family = {k: v for k, v in verdicts.items() if k[0] != "product ascend_950"}
        assert all(changes in (False, None) for changes in of_one_family.values()), verdicts


def test_ascend_950_adds_the_gradients_of_a_token_in_another_order():
    verdicts = answers("moe_token_permute_grad", calls.moe(20, 4, 16))
    assert verdicts["product ascend_950", "input_grad"] is True


def test_a_mean_depends_on_its_batch():
    assert (
        answers("cross_entropy_loss_grad", calls.cross_entropy(20, 16))[
            "batch twice as large", "x_grad"
        ]
        is True
    )


def test_unsupported_products_are_not_applicable():
    rows = study_invariance("moe_token_permute_grad", **calls.moe(20, 4, 16)).rows
    refused = next(row for row in rows if row.change == "product atlas_train")
    assert refused.changes is None
    assert "not supported" in refused.note


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_the_first_differing_element_is_named(dtype):
    rows = study_invariance(
        "embedding_dense_backward", **calls.embedding(900, 40, 40, dtype, used_weights=30)
    ).rows
    for row in rows:
        if row.changes:
            assert row.first is not None
            assert row.before != row.after


def test_releases_that_a_product_does_not_have_are_no_changes():
    call = {"x": "8x64:fp16", "gamma": "64:fp16", "product": "ascend_350", "release": "9.2"}
    assert not [change for change, _ in answers("rms_norm", call) if "release" in change]


def normed(rows, columns, dtype, **more):
    return {"x1": f"{rows}x{columns}:{dtype}", "gamma": f"{columns}:{dtype}", **more}


def logits(rows, classes, dtype, **more):
    return {"input": f"{rows}x{classes}:{dtype}", **more}


ALL = [(1, None)]
BY_ROWS = [
    ("add_rms_norm", normed(8, 4096, "bf16"), [(1, 48), (49, None)], True),
    ("add_rms_norm", normed(60, 4096, "bf16"), [(1, 48), (49, None)], True),
    ("add_rms_norm", normed(8, 4096, "bf16", soc="Ascend910B4"), [(1, 40), (41, None)], True),
    ("add_rms_norm", normed(8, 4096, "bf16", product="atlas_a3"), [(1, 48), (49, None)], True),
    ("add_rms_norm", normed(8, 13000, "bf16"), ALL, False),
    ("add_rms_norm", normed(8, 512, "fp16", product="atlas_inference"), ALL, False),
    ("add_rms_norm", normed(8, 512, "bf16", product="ascend_950"), ALL, False),
    ("cross_entropy_loss", logits(8, 30000, "fp32"), [(1, 200000)], False),
    ("cross_entropy_loss", logits(8, 60000, "bf16", product="ascend_950"), ALL, False),
]


@pytest.mark.parametrize(("operator", "call", "ranges", "differs"), BY_ROWS)
def test_the_numbers_of_rows_that_give_a_row_other_bits_are_one_table(
    operator, call, ranges, differs
):
    found = study_invariance(operator, **call).by_rows
    assert [(count.first, count.last) for count in found.counts] == ranges
    assert found.differs is differs is not found.is_invariant
    assert bool(found.advice) is bool(found.instead) is differs


def test_templates_with_the_same_arithmetic_have_the_same_bits_for_any_data():
    found = study_invariance("add_rms_norm", **normed(8, 4096, "fp16")).by_rows
    assert len(found.counts) == 2
    assert found.is_invariant
    found = study_invariance("add_rms_norm", **normed(8, 4096, "fp32")).by_rows
    assert not found.differs
    assert not found.is_invariant  # x of -0 + -0


def test_rows_are_computed_as_in_a_call_of_more_rows():
    arrays = calls.add_rms_norm(49, 4096)
    few = {name: array[:5] if name != "gamma" else array for name, array in arrays.items()}
    whole = npu_sim.run("add_rms_norm", **arrays).outputs
    found = add_rms_norm.in_call_of(study_call("add_rms_norm", few), 49)
    for name, values in found.items():
        assert np.array_equal(values.astype(np.float32), whole[name][:5].astype(np.float32)), name


def test_a_cut_row_depends_on_the_rows_up_to_the_documented_number():
    call = logits(64, 64000, "fp32", reduction="none")
    found = study_invariance("cross_entropy_loss", **call).by_rows
    first, second, *_, last = found.counts
    assert (first.first, first.last, first.is_call) == (1, 768, True)
    assert second.first == 769
    assert last.last == 200000
    assert found.differs
    assert set(second.different) == {"loss", "log_prob"}
    plan = npu_sim.plan("cross_entropy_loss", **logits(769, 64000, "fp32"))
    assert second.template == f"chunks of {plan.tiling['inputUbSize']} columns"


def test_a_row_in_a_batch_of_its_own_size_has_the_bits_of_the_call():
    call = study_call("cross_entropy_loss", logits(8, 64000, "fp32", reduction="none"))
    outputs = call.run().outputs
    for name, values in cross_entropy_loss.in_batch(call, 8).items():
        assert np.array_equal(values, outputs[name])


EMPTY = {
    "rms_norm": {"x": np.zeros((0, 64), np.float32), "gamma": np.ones(64, np.float32)},
    "embedding_dense_backward": calls.embedding(0, 64, 10),
    "swi_glu": {"x": np.zeros((0, 64), np.float32)},
    "rotary_position_embedding": {
        "x": np.zeros((0, 2, 4, 64), np.float32),
        "cos": np.ones((1, 2, 1, 64), np.float32),
        "sin": np.zeros((1, 2, 1, 64), np.float32),
    },
    "cross_entropy_loss": {
        "input": np.zeros((0, 4), np.float32),
        "target": np.zeros(0, np.int64),
        "product": "ascend_950",
    },
}


@pytest.mark.parametrize(("operator", "call"), EMPTY.items())
def test_a_call_without_rows_has_the_same_bits_under_every_change_that_it_can_have(operator, call):
    verdicts = answers(operator, call)
    assert verdicts
    assert True not in verdicts.values()
    assert not any("batch" in change for change, _ in verdicts)


def test_bits_of_another_architecture_are_not_known_where_a_model_decides_them():
    call = {"x": np.linspace(-4, 4, 8 * 64, dtype=np.float32).reshape(8, 64)}
    rows = {row.change: row for row in study_invariance("swi_glu", **call).rows}
    other = rows["product ascend_950"]
    assert (other.changes, other.is_open) == (None, True)
    assert "exp and division in fp32" in other.note
    assert rows["product atlas_a3"].changes is False  # the same architecture
    permuted = answers("moe_token_permute", calls.permutation(20, 4, 16))
    assert permuted["product ascend_950", "permuted_tokens"] is False  # copies are exact
