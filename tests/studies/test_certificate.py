import numpy as np
import pytest

from npu_sim.orders import trees
from npu_sim.orders.claims import Claim
from npu_sim.show.certificate import certificate_lines
from npu_sim.status import UsageError
from npu_sim.studies.certificate import certify, probed_tree
from tests.cases import every
from tests.studies import calls

PATHS = {
    "key 100": ("embedding_dense_backward", calls.embedding(300, 40, 25)),
    "key 100, random order": (
        "embedding_dense_backward",
        calls.embedding(300, 40, 25, core_order="random", seed=5),
    ),
    "key 100, several batches": (
        "embedding_dense_backward",
        calls.embedding(3000, 500, 400, core_order="round_robin"),
    ),
    "key 101": (
        "embedding_dense_backward",
        calls.embedding(200, 40, 15, scale_grad_by_freq=True, core_order="reverse"),
    ),
    "key 0": ("embedding_dense_backward", calls.embedding(200, 600, 12, core_order="round_robin")),
    "key 0, release 8.3": ("embedding_dense_backward", calls.embedding(600, 600, 6, release="8.3")),
    "key 1": ("embedding_dense_backward", calls.embedding(200, 600, 12, scale_grad_by_freq=True)),
    "key 10": ("embedding_dense_backward", calls.embedding(200, 40, 8, deterministic=True)),
    "key 11": (
        "embedding_dense_backward",
        calls.embedding(200, 40, 8, deterministic=True, scale_grad_by_freq=True),
    ),
    "native fp16": (
        "embedding_dense_backward",
        calls.embedding(600, 520, 101000, "fp16", used_weights=12),
    ),
    "native bf16, small dim": (
        "embedding_dense_backward",
        calls.embedding(600, 300, 176000, "bf16", used_weights=30, core_order="reverse"),
    ),
    "training series": (
        "embedding_dense_backward",
        calls.embedding(200, 33, 12, product="atlas_train", core_order="reverse"),
    ),
    "training series, scaled": (
        "embedding_dense_backward",
        calls.embedding(200, 33, 12, product="atlas_train", scale_grad_by_freq=True),
    ),
    "lanes": ("rms_norm_grad", calls.rms_norm(60, 70, core_order="random", seed=3)),
    "lanes, bf16": ("rms_norm_grad", calls.rms_norm(60, 70, "bf16")),
    "halving": ("rms_norm_grad", calls.rms_norm(60, 700, deterministic=True)),
    "halving, inference series": (
        "rms_norm_grad",
        calls.rms_norm(40, 130, product="atlas_inference", core_order="reverse"),
    ),
    "pieces": ("rms_norm_grad", calls.rms_norm(100, 6100, core_order="random", seed=9)),
    "pieces, deterministic": ("rms_norm_grad", calls.rms_norm(100, 6100, deterministic=True)),
    "forward, lanes": ("rms_norm", calls.rms_norm_forward(60, 70, "bf16")),
    "forward, halving": ("rms_norm", calls.rms_norm_forward(60, 2100, "bf16", "fp32")),
    "forward, single row": ("rms_norm", calls.rms_norm_forward(4, 12500, "fp16", "fp32")),
    "forward, pieces": ("rms_norm", calls.rms_norm_forward(4, 30001, "fp16")),
    "mean": ("cross_entropy_loss_grad", calls.cross_entropy(30, 20)),
    "tokens": ("moe_token_permute_grad", calls.moe(20, 8, 64)),
    "weighted tokens": (
        "moe_token_unpermute",
        calls.unpermute(20, 8, 64, "bf16", "bf16", dropped=9),
    ),
    **{
        f"gradient of probs, {hidden} columns": (
            "moe_token_unpermute_grad",
            calls.unpermute_grad(5, 2, hidden, dtype, probs),
        )
        for hidden, dtype, probs in (
            (33, "fp32", "fp32"),
            (500, "bf16", "fp32"),
            (1100, "fp16", "bf16"),
            (9000, "bf16", "fp32"),
        )
    },
    "copied tokens": ("moe_token_unpermute", calls.unpermute(20, 1, 64, "fp16", None)),
    "copies": ("moe_token_permute", calls.permutation(20, 8, 64, "bf16")),
    "copies, some dropped": ("moe_token_permute", calls.permutation(20, 8, 64, num_out_tokens=-30)),
    "dropped tokens, fp16": ("moe_token_permute_grad", calls.moe(20, 8, 64, "fp16", dropped=20)),
}


@pytest.mark.parametrize("path", every(3, PATHS))
def test_the_tree_probed_from_the_kernel_equals_the_declared_tree(path):
    operator, call = PATHS[path]
    certificates = certify(operator, **call)
    assert certificates
    assert all(certificate.agrees for certificate in certificates)


def test_a_wrong_declaration_is_detected():
    def outside(codes):
        sizes = trees.meeting_sizes(((0, 1), 2), 3)
        return np.array([3 - sizes[list(code).index(1), list(code).index(-1)] for code in codes])

    assert probed_tree(3, outside) == ((0, 1), 2)
    wrong = Claim("out", (0,), 1, ("a", "b", "c"), (0, (1, 2)), outside)
    assert probed_tree(3, wrong.outside) != trees.canonical(wrong.tree)


def test_without_a_probe_agreement_is_unknown():
    (certificate, *_) = certify("moe_token_permute_grad", probe=False, **calls.moe(4, 2, 8))
    assert (certificate.probe, certificate.agrees) == ("none", None)
    assert certificate.as_dict()["tree"] == {"fold": [0, 1]}


def test_an_unknown_argument_is_refused():
    with pytest.raises(UsageError, match="padding_index: no such argument"):
        certify("embedding_dense_backward", padding_index=3, **calls.embedding(8, 4, 9))


def test_one_term_is_written_in_the_singular():
    call = {"dy": "1x64:fp32", "gamma": "64:fp32"}
    heads = [value for _, value, _ in certificate_lines(certify("rms_norm_grad", **call))]
    assert "dgamma[0], 64 elements alike, 1 term" in heads


def test_an_empty_call_has_no_sums():
    assert certify("rms_norm", x="0x64:fp32", gamma="64:fp32") == []
