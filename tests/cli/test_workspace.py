import npu_sim

WORDS = (
    "plan",
    "embedding_dense_backward",
    "--grad",
    "1000x1024:fp16",
    "--indices",
    "1000:int64",
    "--num-weights",
    5000,
)


def test_the_workspace_is_shown_as_tables(cli):
    outcome = cli(*WORDS, "--workspace")
    assert outcome.code == 0
    text = " ".join(outcome.out.split())
    explained = " ".join(cli("explain", *WORDS[1:]).out.split())
    lines = (
        "39.4 MiB (41,362,944)",
        "2 Sort indices as int32",
        "result 20,480,000 20,874,240 2 nodes 3 to 5",
        "2 20,480,512 20,874,240 workspace of Sort, result",
        "96 bytes, model",
    )
    for texts in lines:
        assert texts in text
        assert texts in explained


def test_json_is_the_workspace_of_the_plan(cli):
    planned = npu_sim.plan(
        "embedding_dense_backward", grad="1000x1024:fp16", indices="1000:int64", num_weights=5000
    )
    data = cli(*WORDS, "--json").data["plan"]
    assert data["workspace"] == planned.as_dict()["workspace"]
    assert [node["name"] for node in data["workspace"]["nodes"]][2:4] == ["Sort", "ZerosLike"]


def test_switches_reach_the_plan(cli):
    arguments = (
        "plan",
        "embedding_dense_backward",
        "--grad",
        "100x8:fp32",
        "--indices",
        "100:int32",
        "--num-weights",
        50,
    )
    usual, fixed = (
        cli(*arguments, *more, "--json").data["plan"]
        for more in ((), ("--deterministic", "--soc", "Ascend910B4"))
    )
    assert [area["name"] for area in usual["workspace"]["areas"]] == ["system"]
    assert [area["name"] for area in fixed["workspace"]["areas"]] == [
        "workspace of Sort",
        "sorted indices",
        "positions",
        "system",
    ]
    assert (fixed["soc"], fixed["deterministic"]) == ("Ascend910B4", True)


def test_a_call_without_workspace_states_so(cli):
    arguments = (
        "plan",
        "embedding_dense_backward",
        "--grad",
        "0x8:fp32",
        "--indices",
        "0:int32",
        "--num-weights",
        50,
    )
    assert cli(*arguments, "--workspace").out.splitlines()[-1].strip() == "no kernel needs any"


def test_a_refusal_exits_with_2(cli):
    assert cli(*WORDS, "--product", "atlas_inference").code == 2


def test_the_report_has_the_tables_and_the_command(cli, tmp_path):
    out = tmp_path / "workspace.html"
    arguments = ("--grad", "4096x512:bf16", "--indices", "4096:int64", "--num-weights", 32000)
    assert cli("plan", "embedding_dense_backward", *arguments, "--report", out).code == 0
    page = out.read_text(encoding="utf-8")
    for word in (
        "npu-sim plan embedding_dense_backward",
        "grad as fp32",
        "nodes 0 to 2",
        "Buckets",
    ):
        assert word in page
