"""Access control of the explorer: which requests are answered.

Requests must come from the explorer's own page or from outside a browser, and carry the token, as
other users of this machine reach the loopback address too. The printed address has the token in its
query; opening it stores the token in a cookie.
"""

import secrets
from dataclasses import dataclass, field

from starlette.requests import Request

LOOPBACK = "127.0.0.1"
LOCAL_NAMES = (LOOPBACK, "localhost")
HTTP_PORT = 80
"""Browsers omit this port from addresses."""
TOKEN_HEADER = "X-Npu-Sim-Token"
TRUSTED_SITES = ("", "same-origin", "none")
"""Values of ``Sec-Fetch-Site``: none sent, a request of the page, an address typed by the user."""


@dataclass(frozen=True)
class Access:
    """The address and the token that requests are checked against."""

    host: str
    """Address that the server listens on."""
    port: int
    """Its port."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    """Secret of this process; the page carries it, pages of other origins cannot read it."""

    @property
    def is_open(self) -> bool:
        """Whether other machines may reach the server: True unless the host is a local name."""
        return self.host not in LOCAL_NAMES

    @property
    def address(self) -> str:
        """Address that opens the page, with the token."""
        return f"http://{self.host}:{self.port}/?token={self.token}"

    @property
    def cookie(self) -> str:
        """Name of the cookie with the token; browsers send cookies to all ports of a host."""
        return f"npu_sim_token_{self.port}"

    def refusal(self, request: Request) -> str:
        """Return why a request is not answered, or nothing.

        Pages of other origins can send requests through the user's browser; ``Host``, ``Origin``
        and ``Sec-Fetch-Site`` expose them.
        """
        has_token = self._is_token(request.cookies.get(self.cookie, ""))
        is_sent_by_page = self._is_token(request.headers.get(TOKEN_HEADER, ""))
        reasons = {
            "only for pages of this server: paste a link of another site into the address bar": (
                request.headers.get("Sec-Fetch-Site", "") not in TRUSTED_SITES
            ),
            "only for pages of this server": not self._is_own_origin(request),
            "open the address that npu-sim explore printed: it has a token": not (
                self.opens_page(request) or has_token
            ),
            "only for the page of this server: reload it": (
                request.method == "POST" and not is_sent_by_page
            ),
        }
        return next((reason for reason, holds in reasons.items() if holds), "")

    def opens_page(self, request: Request) -> bool:
        """Return whether the token is in the address of a request."""
        return self._is_token(request.query_params.get("token", ""))

    def _is_own_origin(self, request: Request) -> bool:
        host, origin = request.headers.get("Host", ""), request.headers.get("Origin")
        if self.is_open:
            return origin in (None, f"http://{host}", f"https://{host}")
        without_port = LOCAL_NAMES if self.port == HTTP_PORT else ()
        names = {*(f"{local}:{self.port}" for local in LOCAL_NAMES), *without_port}
        return host in names and (origin is None or origin in {f"http://{name}" for name in names})

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode(), self.token.encode())
