"""An explorer, and a page of it in a browser."""

import threading

import pytest

from npu_sim.cores import load_profile, shipped_products
from npu_sim.explorer import Explorer
from tests.browser import browser
from tests.explorer.page import PageObject

__all__ = ["browser"]


@pytest.fixture(scope="module")
def explorer():
    explorer = Explorer({name: load_profile(name) for name in shipped_products()})
    threading.Thread(target=explorer.server.serve_forever, daemon=True).start()
    yield explorer
    explorer.server.shutdown()
    explorer.close()


@pytest.fixture
def page(browser, explorer):
    page = PageObject(browser, explorer)
    yield page
    browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
