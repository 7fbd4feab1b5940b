import itertools

import numpy as np
import pytest

from npu_sim import UsageError
from npu_sim.operators.loading import load_operator
from npu_sim.status import NotModelledError
from npu_sim.sweeps.space import make_space

EMBEDDING = load_operator("embedding_dense_backward")


def values_of(name, grid, **options):
    space = make_space(EMBEDDING, {name: grid}, **options)
    return [space.call_at(row)[1][name] for row in range(space.rows)]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("7", [7]),
        ("3,1,3", [3, 1]),
        ("1..4", [1, 2, 3, 4]),
        ("0..10:+4", [0, 4, 8]),
        ("1..20:*3", [1, 3, 9]),
        ("5,1..3,10..20:+5", [5, 1, 2, 3, 10, 15, 20]),
        (range(2, 9, 3), [2, 5, 8]),
        ([4, 2], [4, 2]),
        (np.array([4, 2]), [4, 2]),
        (9, [9]),
    ],
)
def test_numbers_can_be_listed_ranged_and_stepped(text, values):
    assert values_of("rows", text) == values


@pytest.mark.parametrize(
    ("name", "grid", "values"),
    [
        ("grad_dtype", "bf16,float16", ["bfloat16", "float16"]),
        ("scale_grad_by_freq", "true,false", [True, False]),
        ("scaleGradByFreq", True, None),
        ("limits", "hardware", ["hardware"]),
    ],
)
def test_words_switches_and_vendor_names(name, grid, values):
    if values is None:
        assert make_space(EMBEDDING, {name: grid}).call_at(0)[1]["scale_grad_by_freq"] is True
    else:
        assert values_of(name, grid) == values


@pytest.mark.parametrize(
    ("grid", "names"),
    [
        ({"rows": "9..1"}, ("9..1", "above")),
        ({"rows": "1..9:-2"}, ("':-2'"[1:-1], "step")),
        ({"rows": "0..9:*2"}, ("step",)),
        ({"rows": "many"}, ("many",)),
        ({"rows": -1}, ("-1", "0 <= rows")),
        ({"rows": []}, ("no values",)),
        ({"rows": "1..9:log"}, ("log", "samples")),
        ({"dim_": 3}, ("dim_", "dim")),
        ({"grad_dtype": "int4"}, ("int4", "bfloat16")),
        ({"deterministic": "perhaps"}, ("perhaps", "true or false")),
        ({"soc": "Ascend910A"}, None),
        ({"product": "atlas_a2", "soc": "Ascend910A"}, ("Ascend910A", "Ascend910B1")),
        ({"product": "atlas_a9"}, ("atlas_a9",)),
        ({"num_weights": 1, "numWeights": 2}, ("same axis",)),
    ],
)
def test_the_error_in_a_grid_is_named(grid, names):
    if names is None:
        assert make_space(EMBEDDING, grid).profiles[0].name == "atlas_train"
        return
    with pytest.raises(UsageError) as caught:
        make_space(EMBEDDING, grid)
    for name in names:
        assert name.removeprefix(":") in f"{caught.value.message} {caught.value.hint}"


def test_a_grid_is_the_product_of_its_axes_with_the_last_fastest():
    space = make_space(
        EMBEDDING, {"rows": [1, 2, 3], "dim": [4, 5], "product": "atlas_a2,atlas_train"}
    )
    expected = list(itertools.product(("atlas_a2", "atlas_train"), (4, 5), (1, 2, 3)))
    calls = [space.call_at(row) for row in range(space.rows)]
    assert [(profile.name, values["dim"], values["rows"]) for profile, values in calls] == expected


def test_all_socs_of_all_products_can_be_selected():
    profiles = make_space(EMBEDDING, {"product": "all", "soc": "all"}).profiles
    assert len({(profile.name, profile.soc) for profile in profiles}) == len(profiles) > 10


