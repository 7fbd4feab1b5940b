import numpy as np
import pytest

import npu_sim
from npu_sim.studies.determinism import study_determinism
from tests.cases import every
from tests.studies import calls

NON_DETERMINISTIC = {
    "key 100": ("embedding_dense_backward", "grad_weight", calls.embedding(800, 40, 30)),
    "key 101": (
        "embedding_dense_backward",
        "grad_weight",
        calls.embedding(800, 40, 30, scale_grad_by_freq=True),
    ),
    "key 100, fp16": (
        "embedding_dense_backward",
        "grad_weight",
        calls.embedding(4000, 256, 60, "fp16"),
    ),
    "key 0": ("embedding_dense_backward", "grad_weight", calls.embedding(800, 600, 30)),
    "training series": (
        "embedding_dense_backward",
        "grad_weight",
        calls.embedding(400, 33, 20, product="atlas_train"),
    ),
    "split N": ("rms_norm_grad", "dgamma", calls.rms_norm(100, 200)),
    "split D": ("rms_norm_grad", "dgamma", calls.rms_norm(100, 6100)),
    "conv": ("conv_tbc_backward", "grad_weight", calls.conv(12, 8, 20, 16, 2, 1)),
    "conv, shares of time": ("conv_tbc_backward", "grad_weight", calls.conv(90, 2, 20, 16, 3, 2)),
    "conv, shared bias": (
        "conv_tbc_backward",
        "grad_bias",
        calls.conv(700, 3, 4, 5, 1, 0, product="atlas_train", cube_math_type=1),
    ),
}
ORDERS = [("sequential", 0), ("reverse", 0), ("round_robin", 0), ("random", 0), ("random", 1)]


def results(operator, output, call):
    return [
        npu_sim.run(operator, core_order=order, seed=seed, **call).outputs[output]
        for order, seed in ORDERS
    ]


@pytest.mark.parametrize("path", NON_DETERMINISTIC)
def test_the_range_of_the_study_contains_every_kernel_result(path):
    operator, output, call = NON_DETERMINISTIC[path]
    study = next(
        entry
        for entry in study_determinism(operator, random_orders=2, **call).outputs
        if entry.output == output
    )
    values = np.stack([result.astype(np.float64) for result in results(operator, output, call)])
    spread = values.max(axis=0) - values.min(axis=0)
    assert np.count_nonzero(spread) > 0
    assert study.max_spread >= spread.max() - 1e-12
    assert np.count_nonzero(spread) <= study.moved <= study.order_dependent
    without = study_determinism(operator, random_orders=2, adversarial=False, **call)
    plain = next(entry for entry in without.outputs if entry.output == output)
    assert plain.max_spread == pytest.approx(spread.max(), rel=1e-6)
    assert plain.moved == np.count_nonzero(spread)
    assert plain.distinct_results == len(
        {result.tobytes() for result in results(operator, output, call)}
    )


@pytest.mark.parametrize("path", NON_DETERMINISTIC)
def test_the_worst_element_equals_the_sum_of_its_listed_terms(path):
    operator, output, call = NON_DETERMINISTIC[path]
    study = next(
        entry
        for entry in study_determinism(operator, random_orders=4, **call).outputs
        if entry.output == output
    )
    worst = study.worst
    assert worst is not None
    for value, steps in (
        (worst.lowest, worst.steps_to_lowest),
        (worst.highest, worst.steps_to_highest),
    ):
        total = np.float32(0)
        for step in steps:
            total = np.float32(total + np.float32(step.value))
            assert float(total) == step.sum_after
        assert (
            float(
                (total * np.float32(worst.factor)).astype(
                    call["grad"].dtype if "grad" in call else np.float32
                )
            )
            == value
        )
    assert (worst.factor == 1) == (not call.get("scale_grad_by_freq"))
    assert worst.spread <= study.max_spread
    assert sorted(step.contribution for step in worst.steps_to_lowest) == sorted(
        step.contribution for step in worst.steps_to_highest
    )


def test_a_study_of_deterministic_computation_is_refused():
    call = {"dy": "64x64:fp32", "gamma": "64:fp32"}
    with pytest.raises(npu_sim.UsageError, match="one legal order") as caught:
        npu_sim.study.determinism("rms_norm_grad", deterministic=True, **call)
    assert caught.value.argument == "deterministic"


def test_a_study_of_shapes_has_drawn_data():
    call = {"dy": "64x64:fp32", "gamma": "64:fp32"}
    study = npu_sim.study.determinism("rms_norm_grad", random_orders=2, **call)
    assert {output.output for output in study.outputs} == {"dx", "dgamma"}
    with pytest.raises(npu_sim.UsageError, match="grad"):
        npu_sim.verify(
            "embedding_dense_backward", grad="4x8:fp32", indices="4:int32", num_weights=4
        )


@pytest.mark.parametrize("path", ["tokens", "weighted tokens", "copies", "loss"])
def test_an_operator_without_open_orders_has_one_result(path):
    operator, call = {
        "tokens": ("moe_token_permute_grad", calls.moe(9, 4, 16)),
        "weighted tokens": ("moe_token_unpermute", calls.unpermute(9, 4, 16)),
        "copies": ("moe_token_permute", calls.permutation(9, 4, 16)),
        "loss": ("cross_entropy_loss_grad", calls.cross_entropy(9, 16)),
    }[path]
    for output in study_determinism(operator, random_orders=2, **call).outputs:
        assert (
            output.distinct_results,
            output.moved,
            output.order_dependent,
            output.differs_from_deterministic,
        ) == (1, 0, 0, 0)


def random_case(operator, seed):
    rng = np.random.default_rng(seed)
    if operator == "rms_norm_grad":
        return "dgamma", calls.rms_norm(
            int(rng.integers(1, 120)), int(rng.integers(1, 300)), seed=seed
        )
    if operator == "conv_tbc_backward":
        return "grad_weight", calls.conv(
            int(rng.integers(3, 12)), int(rng.integers(1, 9)), 5, 7, 3, 1, seed
        )
    rows, num_weights = int(rng.integers(2, 400)), int(rng.integers(1, 200))
    kind = seed % 3
    if kind == 0:
        return "grad_weight", calls.embedding(
            rows, int(rng.integers(1, 60)), num_weights, seed=seed
        )
    if kind == 1:
        return "grad_weight", calls.embedding(
            rows, int(rng.integers(513, 530)), num_weights, seed=seed
        )
    return "grad_weight", calls.embedding(rows, 9, num_weights, "fp16", seed, product="atlas_train")


@pytest.mark.parametrize(
    "operator", every(3, ["embedding_dense_backward", "rms_norm_grad", "conv_tbc_backward"])
)
def test_no_element_outside_the_mask_differs(operator):
    moved = 0
    for seed in range(200):
        output, call = random_case(operator, seed)
        first = npu_sim.run(operator, **call)
        mask = first.order_dependent[output].mask
        for order, order_seed in (("reverse", 0), ("random", seed)):
            other = npu_sim.run(operator, core_order=order, seed=order_seed, **call).outputs[output]
            differs = first.outputs[output] != other
            allowed = (
                mask[:, None]
                if first.order_dependent[output].axis == "row"
                else mask.reshape(differs.shape)
            )
            assert not np.any(differs & ~allowed), (operator, seed)
            moved += int(np.count_nonzero(differs))
    assert moved > 0


def test_orders_that_agree_give_one_result():
    call = {"grad": "100x8:fp16", "indices": "100:int64", "num_weights": 3}
    text = str(npu_sim.study.determinism("embedding_dense_backward", **call))
    assert "one result from 38" in " ".join(text.split())
