import pytest

from npu_sim.cli.commands import demo


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(demo, "ROWS", 2048)
    monkeypatch.setattr(demo, "NUM_WEIGHTS", 500)


def test_the_demo_checks_itself(cli):
    check = cli("demo", "--json").data["check"]
    assert check["passes_mixed_tolerance"]
    assert 0 < check["rows_that_moved"] <= check["order_dependent_rows"]
    assert check["rows_that_moved_outside_the_mask"] == 0


def test_a_deterministic_demo_has_no_spread(cli):
    check = cli("demo", "--deterministic", "--json").data["check"]
    assert (check["rows_that_moved"], check["order_dependent_rows"]) == (0, 0)


def test_the_demo_reports_its_steps(cli):
    out = cli("demo", "--product", "atlas_train").out
    for word in (
        "A batch of 2048 tokens",
        "EmbeddingDenseBackward on Atlas training series",
        "check",
        "two runs",
        "time",
        "first run",
    ):
        assert word in out


def test_the_demo_reports_a_fixed_order(cli):
    assert "the order of additions is fixed" in cli("demo", "--deterministic").out


def test_the_demo_counts_rows_that_differ_unexpectedly():
    assert (
        str(demo._order_text(5, 2)) == "5 can: cores add to them in any order; 2 other rows differ"
    )