def test_all_products_are_those_with_the_same_columns_and_the_others_are_named():
    space = make_space(EMBEDDING, {"product": "all"})
    assert "ascend_950" not in {profile.name for profile in space.profiles}
    reasons = dict(space.left_out)
    assert reasons.keys() == {"ascend_350", "ascend_950"}
    assert "sweep product=ascend_950 by itself" in reasons["ascend_950"]
    assert "known from release 9.2 on" in reasons["ascend_350"]
    conv = make_space(load_operator("conv_tbc_backward"), {"product": "all"})
    assert "npu_sim does not model it there yet" in dict(conv.left_out)["ascend_950"]
    assert make_space(EMBEDDING, {"product": "ascend_950"}).left_out == ()


def test_a_product_is_left_out_from_the_release_on_that_is_not_modelled():
    rotary = load_operator("rotary_position_embedding")
    space = make_space(rotary, {"product": "all", "release": "9.0"})
    assert "from release 9.0 on" in dict(space.left_out)["atlas_inference"]
    space = make_space(rotary, {"product": "all", "release": "8.5"})
    assert "atlas_inference" in {profile.name for profile in space.profiles}
    with pytest.raises(NotModelledError):
        make_space(rotary, {"product": "atlas_inference", "release": "9.0"})


def test_a_sample_stays_in_its_ranges_and_reaches_them():
    space = make_space(
        EMBEDDING,
        {"rows": "3..9", "dim": "1..1000000:log", "grad_dtype": "fp32,bf16"},
        sample=3000,
        seed=5,
    )
    calls = [space.call_at(row)[1] for row in range(space.rows)]
    assert {call["rows"] for call in calls} == set(range(3, 10))
    assert {call["grad_dtype"] for call in calls} == {"float32", "bfloat16"}
    dims = np.array([call["dim"] for call in calls])
    assert dims.min() >= 1
    assert dims.max() <= 1000000
    decades = np.histogram(np.log10(dims), bins=6, range=(0, 6))[0]
    assert decades.min() > 3000 / 6 / 2  # every order of magnitude about equally often


def test_samples_differ_by_seed_and_only_by_seed():
    def draw(seed):
        space = make_space(EMBEDDING, {"rows": "1..1000000"}, sample=50, seed=seed)
        return [space.codes_at(row) for row in range(50)]

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_the_fingerprint_depends_on_everything_that_affects_the_results(tmp_path):
    from npu_sim.cores import config_directory

    fingerprint = make_space(EMBEDDING, {"rows": "1..10"}).fingerprint
    assert fingerprint == make_space(EMBEDDING, {"rows": range(1, 11)}).fingerprint
    assert fingerprint != make_space(EMBEDDING, {"rows": "1..11"}).fingerprint
    assert fingerprint != make_space(EMBEDDING, {"rows": "1..10"}, sample=10).fingerprint
    text = (config_directory() / "atlas_a2.yaml").read_text(encoding="utf-8")
    profile = tmp_path / "mine.yaml"
    assert "ub_reserved_bytes: 256" in text
    profile.write_text(
        text.replace("ub_reserved_bytes: 256", "ub_reserved_bytes: 512"), encoding="utf-8"
    )
    assert (
        fingerprint
        != make_space(EMBEDDING, {"rows": "1..10", "product": [str(profile)]}).fingerprint
    )


def test_releases_are_an_axis_of_the_devices():
    space = make_space(
        load_operator("rms_norm_grad"), {"product": "atlas_a2", "release": "8.3,9.1", "row": "1..4"}
    )
    assert [(profile.soc, profile.release) for profile in space.profiles] == [
        ("Ascend910B1", "8.3"),
        ("Ascend910B1", "9.1"),
    ]
    assert space.rows == 8


def test_a_modified_copy_of_a_product_is_a_separate_device(tmp_path):
    from npu_sim.cores import config_directory

    copied = tmp_path / "mine.yaml"
    copied.write_bytes((config_directory() / "atlas_a2.yaml").read_bytes())
    space = make_space(EMBEDDING, {"rows": "1..10", "product": ["atlas_a2", str(copied)]})
    assert [profile.name for profile in space.profiles] == ["atlas_a2", f"atlas_a2 ({copied})"]
