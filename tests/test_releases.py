"""Releases of the product's software: data with a source, selected independently of the chip."""

import pytest

import npu_sim
from npu_sim.cores import (
    ReleaseTable,
    default_release,
    is_older,
    load_profile,
    release_names,
    release_table,
    shipped_products,
)
from npu_sim.language import grouped
from npu_sim.registry import OPERATOR_NAMES

ARCHITECTURES = {load_profile(name).npu_arch for name in shipped_products()}
FACTS = {"stands_for": "a tag", "evidence": "its sources"}


def table(**changes: object) -> dict[str, object]:
    switch = {"help": "a fact", "source": "a page", "since": {"1": 10, "2": 11}}
    return {
        "default": "3",
        "releases": dict.fromkeys("123", FACTS),
        "switches": {"rms_norm": {"rows": switch}},
        **changes,
    }


def test_the_default_is_a_release_of_published_sources():
    assert release_names() == ("8.3", "8.5", "9.0", "9.1", "9.1.1", "9.2")
    assert default_release() == "9.1"


@pytest.mark.parametrize(
    ("stated", "release"),
    [
        ("8.3.RC1", "8.3"),
        ("8.3.RC1.alpha003", "8.3"),
        ("8.5.0", "8.5"),
        ("CANN 8.5.0", "8.5"),
        ("8.5.1", "8.5"),
        ("9.0.1", "9.0"),
        ("9.1.RC1", "9.1"),
        ("9.1.0", "9.1"),
        (9.1, "9.1"),
        ("9.1.1", "9.1.1"),
        ("V9.1.1", "9.1.1"),
        ("cann-9.1.2", "9.1.1"),
        ("v9.2.0-beta.1", "9.1"),
        ("9.2.0", "9.2"),
    ],
)
def test_a_version_of_a_toolkit_selects_the_newest_release_that_is_not_newer(stated, release):
    assert load_profile("atlas_a2", release=stated).release == release


@pytest.mark.parametrize(("release", "value"), [("1", 10), ("2", 11), ("3", 11)])
def test_a_switch_keeps_its_value_until_a_release_changes_it(release: str, value: int):
    assert ReleaseTable.model_validate(table()).values(release, "rms_norm", 2201) == {"rows": value}


@pytest.mark.parametrize("since", [{"2": 11}, {"1": 10, "4": 11}, {}])
def test_a_switch_covers_the_oldest_release_and_names_known_releases(since: dict[str, int]):
    switch = {"help": "a fact", "source": "a page", "since": since}
    with pytest.raises(ValueError, match="since"):
        ReleaseTable.model_validate(table(switches={"rms_norm": {"rows": switch}}))


def test_an_assumption_about_an_unknown_release_is_refused():
    with pytest.raises(ValueError, match=r"assumed\.rms_norm: 4 is not among releases: 1, 2, 3"):
        ReleaseTable.model_validate(table(assumed={"rms_norm": {"4": "nothing changed"}}))


def test_an_unknown_default_release_is_refused():
    with pytest.raises(ValueError, match="'4' is not among releases: 1, 2, 3"):
        ReleaseTable.model_validate(table(default="4"))


def test_every_switch_belongs_to_an_operator_and_names_its_source():
    for operator, switches in release_table().switches.items():
        assert operator in OPERATOR_NAMES
        assert all(switch.source and switch.help for switch in switches.values())
        assert set(switches) == set(load_profile("atlas_a2").release_switches(operator))
        assert all(set(switch.architectures) <= ARCHITECTURES for switch in switches.values())


def test_a_switch_keeps_the_value_of_the_default_where_it_changes_nothing():
    switch = {"help": "a fact", "source": "a page", "since": {"1": 1, "2": 2}}
    known = ReleaseTable.model_validate(
        table(switches={"rms_norm": {"rows": {**switch, "architectures": [3510]}}})
    )
    found = {
        architecture: [known.values(release, "rms_norm", architecture)["rows"] for release in "123"]
        for architecture in (2201, 3510)
    }
    assert found == {2201: [2, 2, 2], 3510: [1, 2, 2]}
    changed = [known.changed("1", "2", "rms_norm", architecture) for architecture in found]
    assert [len(switches) for switches in changed] == [0, 1]


@pytest.mark.parametrize(
    ("product", "operator", "equal"),
    [
        ("atlas_a2", "rms_norm_grad", [("9.1", "9.1.1", "9.2")]),
        ("ascend_950", "rms_norm", [("9.1", "9.1.1", "9.2")]),
        ("ascend_950", "rms_norm_grad", [("9.1", "9.1.1")]),
        ("atlas_a2", "moe_token_permute", [("9.0", "9.1", "9.1.1", "9.2")]),
    ],
)
def test_releases_that_do_not_differ_on_a_product_are_equal(product, operator, equal):
    """Verdicts and profiles compute releases with equal switches once."""
    known = [
        release
        for release in release_names()
        if not is_older(release, load_profile(product).product.oldest_release)
    ]
    groups = grouped(
        (tuple(load_profile(product, release=one).release_switches(operator).values()), one)
        for one in known
    )
    assert [tuple(group) for group in groups.values() if len(group) > 1] == equal


def test_a_profile_keeps_its_release_when_the_soc_changes():
    profile = load_profile("atlas_a2", release="8.5").with_soc("Ascend910B3")
    assert (profile.soc, profile.release) == ("Ascend910B3", "8.5")
    assert load_profile(profile).release == "8.5"
    assert load_profile(profile, release="9.0").release == "9.0"


KNOWN = "releases: 8.3, 8.5, 9.0, 9.1, 9.1.1, 9.2"


@pytest.mark.parametrize(
    ("release", "message", "hint"),
    [
        ("8.4", "no such release of the product's software", "did you mean 8.5? "),
        ("9.3", "is newer than every release that npu_sim knows", "9.2 is the newest, what "),
        ("10.0.0", "is newer than every release that npu_sim knows", "9.2 is the newest, what "),
        ("8.0.RC3", "is older than every release that npu_sim knows", "8.3 is the oldest, "),
        ("latest", "no such release of the product's software", "releases: "),
    ],
)
def test_an_unknown_release_is_refused_with_the_list(release, message, hint):
    with pytest.raises(npu_sim.UsageError) as refused:
        npu_sim.plan("rms_norm_grad", dy="32x512:bf16", gamma="512:bf16", release=release)
    assert refused.value.argument == "release"
    assert f"release = '{release}'" in refused.value.message
    assert message in refused.value.message
    assert refused.value.hint.startswith(hint)
    assert refused.value.hint.endswith(KNOWN)
