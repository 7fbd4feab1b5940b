"""Answers that consist of rows, as tables of pandas and Arrow."""

import sys

import numpy as np
import pytest

import npu_sim

CALLS = [
    {"op": "rms_norm_grad", "count": 65, "inputs": {"dy": "4096x64:bf16", "gamma": "64:bf16"}},
    {"op": "rms_norm_grad", "inputs": {"dy": "8x16:fp64", "gamma": "16:fp64"}},
    {"op": "unheard"},
]


@pytest.fixture(scope="module")
def answers():
    """An answer of every type that has rows."""
    rng = np.random.default_rng(1)
    study = npu_sim.study.determinism(
        "embedding_dense_backward",
        grad=rng.random((600, 8), np.float32),
        indices=rng.integers(0, 5, 600),
        num_weights=5,
        random_orders=4,
    )
    return {
        "sweep": npu_sim.sweep("swi_glu", {"row": [1, 64], "product": ["A2", "A3"]}),
        "rows": study.outputs[0].rows,
        "calls": npu_sim.preflight(CALLS, products="A2,A3", timed=True),
    }


def require_same_tables(answer):
    """Fail unless the tables of both libraries have the same columns and values."""
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame, table = answer.to_pandas(), answer.to_arrow()
    assert list(frame.columns) == table.column_names
    assert len(frame) == table.num_rows > 0
    for column in table.column_names:
        for ours, other in zip(frame[column], table[column].to_pylist(), strict=True):
            assert ours == other or other is None, column


@pytest.mark.parametrize("name", ["sweep", "rows", "calls"])
def test_pandas_and_arrow_have_the_same_columns_and_values(answers, name):
    require_same_tables(answers[name])


def test_codes_of_a_sweep_are_words(answers):
    pytest.importorskip("pandas")
    frame = answers["sweep"].to_pandas()
    assert list(frame["product"]) == ["atlas_a2", "atlas_a2", "atlas_a3", "atlas_a3"]
    assert set(frame["dtype"]) == {"bfloat16"}
    assert frame["row"].dtype == np.int8
    accepted = answers["sweep"][answers["sweep"]["row"] == 64][["row", "soc"]].to_pandas()
    assert accepted.to_dict("list") == {"row": [64, 64], "soc": ["Ascend910B1", "Ascend910_9391"]}


def test_calls_have_a_row_per_product_and_nested_facts_a_column_each(answers):
    pandas = pytest.importorskip("pandas")
    frame = answers["calls"].to_pandas().set_index(["line", "target"])
    assert list(frame["outcome"])[:4] == ["runs", "runs", "refused", "refused"]
    assert frame.loc[(1, "atlas_a3"), "time.bound_us"] > 0
    assert (
        frame.loc[(1, "atlas_a2"), "workspace_bytes"]
        == npu_sim.workspace("rms_norm_grad", **CALLS[0]["inputs"]).total_bytes
    )
    assert frame.loc[(2, "atlas_a2"), "workspace_bytes"] is pandas.NA


@pytest.mark.parametrize(("library", "method"), [("pandas", "to_pandas"), ("pyarrow", "to_arrow")])
def test_a_missing_library_is_named(answers, monkeypatch, library, method):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        npu_sim.UsageError, match=rf"{library} is not installed\npip install {library}"
    ):
        getattr(answers["calls"], method)()
