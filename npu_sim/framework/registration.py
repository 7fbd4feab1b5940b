"""Registration of operators: declarations are validated before their first call."""

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import FunctionType, ModuleType

from npu_sim.cores import Device
from npu_sim.framework import patterns
from npu_sim.framework.arguments import (
    COMMON_AXES,
    Attribute,
    ExpressionError,
    IntArray,
    Number,
    Switch,
    Tensor,
    Word,
    names,
)
from npu_sim.framework.checks import (
    Attributes,
    Check,
    DtypeCheck,
    Dtypes,
    DtypeTable,
    Fits,
    Holds,
    Like,
    NothingToDo,
    Ranks,
    SameDtype,
    Shapes,
)
from npu_sim.framework.describing import DESCRIBE
from npu_sim.framework.operator import COMPUTE, Operator, find_hook
from npu_sim.language import Text, Verbatim
from npu_sim.numbers.formats import canonical_dtype
from npu_sim.registry import OPERATOR_NAMES, OperatorEntry, add_operator, registered_declarations
from npu_sim.status import UsageError, tip
from npu_sim.tiling.common import FP32_VALUE, table

ATTRIBUTE_KINDS = (int, float, bool, str, IntArray)
Problem = tuple[str, str, str]
"""The field of a declaration, what is wrong with it, and what is allowed."""


def register(operator: Operator) -> Operator:
    """Register an operator in this process: functions, commands and pages take it by name.

    Parameters
    ----------
    operator
        The declaration. One of the same name that was registered before is replaced.

    Returns
    -------
    Operator
        The declaration itself.

    Raises
    ------
    UsageError
        When the declaration contradicts itself, naming its field and what is allowed, or has the
        name of an operator of the package.
    """
    check_declaration(operator)
    add_operator(OperatorEntry(operator.name, operator.title), operator)
    return operator


def register_file(path: str | Path) -> list[Operator]:
    """Run a Python file and register every operator that it declares.

    Raises
    ------
    UsageError
        For a file that cannot be run, declares none, or has the name of another module.
    """
    module = _run_file(Path(path))
    found = list(
        {
            id(value): value for value in vars(module).values() if isinstance(value, Operator)
        }.values()
    )
    if not found:
        hint = "OPERATOR = Operator(...), as in the file that npu-sim new-operator writes"
        raise _file_error(Path(path), "declares no operator", hint)
    return [register(operator) for operator in found]


def _run_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise _file_error(path, "is not a file", "a Python file that declares operators")
    name = path.parent.name if path.stem == "__init__" else path.stem
    other = sys.modules.get(name)
    is_other = (
        other is not None
        and Path(getattr(other, "__file__", None) or "").resolve() != path.resolve()
    )
    if is_other or name in sys.stdlib_module_names:
        hint = Text("a name of its own, such as {name}_operators.py", name=name)
        raise _file_error(path, Text("has the name of another module, {name}", name=name), hint)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise _file_error(path, "is no Python file", "a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, UsageError) or not isinstance(error, Exception | SystemExit):
            raise
        message = Text(
            "cannot be run: line {line}: {error_type}: {error}",
            line=_line_of(error, path),
            error_type=type(error).__name__,
            error=error,
        )
        raise _file_error(path, message, "a Python file that declares operators") from error
    return module


def _line_of(error: BaseException, path: Path) -> str:
    """Return the last line of a file that led to an error; ``?`` if it led through none."""
    if isinstance(error, SyntaxError):
        return str(error.lineno)
    file, frames = path.resolve(), traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == file]
    return str(lines[-1]) if lines else "?"


def own_error(error: Exception) -> UsageError | None:
    """Return an exception in the code of a registered operator as a usage error with its place.

    None for one that did not pass through such code.
    """
    own = {file for operator in registered_declarations() for file in _files_of(operator)}
    frames = traceback.extract_tb(error.__traceback__)
    frame = next((frame for frame in reversed(frames) if frame.filename in own), None)
    if frame is None:
        return None
    return UsageError(
        "operators",
        "{path}, line {line}, in {function}: {error_type}: {error}",
        "{code}",
        path=frame.filename,
        line=str(frame.lineno),
        function=frame.name,
        error_type=type(error).__name__,
        error=error,
        code=Verbatim(frame.line or ""),
    )


def _files_of(operator: Operator) -> Iterator[str]:
    """Yield the files of the functions that a declaration names."""
    for value in vars(operator).values():
        if isinstance(value, FunctionType):
            yield value.__code__.co_filename


def _file_error(path: Path, problem: str, hint: str) -> UsageError:
    return UsageError(
        "operators", "operators = {path} {problem}", hint, path=repr(str(path)), problem=problem
    )


