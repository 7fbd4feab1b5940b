"""Borders of maps compared with full sweeps: every call lies in a run of its own path."""

import numpy as np
import pytest

import npu_sim
from npu_sim.operators.loading import load_operator
from npu_sim.registry import OPERATOR_NAMES
from npu_sim.sweeps.maps import PATH_FIELDS, sweep_map

GRIDS = {
    "a border that climbs": (
        "moe_token_permute",
        {"num_tokens": "1..400000:+1000", "num_topk": "1..512:+5"},
    ),
    "refused at one of many columns": (
        "moe_token_permute",
        {"hidden": "64..80000:+400", "num_topk": "1..512:+5"},
    ),
    "classes of a loss": (
        "cross_entropy_loss",
        {"N": "1..800000:+2000", "C": "1..40000:+400", "limits": "hardware"},
    ),
    "what the hardware holds": (
        "cross_entropy_loss_grad",
        {"N": "1..800000:+2000", "C": "1..40000:+400", "limits": "hardware"},
    ),
    "entries in 32 bits": (
        "moe_token_permute_grad",
        {"hidden": "64..20000:+100", "num_topk": "1..40000:+400", "limits": "hardware"},
    ),
    "rows in pieces": (
        "moe_token_unpermute",
        {"hidden": "64..20000:+100", "num_topk": "1..520:+5"},
    ),
    "no more than 512": (
        "moe_token_unpermute_grad",
        {"hidden": "64..20000:+100", "num_topk": "1..520:+5"},
    ),
    "split of columns": ("rms_norm_grad", {"row": "1..300", "col": "5000..7000:+20"}),
    "whole rows": ("rms_norm", {"row": "1..300", "col": "64..33000:+320"}),
    "scaled": (
        "embedding_dense_backward",
        {
            "num_weights": "1..300000:+1000",
            "dim": "1..3000:+30",
            "rows": 4096,
            "scale_grad_by_freq": "true",
            "product": "atlas_train",
        },
    ),
    "channels": ("conv_tbc_backward", {"Cin": "1..600:+3", "Cout": "1..600:+6"}),
    "rotation": ("rotary_position_embedding", {"x2": "1..600:+3", "dim": "2..890:+2"}),
    "rotation back": (
        "rotary_position_embedding_grad",
        {"x0": "1..6000:+30", "dim": "64..512:+64"},
    ),
    "halves": ("swi_glu", {"row": "1..600:+3", "col": "1..30000:+150"}),
    "sum and norm": ("add_rms_norm", {"row": "1..600:+3", "col": "1..30000:+150"}),
    "halves of a gradient": ("swi_glu_grad", {"row": "1..600:+3", "col": "1..30000:+150"}),
}


def test_every_operator_of_two_sizes_has_a_map():
    several = {name for name in OPERATOR_NAMES if len(load_operator(name).sizes) > 1}
    assert {operator for operator, _ in GRIDS.values()} == several


@pytest.mark.long
@pytest.mark.parametrize("name", GRIDS)
def test_every_call_lies_in_a_run_of_its_own_path(name):
    operator, grid = GRIDS[name]
    records = npu_sim.sweep(operator, grid)
    area = sweep_map(records.space)
    fields = np.stack(
        [records[field] for field in PATH_FIELDS if field in records.dtype.names], axis=-1
    )
    x, y = (records[area[axis]["name"]] for axis in ("x", "y"))
    covered, paths = 0, {}
    for column in area["columns"]:
        for start, end, _, state in column["runs"]:
            inside = (x >= column["start"]) & (x < column["end"]) & (y >= start) & (y < end)
            covered += inside.sum()
            paths.setdefault(state, set()).update(
                map(tuple, np.unique(fields[inside], axis=0).tolist())
            )
    assert covered == len(records)
    assert all(len(names) == 1 for names in paths.values()), paths
    for state, ((status, *_),) in paths.items():
        assert area["states"][state]["refused"] == (status != 0)
