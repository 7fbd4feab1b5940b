"""Status codes of the aclnn interface, and the errors of the package.

Source: the "返回值" sections of the product documents; the names are those of the vendor's aclnn
return codes.
"""

import errno
from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import wraps
from types import MappingProxyType
from typing import Any, ClassVar, ParamSpec, TypeVar

from npu_sim.language import Text, Verbatim, joined, say, translated

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


class Status(IntEnum):
    """aclnn return codes: those that the simulated operators report, or that texts contain."""

    ACLNN_SUCCESS = 0
    ACLNN_ERR_PARAM_NULLPTR = 161001
    ACLNN_ERR_PARAM_INVALID = 161002
    ACLNN_ERR_RUNTIME_ERROR = 361001
    ACLNN_ERR_INNER = 561000
    ACLNN_ERR_INNER_INFERSHAPE_ERROR = 561001
    ACLNN_ERR_INNER_TILING_ERROR = 561002
    ACLNN_ERR_INNER_FIND_KERNEL_ERROR = 561003
    ACLNN_ERR_INNER_NULLPTR = 561103


ACLNN_SUCCESS = Status.ACLNN_SUCCESS
NULL_POINTER = Status.ACLNN_ERR_PARAM_NULLPTR
INVALID = Status.ACLNN_ERR_PARAM_INVALID
RUNTIME_FAILURE = Status.ACLNN_ERR_RUNTIME_ERROR
TILING_FAILURE = Status.ACLNN_ERR_INNER_TILING_ERROR
INNER_FAILURE = Status.ACLNN_ERR_INNER
INNER_NULL_POINTER = Status.ACLNN_ERR_INNER_NULLPTR


def _text(template: str, fields: dict[str, Any]) -> str:
    """Return a template with its fields; a text that was made elsewhere stays."""
    is_template = "{" in template and not isinstance(template, Text | Verbatim)
    return Text(template, **fields) if fields and is_template else template


class NpuSimError(Exception):
    """Base class of the errors: :class:`AclnnError` and :class:`UsageError`.

    Parameters
    ----------
    argument
        Name of the invalid argument, as the caller wrote it.
    template
        The value and the limit that it violates: the template of a
        :class:`~npu_sim.language.Text`, or a text that was made elsewhere.
    hint
        The nearest legal value, or what to do, likewise. May be empty.
    fields
        Values of the fields of both templates.

    Attributes
    ----------
    argument, message, hint
        The argument and the finished texts.
    outcome
        Outcome of the call in JSON.
    """

    outcome: ClassVar[str] = "usage"

    def __init__(self, argument: str, template: str, hint: str = "", /, **fields: Any) -> None:
        self.argument = argument
        self.message, self.hint = _text(template, fields), _text(hint, fields)
        super().__init__(argument, self.message, self.hint)

    def as_text(self) -> str:
        """Return message and hint as one text that front ends can render."""
        return joined((self.message, self.hint), "\n") if self.hint else self.message

    def as_dict(self) -> dict[str, Any]:
        """Return the error as plain data, the form ``--json`` prints."""
        return {"argument": self.argument, "message": self.message, "hint": self.hint}

    def __str__(self) -> str:
        return translated(self.as_text())


class AclnnError(NpuSimError):
    """A call that the product refuses, with the status that it would return.

    Attributes
    ----------
    status
        The aclnn return code.
    argument, message, hint
        As in every :class:`NpuSimError`.
    """

    outcome = "refused"

    def __init__(
        self, status: Status, argument: str, template: str, hint: str = "", /, **fields: Any
    ) -> None:
        super().__init__(argument, template, hint, **fields)
        self.status = Status(status)
        self.args = (self.status, *self.args)

    def __str__(self) -> str:
        return f"{int(self.status)} {self.status.name}: {super().__str__()}"

    @property
    def label(self) -> str:
        """The outcome with its status, for tables."""
        return Text("refused {status}", status=int(self.status))

    def as_dict(self) -> dict[str, Any]:
        """Return the error as plain data, the form ``--json`` prints."""
        return {"status": int(self.status), "status_name": self.status.name, **super().as_dict()}


class UsageError(NpuSimError, ValueError):
    """A usage error: an unknown name, an unreadable file, a value of the wrong type."""


