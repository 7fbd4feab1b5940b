"""Status codes of the aclnn interface, and the errors of the package: what the product refuses, and what a caller got wrong.

Source: the "返回值" sections of the product documents; the names are those of the vendor's aclnn
return codes.
"""

from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from npu_sim.language import say, translated

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


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


class NpuSimError(Exception):
    """An answer that is no result: :class:`AclnnError`, the product refuses, or :class:`UsageError`, the caller is to mend something.

    Attributes
    ----------
    argument
        Name of the argument at fault, as the caller wrote it.
    message
        What is wrong: the value and the limit it breaks.
    hint
        What would be right: the nearest legal value, or what to do. May be empty.
    """

    argument: str
    message: str
    hint: str

    def as_dict(self) -> dict[str, Any]:
        """Return the error as plain data, the form ``--json`` prints."""
        return {"argument": self.argument, "message": self.message, "hint": self.hint}


class AclnnError(NpuSimError):
    """A call that the product refuses, with the status that it would return.

    Attributes
    ----------
    status
        The aclnn return code.
    argument, message, hint
        As in every :class:`NpuSimError`.
    """

    def __init__(self, status: Status, argument: str, message: str, hint: str = "") -> None:
        self.status = Status(status)
        self.argument = argument
        self.message = message
        self.hint = hint
        super().__init__(status, argument, message, hint)

    def __str__(self) -> str:
        text = f"{int(self.status)} {self.status.name}: {translated(self.message)}"
        return f"{text}\n{translated(self.hint)}" if self.hint else text

    def as_dict(self) -> dict[str, Any]:
        """Return the error as plain data, the form ``--json`` prints."""
        return {"status": int(self.status), "status_name": self.status.name, **super().as_dict()}


class UsageError(NpuSimError, ValueError):
    """A mistake of the caller, of which the product never hears: an unknown name, a file that cannot be read, a text of no meaning."""

    def __init__(self, argument: str, message: str, hint: str = "") -> None:
        self.argument = argument
        self.message = message
        self.hint = hint
        super().__init__(argument, message, hint)

    def __str__(self) -> str:
        message = translated(self.message)
        return f"{message}\n{translated(self.hint)}" if self.hint else message


def straight(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Let the errors of a public function come straight from its call: a traceback without the frames in between."""

    @wraps(function)
    def called(*arguments: Parameters.args, **keywords: Parameters.kwargs) -> Returned:
        try:
            return function(*arguments, **keywords)
        except NpuSimError as error:
            raise error.with_traceback(None) from None

    return called


LONGEST_VALUE = 120
"""Characters of a value in a message."""


def shown(value: Any) -> str:
    """Return a value as messages show it: on a few characters, whatever it is."""
    try:
        text = repr(value)
    except (
        Exception
    ) as error:  # an object of a stranger, or a whole number of more digits than Python prints
        bits = value.bit_length() if isinstance(value, int) else 0
        text = (
            f"a whole number of {bits} bits"
            if bits
            else f"a {type(value).__name__} that cannot be shown ({type(error).__name__})"
        )
    if len(text) <= LONGEST_VALUE:
        return text
    return f"{text[: LONGEST_VALUE // 2]}... ({len(text)} characters)"


def refusal_text(error: AclnnError) -> str:
    """Return a refusal as people read it: the outcome, what is wrong, and what would be right."""
    hint = f"\n{error.hint}" if error.hint else ""
    code = f"{int(error.status)} {error.status.name}"
    return say("refused, {code}\n\n{message}{hint}", code=code, message=error.message, hint=hint)


LONGEST_WORD = 100
"""Characters of a misspelt word that is compared with the known ones; the time grows with their
number."""
NEAR = 0.65
"""How alike, of 1, two words are of which one may be meant for the other, as difflib counts."""


def plain_name(text: str) -> str:
    """Return a name as names are compared: without case, blanks, hyphens and underscores."""
    return "".join(letter for letter in text.casefold() if letter not in " -_\t\u3000")


def closest(word: Any, known: Iterable[str]) -> str:
    """Return ``"; did you mean X?"`` for the known word nearest to ``word``, or nothing when none is near or it is no word."""
    if not isinstance(word, str) or len(word) > LONGEST_WORD:
        return ""
    import difflib  # only for those who mistyped

    by_plain_name = {plain_name(one): one for one in known}
    near = difflib.get_close_matches(plain_name(word), by_plain_name, n=1, cutoff=NEAR)
    return f"; did you mean {by_plain_name[near[0]]}?" if near else ""
