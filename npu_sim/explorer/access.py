"""Access control of the explorer: which requests are answered.

On the loopback address, requests must come from the explorer's own page or from outside a browser.
On any other address, every request needs the token as well.
"""

import secrets
from dataclasses import dataclass, field

from starlette.requests import Request

LOOPBACK = "127.0.0.1"
LOCAL_NAMES = (LOOPBACK, "localhost")
HTTP_PORT = 80
"""Browsers omit this port from addresses."""
TOKEN_HEADER = "X-Npu-Sim-Token"
TOKEN_COOKIE = "npu_sim_token"
TRUSTED_SITES = ("", "same-origin", "none")
"""Values of ``Sec-Fetch-Site``: none sent, a request of the page, an address typed by the user."""


@dataclass(frozen=True)
class Access:
    """The address and the token that requests are checked against.

    Attributes
    ----------
    host
        Address that the server listens on.
    port
        Its port.
    token
        Secret of this process; the page carries it, pages of other origins cannot read it.
    """

    host: str
    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    @property
    def is_open(self) -> bool:
        """Whether other machines may reach the server: True unless the host is a local name."""
        return self.host not in LOCAL_NAMES

    @property
    def address(self) -> str:
        """Address of the page, with the token where opening the page requires it."""
        query = f"?token={self.token}" if self.is_open else ""
        return f"http://{self.host}:{self.port}/{query}"

    def allows(self, request: Request) -> bool:
        """Return whether a request may be answered.

        Pages of other origins can send requests through the user's browser; ``Host``, ``Origin``
        and ``Sec-Fetch-Site`` expose them.
        """
        host, origin = request.headers.get("Host", ""), request.headers.get("Origin")
        if not _is_trusted_site(request):
            return False
        if self.is_open:
            return self._has_token(request) and origin in (
                None,
                f"http://{host}",
                f"https://{host}",
            )
        names = {f"{local}:{self.port}" for local in LOCAL_NAMES}
        if self.port == HTTP_PORT:
            names |= set(LOCAL_NAMES)
        return host in names and (origin is None or origin in {f"http://{own}" for own in names})

    def is_own_page(self, request: Request) -> bool:
        """Return whether a request carries the token in its header, as those of the page do."""
        return self._is_token(request.headers.get(TOKEN_HEADER, ""))

    def _has_token(self, request: Request) -> bool:
        """Return whether the token is in the address or in the cookie of an opened page."""
        given = (request.query_params.get("token", ""), request.cookies.get(TOKEN_COOKIE, ""))
        return any(self._is_token(text) for text in given)

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode(), self.token.encode())


def _is_trusted_site(request: Request) -> bool:
    """Return whether ``Sec-Fetch-Site`` rules out another site, or a link on it opens the page.

    A link opens the page with ``GET /`` as a document.
    """
    if request.headers.get("Sec-Fetch-Site", "") in TRUSTED_SITES:
        return True
    opens_page = request.method == "GET" and request.scope["path"] == "/"
    return opens_page and request.headers.get("Sec-Fetch-Dest") == "document"
