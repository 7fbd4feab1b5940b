"""Page object of the explorer."""

import json
from base64 import b64encode

SMALL_DIM = (
    "#operator=embedding_dense_backward&product=atlas_a2&rows=65536&dim=512&num_weights=32000"
)


class PageObject:
    """Actions and observations of a user."""

    def __init__(self, browser, explorer):
        self.browser, self.driver, self.explorer, self.address = (
            browser,
            browser.driver,
            explorer,
            explorer.access.address,
        )

    def open(self, link="", dark=False):
        self.browser.open(self.address + link, dark)
        self.wait(
            lambda: self.script("return document.querySelector('#first .headline')?.textContent")
        )
        self.settle()

    def settle(self):
        """Wait until every request is answered."""
        self.wait(lambda: self.script("return document.body.dataset.state") == "still")

    def wait(self, condition, seconds=20):
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, seconds, 0.02).until(lambda _: condition())

    def find(self, selector):
        return self.driver.find_elements("css selector", selector)

    def element(self, selector):
        return self.driver.find_element("css selector", selector)

    def text(self, selector):
        return self.element(selector).text

    def texts(self, selector):
        return [element.text for element in self.find(selector)]

    def path(self):
        return self.script(
            "const shown = document.querySelector('#first dd.path'); return shown ? "
            "shown.textContent : ''"
        )

    def answer(self, path, query="location.hash.slice(1)"):
        """Return the answer for a pane, parsed here: a browser rounds integers above 2^53."""
        return json.loads(
            self.script(f"return fetch('api/{path}?' + {query}).then((reply) => reply.text())")
        )

    def plan(self):
        """Return the plan on screen, as the server sends it."""
        return self.answer("json")["plan"]

    def wait_for_changes(self):
        """Wait for the slower part of the answer."""
        self.wait(lambda: self.find("#first .follows") and not self.find(".stale"))

    def type(self, name, value):
        field = self.driver.find_element("id", f"field-{name}")
        field.clear()
        field.send_keys(value)

    def choose(self, name, value):
        script = (
            "const field = document.getElementById(arguments[0]); field.value = "
            "arguments[1]; field.dispatchEvent(new Event('change'))"
        )
        self.script(script, f"field-{name}", value)
        self.settle()

    def chip(self, beginning):
        """Return the button that offers a change."""
        return next(
            button for button in self.find(".chips button") if button.text.startswith(beginning)
        )

    def copied(self, button):
        """Press a copy button and return the text it copies."""
        self.script(
            "window.copied = null; navigator.clipboard.writeText = async (text) => "
            "{ window.copied = text; }"
        )
        self.element(button).click()
        self.wait(lambda: self.script("return window.copied") is not None)
        return self.script("return window.copied")

    def drop(self, name, content):
        """Drop a file on the page and wait until it is read."""
        script = """
            const transfer = new DataTransfer();
            transfer.items.add(new File([Uint8Array.from(atob(arguments[1]), (node) =>
                node.charCodeAt(0))], arguments[0]));
            document.dispatchEvent(new DragEvent("drop", {dataTransfer: transfer, bubbles: true}));
        """
        self.script(script, name, b64encode(content).decode())
        self.wait(lambda: self.script("return document.body.dataset.job") == "ended", 60)
        self.settle()

    def set_width(self, width):
        metrics = {"width": width, "height": 1800, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def script(self, source, *arguments):
        return self.driver.execute_script(source, *arguments)