def check_declaration(operator: Operator) -> None:
    """Refuse a declaration that contradicts itself.

    Checks of dtypes must stand next to each other, because sweeps run them as one; a check that
    sweeps omit, such as :class:`~npu_sim.framework.checks.Formats`, may stand between them.

    Raises UsageError with the first problem.
    """
    for find in (
        _name_problems,
        _axis_problems,
        _argument_problems,
        _check_problems,
        _tiling_problems,
        _order_problems,
    ):
        for field, problem, hint in find(operator):
            raise UsageError(
                field,
                "{name}: {field}: {message}",
                hint,
                name=operator.name,
                field=field,
                message=problem,
            )


def _name_problems(operator: Operator) -> Iterator[Problem]:
    if not operator.name.isidentifier() or operator.name != operator.name.lower():
        message = Text("{name} is not a name", name=repr(operator.name))
        yield "name", message, "a Python name in lower case, such as scale_rows"
    if operator.name in OPERATOR_NAMES:
        hint = Text("a name besides {operator_names}", operator_names=", ".join(OPERATOR_NAMES))
        yield "name", Text("{name} is an operator of npu_sim", name=operator.name), hint
    for place, entries in (
        ("arguments", operator.arguments),
        ("axes", operator.all_axes),
        ("derived", operator.derived),
    ):
        seen: set[str] = set()
        for entry in entries:
            if entry.name in seen:
                yield place, Text("{name} is there twice", name=entry.name), "every name once"
            seen.add(entry.name)
    if not operator.outputs:
        yield "arguments", "there is no output", 'Output("y", ...) among the arguments'


def _axis_problems(operator: Operator) -> Iterator[Problem]:
    attributes = {attribute.name for attribute in operator.attributes}
    dtypes = {tensor.dtype for tensor in operator.tensors}
    sizes = {
        name
        for tensor in operator.tensors
        if isinstance(tensor.shape, str)
        for name in _names_in(tensor.shape)
    }
    known = _numbers(operator)
    for axis in operator.axes:
        place = f"axes.{axis.name}"
        if axis.name in {common.name for common in COMMON_AXES}:
            yield place, Text("{name} is an axis of every operator", name=axis.name), "another name"
        if isinstance(axis, Number) and axis.name not in sizes | attributes and not axis.read:
            hint = Text("one of: {sizes}; or read=...", sizes=", ".join(sorted(sizes)))
            yield place, "no tensor has an axis of this size, and it is not an attribute", hint
        if isinstance(axis, Switch) and axis.tensor and axis.tensor not in operator.input_names:
            unknown = Text("tensor = {tensor} is not an input", tensor=repr(axis.tensor))
            yield place, unknown, _one_of(operator.input_names, axis.tensor)
        if isinstance(axis, Switch) and not axis.tensor and axis.name not in attributes:
            message = "a switch is an attribute, or states whether a tensor is given"
            yield place, message, "an attribute of its name, or tensor=..."
        if isinstance(axis, Word) and axis.name not in dtypes | attributes:
            message = "no tensor has this dtype, and it is not an attribute"
            yield place, message, "dtype= of a tensor, or an attribute of its name"
        if isinstance(axis, Word) and axis.default not in axis.words:
            yield (
                place,
                Text("default = {default} is not one of its values", default=repr(axis.default)),
                Text("words: {words}", words=", ".join(axis.words)),
            )
    numbers = [axis.name for axis in operator.axes if isinstance(axis, Number)]
    yield from _unlisted("shards", operator.shards, numbers, "{name} is not an axis of numbers")
    for derived in operator.derived:
        yield from _expression_problems(f"derived.{derived.name}.swept", derived.swept, known)
    for axis in operator.axes:
        if isinstance(axis, Number) and axis.read:
            yield from _expression_problems(f"axes.{axis.name}.read", axis.read, known)


def _argument_problems(operator: Operator) -> Iterator[Problem]:
    known = _numbers(operator)
    words = {axis.name for axis in operator.axes if isinstance(axis, Word)}
    for argument in operator.arguments:
        place = f"arguments.{argument.name}"
        if isinstance(argument, Attribute) and argument.kind not in ATTRIBUTE_KINDS:
            message = Text("kind = {kind}", kind=repr(argument.kind))
            yield place, message, "int, float, bool, str or IntArray"
        if not isinstance(argument, Tensor):
            continue
        if isinstance(argument.shape, str):
            yield from _expression_problems(
                f"{place}.shape", argument.shape, known, patterns.names, 'axes such as "row* col+"'
            )
        if argument.dtype not in words and not _is_dtype(argument.dtype):
            message = Text(
                "{dtype} is neither an axis of words nor a dtype", dtype=repr(argument.dtype)
            )
            hint = Text("one of: {words}, float32 ...", words=", ".join(sorted(words)))
            yield f"{place}.dtype", message, hint


