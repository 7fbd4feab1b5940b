"""Hooks of the documentation site, named in ``mkdocs.yml``."""

import re
from typing import Any

ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):<code>~?")


def on_page_content(html: str, **_: Any) -> str:
    """Return the page without Sphinx roles, which docstrings contain and Markdown prints."""
    return ROLE.sub("<code>", html)