class InvalidKeyError(ValueError):
    """An invalid value under a key of a file.

    Attributes
    ----------
    key
        The key, and the keys or positions that it stands under.
    problem
        What is wrong with the value.
    """

    def __init__(self, key: tuple[str | int, ...], problem: str) -> None:
        self.key, self.problem = key, problem
        super().__init__(".".join(map(str, key)) + f": {problem}")


class NotModelledError(UsageError):
    """A call that the product has and that npu_sim does not model there (yet).

    Neither a refusal by the product nor an invalid call: the product's behaviour is unknown.
    """

    outcome = "not_modelled"
    status = None
    label = "not modelled"


class UncountableError(UsageError):
    """A call with a tensor of more bytes than an int64 counts, the type of the product's shapes."""

    status = None


NO_PLAN = (AclnnError, NotModelledError)
"""Errors of a valid call that has no plan on a product."""
Unplanned = AclnnError | NotModelledError


def without_internal_frames(
    function: Callable[Parameters, Returned],
) -> Callable[Parameters, Returned]:
    """Raise the errors of a public function without the package's frames in the traceback."""

    @wraps(function)
    def called(*arguments: Parameters.args, **keywords: Parameters.kwargs) -> Returned:
        try:
            return function(*arguments, **keywords)
        except NpuSimError as error:
            raise error.with_traceback(None) from None

    return called


LONGEST_VALUE = 120
"""Longest representation of a value in a message, in characters."""


OBSTACLES = MappingProxyType(
    {
        errno.ENOENT: Text("No such file or directory"),
        errno.EACCES: Text("Permission denied"),
        errno.EPERM: Text("Operation not permitted"),
        errno.EISDIR: Text("Is a directory"),
        errno.ENOTDIR: Text("Not a directory"),
        errno.ENAMETOOLONG: Text("File name too long"),
        errno.ENOSPC: Text("No space left on device"),
        errno.EROFS: Text("Read-only file system"),
    }
)
"""Usual reasons of the system for refusing a file; the system states them in English only."""


def obstacle(error: OSError | ValueError) -> object:
    """Return why the system refuses a file."""
    number: int = getattr(error, "errno", None) or 0
    return OBSTACLES.get(number) or getattr(error, "strerror", None) or error


def shown(value: Any) -> str:
    """Return the representation of a value for a message, shortened when it is long."""
    try:
        text = repr(value)
    except Exception as error:  # a foreign object, or an integer of more digits than Python prints
        bits = value.bit_length() if isinstance(value, int) else 0
        if bits:
            return Text("an integer of {bits} bits", bits=bits)
        return Text(
            "a {type_name} that cannot be shown ({error_type})",
            type_name=type(value).__name__,
            error_type=type(error).__name__,
        )
    if len(text) <= LONGEST_VALUE:
        return text
    beginning = Verbatim(text[: LONGEST_VALUE // 2])
    return Text("{beginning}... ({length} characters)", beginning=beginning, length=len(text))


def refusal_text(error: AclnnError, message: str | None = None) -> str:
    """Return the outcome, the message and the hint of a refusal; ``message`` replaces the two."""
    code = f"{int(error.status)} {error.status.name}"
    return say("refused, {code}\n\n{message}", code=code, message=message or error.as_text())


LONGEST_WORD = 100
"""Longest word that `closest` compares; the time grows with the length."""
NEAR = 0.65
"""Similarity of a word to one that may be meant, as difflib measures it (0 to 1)."""


_NOT_COMPARED = str.maketrans("", "", " -_\t\u3000")


def plain_name(text: str) -> str:
    """Return a name as names are compared: without case, blanks, hyphens and underscores."""
    return text.casefold().translate(_NOT_COMPARED)


def closest(word: Any, known: Iterable[str]) -> str:
    """Return ``"; did you mean X?"`` for the known word nearest to ``word``, or nothing."""
    near = _nearest(word, known)
    return Text("; did you mean {name}?", name=Verbatim(near)) if near else ""


def tip(word: Any, known: Iterable[str]) -> str:
    """Return ``"did you mean X? "`` for a hint that then lists the known names, or nothing."""
    near = _nearest(word, known)
    return Text("did you mean {name}? ", name=Verbatim(near)) if near else ""


def _nearest(word: Any, known: Iterable[str]) -> str:
    if not isinstance(word, str) or len(word) > LONGEST_WORD:
        return ""
    import difflib  # slow to import, and needed for misspelt names only

    names = {plain_name(name): name for name in known}
    near = difflib.get_close_matches(plain_name(word), names, n=1, cutoff=NEAR)
    return names[near[0]] if near else ""
