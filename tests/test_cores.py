import pytest

from npu_sim.cores import config_directory, load_profile, shipped_products
from npu_sim.status import UsageError

SOCS = {
    "ascend_350": ("Ascend350_354f", "Ascend350_355e"),
    "ascend_950": (
        *(
            f"Ascend950DT_{number}"
            for number in ("950x", "950y", *range(9571, 9579), 9581, "9581x")
        ),
        *(f"Ascend950DT_{number}" for number in (9582, "9582x", *range(9583, 9589), 9591, 9592)),
        *(f"Ascend950DT_{number}" for number in (9595, 9596, "95A1", "95A2")),
        *(f"Ascend950PR_{number}" for number in ("950z", 9579, "957b", "957bx", "957c", "957d")),
        *(f"Ascend950PR_{number}" for number in (9589, "958b", 9599)),
    ),
    "atlas_a2": (
        "Ascend910B1",
        "Ascend910B2",
        "Ascend910B2C",
        "Ascend910B3",
        "Ascend910B4",
        "Ascend910B4-1",
    ),
    "atlas_train": (
        "Ascend910A",
        "Ascend910B",
        "Ascend910ProA",
        "Ascend910ProB",
        "Ascend910PremiumA",
    ),
    "atlas_inference": ("Ascend310P1", "Ascend310P3", "Ascend310P5", "Ascend310P7"),
    "atlas_a3": tuple(
        f"Ascend910_{number}" for number in (9362, 9363, 9372, 9381, 9382, 9391, 9392)
    ),
}


@pytest.fixture
def a2_text():
    return (config_directory() / "atlas_a2.yaml").read_text(encoding="utf-8")


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "my_chip.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_the_products_that_ship():
    assert shipped_products() == tuple(sorted(SOCS))


@pytest.mark.parametrize(("product", "socs"), SOCS.items())
def test_a_product_has_all_its_socs(product, socs):
    assert tuple(load_profile(product).product.socs) == socs


@pytest.mark.parametrize(
    ("product", "soc"),
    [
        ("atlas_train", "Ascend910A"),
        ("atlas_a2", "Ascend910B1"),
        ("atlas_a3", "Ascend910_9391"),
        ("atlas_inference", "Ascend310P3"),
        ("ascend_950", "Ascend950PR_9589"),
        ("ascend_350", "Ascend350_355e"),
    ],
)
def test_default_soc(product, soc):
    assert load_profile(product).soc == soc


@pytest.mark.parametrize(
    ("soc", "vector", "cube", "ub_bytes", "system"),
    [
        ("Ascend910B1", 48, 24, 196352, 16777216),
        ("Ascend910B4", 40, 20, 196352, 16777216),
        ("Ascend910_9391", 48, 24, 196352, 16777216),
        ("Ascend910A", 32, 32, 262144, 2097152),
        ("Ascend910B", 30, 30, 262144, 2097152),
        ("Ascend310P3", 8, 8, 262144, 2097152),
        ("Ascend950PR_9589", 64, 32, 253952, 16777216),
        ("Ascend950DT_950y", 16, 8, 253952, 16777216),
        ("Ascend350_354f", 28, 14, 253952, 16777216),
        ("Ascend350_355e", 32, 16, 253952, 16777216),
    ],
)
def test_device_properties_of_a_planner(soc, vector, cube, ub_bytes, system):
    device = load_profile(None, soc).device
    assert (
        device.vector_cores,
        device.cube_cores,
        device.ub_bytes,
        device.system_workspace_bytes,
    ) == (vector, cube, ub_bytes, system)


def test_a_modified_copy_of_a_profile_is_a_separate_product(a2_text, written):
    text = a2_text.replace("name: atlas_a2", "name: my_chip").replace(
        "vector_core_count: 48", "vector_core_count: 7", 1
    )
    profile = load_profile(written(text.replace("ub_bytes: 196608", "ub_bytes: 65536")))
    assert profile.name == "my_chip"
    assert profile.device.vector_cores == 7
    assert profile.device.ub_bytes == 65280


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  ub_bytes: 196608", "  ub_bytes: -5", "ub_bytes: -5"),
        ("  l1_bytes: 524288", "  l1_bites: 524288", "did you mean l1_bytes"),
        ("default_soc: Ascend910B1", "default_soc: Ascend910B9", "'Ascend910B9' is not among socs"),
        ("overflow_mode: inf_nan", "overflow_mode: wrap", "'wrap' is not allowed"),
        ("  - rms_norm_grad", "  - rms_norm_gradient", "'rms_norm_gradient' is not one of"),
        (
            "cube_dtypes: [float16, bfloat16, float32, hf32]",
            "cube_dtypes: [float16]\nnot_modelled: {rms_norms: why}",
            "did you mean rms_norm",
        ),
        (
            "cube_dtypes: [float16, bfloat16, float32, hf32]",
            "cube_dtypes: [float16]\nnot_modelled: {rms_norm: why}",
            "is also among operators",
        ),
        ("title: Atlas A2", "title: Atlas A2\ntitle: twice", "repeats the key of line 5"),
        ("name: atlas_a2", "name: a: b", "not valid YAML"),
        ("    ai_core_count: 24", "    ai_core_count: many", "'many' is not allowed"),
    ],
)
def test_the_error_for_an_invalid_file_names_file_line_key_and_value(
    a2_text, written, old, new, message
):
    assert old in a2_text
    text = a2_text.replace(old, new, 1)
    line = text[: text.index(new) + len(new)].count("\n") + 1
    path = written(text)
    with pytest.raises(UsageError) as refused:
        load_profile(path)
    assert f"{path}, line {line}" in refused.value.message
    assert message in refused.value.message


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just words"])
def test_a_file_that_is_not_a_mapping_is_refused(written, text):
    with pytest.raises(UsageError, match="not a mapping"):
        load_profile(written(text))


def test_unknown_names_are_refused_with_the_nearest_name():
    with pytest.raises(UsageError, match="did you mean atlas_a2"):
        load_profile("atlas_a22")
    with pytest.raises(UsageError, match="did you mean Ascend910B4"):
        load_profile("atlas_a2", soc="Ascend910B44")
    with pytest.raises(UsageError, match="no shipped product"):
        load_profile(None, "Ascend999")
    with pytest.raises(UsageError, match="ascend_950 is a product, not a SoC"):
        load_profile(None, "Ascend950")
    with pytest.raises(UsageError, match="cannot be read"):
        load_profile("missing.yaml")
