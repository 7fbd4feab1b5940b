"""The messages behind the status codes, kept for every thread until they are asked for."""

import threading

from npu_sim.status import AclnnError, Status

KEPT_MESSAGES = 16
"""Older messages of a thread are dropped, so that a caller who never asks does not collect them for
ever."""


class _Messages(threading.local):
    def __init__(self) -> None:
        self.newest_first: list[str] = []


_messages = _Messages()


def report(interface: str, error: AclnnError, argument: str = "") -> Status:
    """Keep the message of a refused call and return its status.

    Parameters
    ----------
    interface
        Name of the function that refuses.
    error
        The refusal.
    argument
        Name of the argument at fault in the product document; empty when the error's own name is
        right.
    """
    where = f" ({argument or error.argument})" if argument or error.argument else ""
    _messages.newest_first.insert(0, f"{interface}{where}: {error}")
    del _messages.newest_first[KEPT_MESSAGES:]
    return error.status


def aclGetRecentErrMsg() -> str | None:
    """Return the messages of this thread's refused calls, the newest first, and forget them; None when there are none."""
    messages = _messages.newest_first
    if not messages:
        return None
    _messages.newest_first = []
    return "\n".join(messages)