def _check_problems(operator: Operator) -> Iterator[Problem]:
    arguments = [argument.name for argument in operator.arguments]
    attributes = sorted(attribute.name for attribute in operator.attributes)
    tensors, known = operator.tensor_names, _numbers(operator)
    for position, check in enumerate(operator.checks):
        place = f"checks.{position}"
        if not callable(check):
            hint = "one of npu_sim.framework.checks, or a function of an Inspection"
            yield place, Text("{check} is not a check", check=repr(check)), hint
        if isinstance(check, Dtypes | SameDtype | DtypeTable | Ranks | Like | Shapes):
            yield from _unlisted(place, check.tensors.split(), tensors, "{name} is not a tensor")
        if isinstance(check, Attributes):
            given = check.attributes.split()
            yield from _unlisted(place, given, attributes, "{name} is not an attribute")
        if isinstance(check, Holds | NothingToDo):
            yield from _expression_problems(
                f"{place}.condition", check.condition, known | set(operator.rule_names)
            )
        blamed = check.blames if isinstance(check, Holds | Fits) else None
        if isinstance(blamed, str) and blamed not in arguments:
            message = Text("{blames} is not an argument", blames=repr(blamed))
            yield f"{place}.blames", message, _one_of(arguments, blamed)


def _tiling_problems(operator: Operator) -> Iterator[Problem]:
    if "status" not in getattr(operator.tiling, "_fields", ()):
        message = Text("{tiling} has no field status", tiling=repr(operator.tiling))
        yield "tiling", message, "a NamedTuple with status and fields, see npu_sim.tiling.common"
        return
    try:
        columns = table(operator.tiling)
    except TypeError as error:
        yield "tiling", str(error), "int, float, or a NamedTuple of them"
        return
    known = {axis.name for axis in operator.all_axes} | set(Device._fields) | set(operator.bounds)
    for column in columns:
        if column.field.bound and column.field.bound != FP32_VALUE:
            yield from _expression_problems(
                f"tiling.{column.path}.bound", column.field.bound, known
            )
    needed = {"tile": operator.tile}
    needed |= {hook.name: find_hook(operator, hook) for hook in (DESCRIBE, COMPUTE)}
    for name, found in needed.items():
        if not callable(found):
            yield name, Text("{found} is not a function", found=repr(found)), "a function"


def _order_problems(operator: Operator) -> Iterator[Problem]:
    positions = [
        position for position, check in enumerate(operator.checks) if isinstance(check, DtypeCheck)
    ]
    for position in range(positions[0], positions[-1]) if positions else ():
        check = operator.checks[position]
        if isinstance(check, Check) and check.row_check(operator) is not None:
            hint = "move this check before or after the dtype checks"
            yield f"checks.{position}", "dtype checks must stand next to each other", hint


def _numbers(operator: Operator) -> set[str]:
    """Return every name of an integer of a call."""
    axes = {derived.name for derived in (*operator.axes, *operator.derived)}
    return (
        axes
        | {attribute.name for attribute in operator.attributes if attribute.kind in (int, bool)}
        | {axis.name for axis in COMMON_AXES}
    )


def _expression_problems(
    place: str,
    text: str,
    known: set[str],
    names_of: Callable[[str], Iterable[str]] = names,
    wanted: str = "an expression over integers",
) -> Iterator[Problem]:
    """Yield why an expression, or a pattern, cannot be read, or names in it that are unknown."""
    try:
        unknown = [name for name in names_of(text) if name not in known]
    except (ExpressionError, patterns.PatternError) as error:
        yield place, error.args[0], wanted
        return
    for name in unknown:
        message = Text("{name} in {text} is not known", name=repr(name), text=repr(text))
        yield place, message, _one_of(sorted(known), name)


def _unlisted(
    place: str, given: Iterable[str], known: Sequence[str], problem: str
) -> Iterator[Problem]:
    """Yield the names that are not among the known ones; ``problem`` has the field ``name``."""
    for name in given:
        if name not in known:
            yield place, Text(problem, name=repr(name)), _one_of(known, name)


def _one_of(known: Sequence[str], name: str) -> Text:
    """Return the names that are allowed as a hint, with the one nearest to ``name``."""
    names_text = ", ".join(known) or "none"
    return Text("{tip}one of: {known}", known=names_text, tip=tip(name, known))


def _names_in(pattern: str) -> tuple[str, ...]:
    try:
        return patterns.names(pattern)
    except patterns.PatternError:
        return ()


def _is_dtype(name: str) -> bool:
    try:
        return canonical_dtype(name) == name
    except ValueError:
        return False
