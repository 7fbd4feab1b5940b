import pytest

OPERATOR = "embedding_dense_backward"


def test_documented_and_hardware_limits_are_side_by_side(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    outcome = cli(
        "limits", OPERATOR, "--scale-grad-by-freq", "--num-weights", 32000, "--vary", "dim"
    )
    assert outcome.code == 0
    text = " ".join(outcome.out.split())
    assert "product SoC documented hardware" in text
    assert "Ascend910A, 910ProA, 910PremiumA 0 .. 4894 0 .. 6714" in text
    assert "36*embeddingDim + 4*countsSize = 180220 must be < 180192 (documented)" in text
    assert "refused" in text
    assert "any" in text


def test_tensors_and_names_can_be_mixed(cli):
    fixed = (
        "--grad",
        "4x2x7:fp16",
        "--set",
        "rows=99",
        "--set",
        "indices_dtype=int64",
        "--scale-grad-by-freq",
    )
    data = cli(
        "limits",
        OPERATOR,
        *fixed,
        "--vary",
        "num-weights",
        "--products",
        "atlas_train",
        "--soc",
        "Ascend910B",
        "--json",
    ).data
    assert data["fixed"] == {
        "grad_dtype": "float16",
        "indices_dtype": "int64",
        "scale_grad_by_freq": True,
        "dim": 7,
        "rows": 99,
        "padding_idx": -1,
    }
    (row,) = data["rows"]
    assert row["socs"] == ["Ascend910B"]
    assert row["documented"]["smallest"] == 1
    largest = row["documented"]["largest"]
    assert 20 * 7 + 8 * (largest // 30 + largest % 30) < 180192


def test_two_names_give_a_frontier(cli):
    arguments = (
        "--vary",
        "dim",
        "--vary",
        "num_weights=1000,2000",
        "--set",
        "scale_grad_by_freq=true",
        "--product",
        "atlas_train",
        "--json",
    )
    data = cli("limits", OPERATOR, *arguments).data
    assert (data["vary"], data["along"]) == ("dim", "num_weights")
    assert [row["at"] for row in data["rows"]] == [1000, 2000, 1000, 2000]
    text = cli("limits", OPERATOR, *arguments[:-1]).out
    assert "legal values of dim along num_weights" in text


def test_wrong_names_and_forms_are_refused(cli):
    for arguments, code, names in (
        (("--vary", "width"), 64, "width"),
        (("--vary", "dim", "--set", "rows"), 64, "name=value"),
        (("--vary", "grad"), 64, "grad is a tensor: its sizes are dim, rows"),
    ):
        outcome = cli("limits", OPERATOR, *arguments)
        assert outcome.code == code
        assert names in outcome.err


def test_without_a_name_every_size_is_bounded(cli):
    arguments = (
        OPERATOR,
        "--scale-grad-by-freq",
        "--num-weights",
        32000,
        "--products",
        "atlas_train",
    )
    data = cli("limits", *arguments, "--json").data
    assert data["vary"] is None
    assert {row["size"] for row in data["rows"]} == {"num_weights", "dim", "rows"}
    alone = cli("limits", *arguments, "--vary", "dim", "--json").data["rows"]
    assert [row["documented"] for row in data["rows"] if row["size"] == "dim"] == [
        row["documented"] for row in alone
    ]
    text = " ".join(cli("limits", *arguments).out.split())
    assert "size product SoC documented hardware" in text
    assert "dim atlas_train Ascend910A, 910ProA, 910PremiumA 0 .. 4894" in text


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("limits", OPERATOR), "deterministic"),
        (("limits", OPERATOR), "product"),
        (("limits", OPERATOR), "operator"),
        (("model", "llama"), "batch"),
        (("model", "llama"), "config"),
    ],
)
def test_options_are_not_set_as_sizes(cli, command, name):
    done = cli(*command, "--set", f"{name}=true")
    assert done.code == 64
    assert f"{name} is not set by --set" in done.err
