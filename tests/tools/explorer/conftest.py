"""An explorer, and its page in a browser."""

import pytest

from npu_sim.cores import load_profile, shipped_products
from npu_sim.tools.explorer.application import Explorer, serving
from tests.browser import browser, chromium
from tests.tools.explorer.page import PageObject

__all__ = ["browser", "chromium"]


@pytest.fixture(scope="module")
def explorer():
    with serving(Explorer({name: load_profile(name) for name in shipped_products()})) as explorer:
        yield explorer


@pytest.fixture
def page(browser, explorer):
    return PageObject(browser, explorer)
