"""Every type of language model that transformers ships: its calls, and what is left, as data.

``tests/data/models/transformers.json`` has the calls of a step of each type by operator, and the
reasons of what is not recognised, or why the type cannot be built from its default values. ``set``
replaces some of these: fewer layers are enough where many differ.
``python -m tests.torch.test_transformers`` writes it for the installed version.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'npu_sim[torch]'")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from npu_sim.status import UsageError  # noqa: E402
from npu_sim.torch.models import Step, recorded_model  # noqa: E402

pytestmark = pytest.mark.long

DATA = Path(__file__).parents[1] / "data/models/transformers.json"
RECORDED = json.loads(DATA.read_text(encoding="utf-8"))


def types():
    """Return the types that have a causal language model."""
    known = transformers.AutoModelForCausalLM._model_mapping
    return [name for name, kind in transformers.CONFIG_MAPPING.items() if kind in known]


def recorded(kind):
    """Return the calls of a type by operator, and what is left; or why it cannot be recorded."""
    sizes = RECORDED["types"].get(kind, {}).get("set", {})
    found = {"set": sizes} if sizes else {}
    try:
        recording = recorded_model(kind, Step(batch=2, sequence=64), sizes)
    except UsageError as error:
        return {**found, "refused": error.message}
    calls = Counter()
    for line in recording:
        calls[line["op"]] += line.get("count", 1)
    left = Counter(f"{what}: {why}" for what, why, _ in recording.not_recognised)
    return {**found, "calls": dict(sorted(calls.items())), "left": dict(sorted(left.items()))}


@pytest.mark.skipif(
    transformers.__version__ != RECORDED["transformers"],
    reason=f"the data are of transformers {RECORDED['transformers']}",
)
@pytest.mark.parametrize("kind", RECORDED["types"])
def test_a_type_has_the_calls_of_the_table(kind):
    assert recorded(kind) == RECORDED["types"][kind]


def test_every_type_is_in_the_table():
    if transformers.__version__ == RECORDED["transformers"]:
        assert set(types()) == set(RECORDED["types"])


def test_most_types_are_recorded():
    found = RECORDED["types"].values()
    assert sum("calls" in one for one in found) > 0.85 * len(found)


if __name__ == "__main__":
    table = {"transformers": transformers.__version__, "types": {k: recorded(k) for k in types()}}
    DATA.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
