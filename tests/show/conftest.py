from tests.browser import browser, chromium

__all__ = ["browser", "chromium"]
