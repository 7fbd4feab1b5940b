"""Status codes of the aclnn interface and the one exception of the package.

Source: the "返回值" sections of the product documents; the names are those of the vendor's aclnn return codes.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Any


class Status(IntEnum):
    """aclnn return codes that the simulated operators report."""

    ACLNN_SUCCESS = 0
    ACLNN_ERR_PARAM_NULLPTR = 161001
    ACLNN_ERR_PARAM_INVALID = 161002
    ACLNN_ERR_RUNTIME_ERROR = 361001
    ACLNN_ERR_INNER_TILING_ERROR = 561002
    ACLNN_ERR_INNER_NULLPTR = 561103


SUCCESS = Status.ACLNN_SUCCESS
MISSING = Status.ACLNN_ERR_PARAM_NULLPTR
INVALID = Status.ACLNN_ERR_PARAM_INVALID
RUNTIME_FAILURE = Status.ACLNN_ERR_RUNTIME_ERROR
TILING_FAILURE = Status.ACLNN_ERR_INNER_TILING_ERROR
HARDWARE_LIMIT = Status.ACLNN_ERR_INNER_NULLPTR


class AclnnError(Exception):
    """A call that the product refuses, or that cannot be carried out here.

    Attributes
    ----------
    status
        The aclnn return code.
    argument
        Name of the argument at fault, as the caller wrote it.
    message
        What is wrong: the value and the limit it breaks.
    hint
        What would be right: the nearest legal value, or what to do. May be empty.
    """

    def __init__(self, status: Status, argument: str, message: str, hint: str = "") -> None:
        self.status = Status(status)
        self.argument = argument
        self.message = message
        self.hint = hint
        super().__init__(status, argument, message, hint)

    def __str__(self) -> str:
        text = f"{int(self.status)} {self.status.name}: {self.message}"
        return f"{text}\n{self.hint}" if self.hint else text

    def as_dict(self) -> dict[str, Any]:
        """Return the error as plain data, the form ``--json`` prints."""
        return {
            "status": int(self.status),
            "status_name": self.status.name,
            "argument": self.argument,
            "message": self.message,
            "hint": self.hint,
        }


LONGEST_VALUE = 120
"""Characters of a value in a message."""


def shown(value: Any) -> str:
    """Return a value as messages show it: on a few characters, whatever it is."""
    try:
        text = repr(value)
    except Exception as error:  # an object of a stranger, or a whole number of more digits than Python prints
        bits = value.bit_length() if isinstance(value, int) else 0
        text = f"a whole number of {bits} bits" if bits else f"a {type(value).__name__} that cannot be shown ({type(error).__name__})"
    if len(text) <= LONGEST_VALUE:
        return text
    return f"{text[: LONGEST_VALUE // 2]}... ({len(text)} characters)"


def refusal_text(error: AclnnError) -> str:
    """Return a refusal as people read it: the outcome, what is wrong, and what would be right."""
    hint = f"\n{error.hint}" if error.hint else ""
    return f"refused, {int(error.status)} {error.status.name}\n\n{error.message}{hint}"


LONGEST_WORD = 100
"""Characters of a misspelt word that is compared with the known ones; the time grows with their number."""


def closest(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean X?"`` for the known word nearest to ``word``, or nothing when none is near."""
    if len(word) > LONGEST_WORD:
        return ""
    import difflib  # only for those who mistyped

    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""
