"""A headless Chromium for browser tests: Debian packages chromium and chromium-driver."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1400,1800",
)
AXE = Path(__file__).parents[1] / "node_modules" / "axe-core" / "axe.min.js"
LOCAL_HOSTS = ("127.0.0.1", "")
"""Hosts that a page may request: the explorer, and the empty host of files and data."""


@dataclass
class Browser:
    """A Chromium with its logs since :meth:`open`."""

    driver: object

    def open(self, address, dark=False):
        """Open a page in light or dark mode, with empty logs."""
        self.driver.get("about:blank")
        self.logs()
        self.set_theme(dark)
        self.driver.get(address)

    def set_theme(self, dark):
        """Set light or dark mode."""
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [theme]})

    def logs(self):
        """Return (console messages, requested addresses) since the last call."""
        console = [entry["message"] for entry in self.driver.get_log("browser")]
        events = [
            json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")
        ]
        requests = [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]
        return console, requests

    def assert_quiet_and_local(self):
        """Check that the console is empty and that no request left the machine."""
        console, requests = self.logs()
        assert console == []
        assert requests
        assert [url for url in requests if (urlsplit(url).hostname or "") not in LOCAL_HOSTS] == []

    def title_under_the_pointer(self, selector):
        """Return the tooltip of the middle of a shape."""
        script = """
            const shape = document.querySelector(arguments[0]);
            shape.scrollIntoView({block: "center"});
            const box = shape.getBoundingClientRect();
            const hit = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
            const title = hit && hit.querySelector(":scope > title");
            return title ? title.textContent : null;
        """
        return self.driver.execute_script(script, selector)

    def violations(self):
        """Return axe-core's accessibility findings: rule and places; skips without axe-core."""
        if not AXE.is_file():
            pytest.skip("needs axe-core: npm install --no-save axe-core")
        self.driver.execute_script(AXE.read_text(encoding="utf-8"))
        script = """
            const summary = (rule) => [rule.id, rule.nodes.map((node) => node.html)];
            axe.run().then((result) => arguments[0](result.violations.map(summary)));
        """
        return self.driver.execute_async_script(script)

    def background(self):
        """Return the colour of the page."""
        return self.driver.execute_script("return getComputedStyle(document.body).backgroundColor")


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """A Chromium for the whole session; tests are skipped without one."""
    webdriver = pytest.importorskip("selenium.webdriver")
    program, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or chromedriver is None:
        pytest.skip("needs chromium and chromedriver (Debian packages chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(
        options=options, service=webdriver.ChromeService(str(Path(chromedriver)))
    )
    driver.set_page_load_timeout(30)
    yield driver
    driver.quit()


@pytest.fixture
def browser(chromium):
    """The browser, with a window of 1400x1800 whatever earlier tests emulated."""
    chromium.set_window_size(1400, 1800)
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    return Browser(chromium)
