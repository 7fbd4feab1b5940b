import pytest

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
