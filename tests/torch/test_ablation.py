"""Which operator changes a training: the table, against a second implementation of its numbers."""

from dataclasses import replace
from math import inf, isnan, nan

import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'"
)

from torch.nn import functional  # noqa: E402

import npu_sim  # noqa: E402
import npu_sim.torch as simulated  # noqa: E402
from npu_sim.torch.ablation import Seen, _variant, move_weight  # noqa: E402
from tests.torch.test_emulation import WORDS, Model  # noqa: E402

STEPS, SEED = 4, 3


class Trained(Model):
    """The model of the tests of emulation, which calls PyTorch's functions by their names."""

    def loss(self, logits, labels):
        return functional.cross_entropy(logits, labels)


def train(observe=lambda **_: None, prepare=lambda model: None, steps=10):
    """Train in bf16, and show every step to a function."""
    model = Trained().bfloat16()
    prepare(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    seen = []
    model.head.register_forward_hook(lambda *given: seen.append(given[-1].detach().clone()))
    for _ in range(steps):
        tokens = torch.randint(WORDS, (2, 12))
        loss = model(tokens)
        loss.backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
        observe(loss=loss.item(), gradients=gradients, logits=seen[-1], tokens=tokens)
        optimizer.step()
        optimizer.zero_grad()


@pytest.fixture(scope="module")
def study():
    return npu_sim.study.ablation(train, "A2", steps=STEPS, seed=SEED)


def runs():
    """Return what every run shows, by its name, as NumPy arrays."""
    names = ("rms_norm", "swi_glu", "rotary_position_embedding", "embedding_dense_backward")
    names = (*names, "cross_entropy_loss_grad", "apply_adam_w_v2", "control", "as written", "all")
    found = {}
    for name in names:
        shown = found[name] = []
        torch.manual_seed(SEED)
        prepare = move_weight if name == "control" else lambda model: None
        observe = lambda shown=shown, **step: shown.append(step)  # noqa: E731
        if name in ("control", "as written"):
            train(observe, prepare, STEPS)
        else:
            with simulated.emulate("A2", fused=None if name == "all" else [name]):
                train(observe, prepare, STEPS)
    return found


def wide(tensor):
    return tensor.double().numpy()


def log_probabilities(step):
    logits = wide(step["logits"]).reshape(-1, WORDS)
    labels = np.roll(step["tokens"].numpy(), -1, 1).reshape(-1)
    return (logits - np.log(np.exp(logits).sum(-1, keepdims=True)))[np.arange(len(labels)), labels]


def norm(arrays):
    return np.linalg.norm(np.concatenate([array.reshape(-1) for array in arrays]))


def test_the_numbers_are_those_of_a_second_implementation(study):
    found = runs()
    base = found["as written"]
    first = base[0]
    assert study.losses == tuple(step["loss"] for step in base)
    rows = {row.name: row for row in (study.control, *study.rows)}
    assert rows.keys() == found.keys() - {"as written"}
    for name, row in rows.items():
        own = found[name][0]
        gaps = {
            parameter: wide(own["gradients"][parameter]) - wide(gradient)
            for parameter, gradient in first["gradients"].items()
        }
        scales = {parameter: wide(gradient) for parameter, gradient in first["gradients"].items()}
        shares = {key: norm([gaps[key]]) / norm([scales[key]]) for key in gaps}
        assert row.gradient == pytest.approx(norm(gaps.values()) / norm(scales.values()))
        assert row.worst_gradient == pytest.approx(max(shares.values()))
        assert row.worst_gradient == 0 or row.worst_parameter == max(shares, key=shares.get)
        logits = norm([wide(own["logits"]) - wide(first["logits"])]) / norm([wide(first["logits"])])
        assert row.logits == pytest.approx(logits)
        difference = np.abs(log_probabilities(own) - log_probabilities(first)).mean()
        assert row.log_probabilities == pytest.approx(difference)
        losses = [
            abs(one["loss"] - other["loss"]) for one, other in zip(found[name], base, strict=True)
        ]
        assert row.losses == tuple(losses)
        assert row.loss == pytest.approx(np.sqrt(np.mean(np.square(losses))))


def test_rows_that_stand_out_are_those_above_twice_the_control(study):
    control = study.control
    for row in study.rows:
        quantities = {
            "gradient": (row.gradient, control.gradient),
            "logits": (row.logits, control.logits),
            "log_probabilities": (row.log_probabilities, control.log_probabilities),
            "loss": (row.loss, control.loss),
        }
        expected = [name for name, (own, other) in quantities.items() if own > 2 * other]
        assert study.stands_out(row) == expected
    rows = {row.name: row for row in study.rows}
    assert study.stands_out(rows["cross_entropy_loss_grad"]) in ([], ["loss"])
    assert rows["cross_entropy_loss_grad"].logits == 0  # its forward pass is PyTorch's


def test_the_first_call_is_that_of_emulation(study):
    (row,) = (row for row in study.rows if row.name == "swi_glu")
    torch.manual_seed(SEED)
    with simulated.emulate("A2", fused=["swi_glu"]) as report:
        train(steps=STEPS)
    changes = report.changes_of("swi_glu")
    assert (row.differing_share, row.relative_rms) == (
        changes.differing_share,
        changes.relative_rms,
    )
    assert row.calls == STEPS


@pytest.mark.parametrize(
    ("losses", "of_control", "stands_out"),
    [
        ([1.0, nan], [1.0, 2.0], True),
        ([1.0, nan], [nan, 2.0], False),
        ([1.0, inf], [1.0, 2.0], True),
        ([1.0, 2.0], [1.0, nan], False),
        ([4.0, 2.0], [1.0, 2.0], True),
    ],
)
def test_a_run_that_diverges_stands_out_unless_the_control_does(
    study, losses, of_control, stands_out
):
    base = Seen(2, losses=[1.0, 2.0])
    row, control = (
        _variant(name, Seen(2, losses=found), base)
        for name, found in (("rms_norm", losses), ("control", of_control))
    )
    assert ("loss" in replace(study, control=control).stands_out(row)) is stands_out


def test_a_step_without_a_loss_has_none():
    row = _variant("rms_norm", Seen(2, losses=[1.5, None]), Seen(2, losses=[1.0, None]))
    assert row.losses == (0.5, None)
    assert row.loss == 0.5
    assert _variant("rms_norm", Seen(1, losses=[None]), Seen(1, losses=[None])).loss is None


def test_losses_that_are_nan_as_written_tell_nothing():
    row = _variant("rms_norm", Seen(2, losses=[1.5, nan]), Seen(2, losses=[1.0, nan]))
    assert row.losses[0] == 0.5
    assert isnan(row.losses[1])
    assert row.loss == 0.5


@pytest.mark.parametrize(
    ("own", "base", "difference"),
    [([nan, 1.0], [nan, 1.0], 0.0), ([inf, 2.0], [inf, 1.0], 1.0), ([nan, 1.0], [1.0, 1.0], inf)],
)
def test_gradients_that_overflow_alike_are_the_same(own, base, difference):
    own, base = (Seen(1, gradients={"w": torch.tensor(values)}) for values in (own, base))
    assert _variant("rms_norm", own, base).gradient == difference


def test_the_same_seed_gives_the_same_table(study):
    again = npu_sim.study.ablation(train, "A2", steps=STEPS, seed=SEED)
    assert again.as_dict() == study.as_dict()
    assert str(again) == str(study)


def test_the_control_moves_one_weight_by_one_unit_in_the_last_place():
    torch.manual_seed(0)
    model, other = Model(), Model()
    other.load_state_dict(model.state_dict())
    assert move_weight(other)
    moved = [
        (one != two).sum().item()
        for one, two in zip(model.parameters(), other.parameters(), strict=True)
    ]
    assert sum(moved) == 1
    weights = zip(model.parameters(), other.parameters(), strict=True)
    ((before, after),) = [(p[p != q], q[p != q]) for p, q in weights if not torch.equal(p, q)]
    expected = np.nextafter(before.detach().numpy(), np.sign(before.detach().numpy()) * np.inf)
    assert after.detach().numpy() == expected


def test_the_report_has_the_tables_and_a_picture(study):
    from npu_sim.show import document_of

    titles = [section.title for section in document_of(study).sections]
    assert titles[:2] == ["Pictures", "Which operators stand out"]
    assert "swi_glu" in study._repr_html_()


def train_without_a_loss():
    gate, up = (torch.nn.Parameter(torch.randn(4, 8)) for _ in range(2))
    optimizer = torch.optim.SGD([gate, up])
    result = functional.silu(gate) * up
    result.backward(torch.ones(4, 8))
    optimizer.step()


def test_what_was_not_seen_is_missing():
    study = npu_sim.study.ablation(train_without_a_loss, fused=["swi_glu"])
    assert study.losses == (None,)
    assert [row.loss for row in (study.control, *study.rows)] == [None] * 3
    assert [str(sentence).partition(":")[0] for sentence in study.missing] == [
        "no loss at 1 of 1 steps",
        "no logits",
    ]
    assert all(sentence in " ".join(str(study).split()) for sentence in study.missing)
    assert "Difference of the loss at step" not in str(study)


def test_nothing_is_missing_of_a_program_with_losses_and_logits(study):
    assert study.missing == []


@pytest.mark.parametrize(
    ("run", "options", "message"),
    [
        (train, {"fused": ["moe_token_permute"]}, "no operator to compare"),
        (lambda: None, {}, "no step of an optimizer"),
        (train, {"steps": 0}, "steps = 0"),
        (train, {"fused": ["swiglu"]}, "did you mean swi_glu"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_what_cannot_be_compared_is_a_usage_error(run, options, message):
    with pytest.raises(npu_sim.UsageError, match=message):
        npu_sim.study.ablation(run, **options)
