"""Answers of every command state where the rules of a product come from."""

import json

import pytest

CALL = ["--grad", "700x64:bf16", "--indices", "700:int32", "--num-weights", "9"]
SOURCE = "not run on a device"
COMMANDS = {
    "plan": CALL,
    "timeline": CALL,
    "limits": [*CALL, "--vary", "dim"],
    "sweep": ["--grid", "rows=1..9"],
}


def call_of(command, product):
    chosen = ["--grid", f"product={product}"] if command == "sweep" else ["--product", product]
    return [command, "embedding_dense_backward", *COMMANDS[command], *chosen]


@pytest.mark.parametrize(
    "command",
    [pytest.param(one, marks=pytest.mark.long if one == "sweep" else ()) for one in COMMANDS],
)
def test_the_source_is_printed_and_part_of_the_data(cli, command):
    for product, stated in (("ascend_950", True), ("atlas_a2", False)):
        arguments = call_of(command, product)
        assert (SOURCE in " ".join(cli(*arguments).out.split())) == stated
        assert sources(json.loads(cli(*arguments, "--json").out)) == {stated}


def sources(data):
    """Whether each ``rules_source`` in the data states one."""
    if isinstance(data, list):
        return {one for item in data for one in sources(item)}
    if not isinstance(data, dict):
        return set()
    own = {SOURCE in data["rules_source"]} if "rules_source" in data else set()
    return own | {one for item in data.values() for one in sources(item)}
