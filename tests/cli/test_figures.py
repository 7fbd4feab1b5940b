"""``--figure``: one picture of an answer as a file."""

import pytest

OPERATOR = "embedding_dense_backward"
CALL = (OPERATOR, "--grad", "4096x512:bf16", "--indices", "4096:int32", "--num-weights", 32000)
COMMANDS = {
    "cores-A2.svg": ("plan", *CALL),
    "grad_weight.svg": ("run", *CALL),
    "timeline.svg": ("timeline", *CALL),
    "workspace.svg": ("plan", *CALL),
    "limits.svg": ("limits", OPERATOR, "--vary", "dim", "--products", "A2"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_write_the_picture_that_names_the_file(cli, tmp_path, name):
    outcome = cli(*COMMANDS[name], "--figure", tmp_path / name)
    assert outcome.code == 0
    assert "<rect" in (tmp_path / name).read_text("utf-8")


MISTAKES = {
    "core.svg": (("plan", *CALL), "did you mean cores?"),
    "cores.pdf": (("plan", *CALL), "neither .svg nor .png"),
    "timeline.svg": (("timeline", *CALL, "--products", "A2,A3"), "one call on one SoC"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_commands_refuse_a_picture_that_does_not_exist(cli, tmp_path, name):
    command, message = MISTAKES[name]
    outcome = cli(*command, "--figure", tmp_path / name)
    assert outcome.code == 64
    assert message in outcome.err
    assert not list(tmp_path.iterdir())
