import pytest

CALL = (
    "explain",
    "embedding_dense_backward",
    "--grad",
    "65536x512:bf16",
    "--indices",
    "65536:int32",
    "--num-weights",
    32000,
)


def test_every_part_of_the_record_is_printed(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    outcome = cli(*CALL, "--product", "atlas_a2")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[0] == "EmbeddingDenseBackward on Atlas A2, Ascend910B1: runs"
    for title in ("path", "decisions", "nearest changes", "cores", "order"):
        assert title in lines
    text = " ".join(outcome.out.split())
    assert "dim <= 512" in text
    assert "dim = 512" in text  # the condition, then its numbers
    assert "dim = 513 (now 512) selects sorted, atomic chunks of 11 rows" in text
    assert "Unified Buffer of a core: " in text
    assert "gradient rows" in text
    assert "num_weights = 32000 documented any hardware any" in text
    assert "workspace: " in text
    assert "grad_weight depends on timing" in text
    assert "with deterministic computation grad_weight fixed" in text


def test_json_has_the_same_content(cli):
    data = cli(*CALL, "--json").data
    assert data["outcome"] == "runs"
    nearest = data["nearest_changes"][0]
    assert (nearest["argument"], nearest["now"], nearest["value"], nearest["changes_path"]) == (
        "dim",
        512,
        513,
        True,
    )
    assert nearest["path"] != data["plan"]["path"]
    assert {limit["name"] for limit in data["size_limits"]} == {"rows", "dim", "num_weights"}
    assert data["with_the_other_determinism"]["deterministic"] is True


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_refusal_is_explained(cli, more):
    options = ("--scale-grad-by-freq", "--product", "atlas_train")
    call = (
        "explain",
        "embedding_dense_backward",
        "--grad",
        "64x5000:fp32",
        "--indices",
        "64:int32",
        "--num-weights",
        32000,
        *options,
    )
    outcome = cli(*call, *more)
    assert outcome.code == 2
    if more:
        assert outcome.data["error"]["status"] == 561002
        (dim,) = (limit for limit in outcome.data["size_limits"] if limit["name"] == "dim")
        assert (dim["documented"]["largest"], dim["hardware"]["largest"]) == (4894, 6714)
    else:
        assert "refused, 561002" in outcome.out
        assert "documented 0 .. 4894" in " ".join(outcome.out.split())


def test_an_unparsable_call_is_an_error(cli):
    outcome = cli(*CALL, "--product", "atlas_9")
    assert outcome.code == 64
    assert "atlas_9" in outcome.err
