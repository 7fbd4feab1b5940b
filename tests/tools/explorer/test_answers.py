"""Answers of the explorer without a server."""

import pytest

from npu_sim.cores import load_profile, shipped_products
from npu_sim.tools.explorer.answers import nearest_answer

PRODUCTS = {name: load_profile(name) for name in shipped_products()}


@pytest.mark.parametrize(
    ("product", "release", "first"), [("ascend_350", "9.1", "9.2"), ("ascend_950", "8.5", "9.1")]
)
def test_a_release_before_the_first_known_one_offers_that_one(product, release, first):
    state = {"operator": "rms_norm", "product": product, "release": release}
    change, *_ = nearest_answer(state, PRODUCTS)["changes"]
    assert (change["key"], change["value"]) == ("release", first)
