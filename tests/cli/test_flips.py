"""Flips state their outcome: the path that a change leads to, or that it is refused."""

import pytest

import npu_sim
from npu_sim.cli.printing import print_text
from npu_sim.framework.planning import fixed_call
from npu_sim.operators.loading import load_operator
from npu_sim.registry import all_operators
from npu_sim.show.plans import plan_view

TOKENS = {"permuted_output_grad": "32768x7168:bf16", "sorted_indices": "32768:int32", "num_topk": 8}
TOKENS_TYPED = tuple(
    word for name, value in TOKENS.items() for word in (f"--{name.replace('_', '-')}", str(value))
)


def flips(plan):
    return {
        (flip.argument, flip.value): flip for decision in plan.decisions for flip in decision.flips
    }


@pytest.mark.parametrize("name", [entry.name for entry in all_operators()])
def test_the_result_of_a_flip_equals_that_of_the_changed_call(name):
    operator = load_operator(name)
    call = fixed_call(operator, {})
    plan = npu_sim.plan(name, **call.arguments())
    assert flips(plan)
    for (argument, value), flip in flips(plan).items():
        axis = operator.axis(argument)
        typed_value = axis.value(axis.code(value))
        changed = (
            {"deterministic": typed_value, **call.arguments()}
            if axis.name == "deterministic"
            else call.arguments({axis.name: typed_value})
        )
        if flip.outcome == "refused":
            with pytest.raises(npu_sim.AclnnError) as refused:
                npu_sim.plan(name, **changed)
            assert (refused.value.message, flip.changes_path) == (flip.refusal, True)
            continue
        other = npu_sim.plan(name, **changed)
        assert (flip.outcome, flip.path, flip.tiling_key) == (
            other.outcome,
            other.path,
            other.tiling_key,
        )
        assert flip.changes_path == (
            (other.path, other.tiling_key, other.kernel)
            != (plan.path, plan.tiling_key, plan.kernel)
        )


def test_a_plan_lists_the_results_of_flips(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    lines = [
        " ".join(line.split())
        for line in cli("plan", "moe_token_permute_grad", *TOKENS_TYPED).out.splitlines()
    ]
    assert any(line.startswith("change hidden = 13313 selects rows in pieces") for line in lines)
    assert any(
        line.startswith("change hidden = 10241: same path; fewer than 4 rows of grad")
        for line in lines
    )
    assert any(
        line.startswith("refused num_topk = 513: refused num_topk = 513 exceeds") for line in lines
    )


def test_a_refusal_is_red_in_text_and_report(cli, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    print_text(plan_view(npu_sim.plan("moe_token_permute_grad", **TOKENS)))
    (line,) = [
        line for line in capsys.readouterr().out.splitlines() if "num_topk = 513: refused" in line
    ]
    assert "\x1b[31m" in line or "\x1b[1;31m" in line
    cli("plan", "moe_token_permute_grad", *TOKENS_TYPED, "--report", tmp_path / "plan.html")
    page = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert '<dd class="refused"><span>num_topk = 513: refused</span>' in page
    assert '<dd class="change"><span>hidden = 13313 selects rows in pieces</span>' in page


def test_a_change_that_flips_two_decisions_is_listed_once(cli):
    arguments = ("--grad", "8192x256:fp32", "--indices", "8192:int32", "--num-weights", "8000")
    text = cli("plan", "embedding_dense_backward", *arguments).out
    assert text.count("deterministic = true selects") == 1


def test_a_call_beyond_the_search_range_is_planned_without_results(cli):
    plan = npu_sim.plan(
        "embedding_dense_backward", grad="4x8:fp32", indices="4:int32", num_weights=2**45
    )
    assert {flip.outcome for flip in flips(plan).values()} == {""}
    assert ": not tried" in str(plan)


@pytest.mark.parametrize(
    ("rows", "num_weights", "flip"), [(2**31, 10, [("rows", 2**31 - 1)]), (2**31, 2**31, [])]
)
def test_a_single_size_flips_a_decision_only_if_the_other_is_within(rows, num_weights, flip):
    plan = npu_sim.plan(
        "embedding_dense_backward",
        grad=f"{rows}x1:fp32",
        indices=f"{rows}:int32",
        num_weights=num_weights,
        product="atlas_a2",
    )
    (decision,) = [found for found in plan.decisions if found.name == "beyond INT32_MAX"]
    assert [(change.argument, change.value) for change in decision.flips] == flip
