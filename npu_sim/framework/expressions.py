"""Integer expressions as text: evaluated for one call, or turned into source for Numba."""

import ast
from collections.abc import Callable
from functools import cache
from typing import Any

from npu_sim.language import Text

_ALLOWED = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub,
    ast.Compare, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq,
    ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod,
    ast.Name, ast.Load, ast.Constant, ast.Call,
)  # fmt: skip
_FUNCTIONS = {"min": min, "max": max}


class ExpressionError(ValueError):
    """The text is not an expression; the message lists what is allowed."""


@cache
def parse(text: str) -> ast.Expression:
    """Parse an expression of integers, names, arithmetic, comparisons, and/or/not, min and max.

    Raises ExpressionError for any other text.
    """
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError as error:
        raise ExpressionError(
            Text("{text} is not an expression: {msg}", error, text=repr(text))
        ) from None
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED) or not _is_number_or_function(node):
            wanted = "integers, names, + - * // %, comparisons, and, or, not, min(), max()"
            raise ExpressionError(
                Text(
                    "{text}: {expression} is not allowed; allowed are {wanted}",
                    text=repr(text),
                    expression=repr(ast.unparse(node)),
                    wanted=wanted,
                )
            )
    return tree


def _is_number_or_function(node: ast.AST) -> bool:
    """Return whether a node, if a constant, is an integer, and if a call, of a known function."""
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    return not isinstance(node, ast.Call) or getattr(node.func, "id", "") in _FUNCTIONS


@cache
def names(text: str) -> tuple[str, ...]:
    """Return the names in an expression, in order."""
    found = [
        node.id
        for node in ast.walk(parse(text))
        if isinstance(node, ast.Name) and node.id not in _FUNCTIONS
    ]
    return tuple(dict.fromkeys(found))


def evaluate(text: str, value_of: Callable[[str], Any]) -> Any:
    """Return the value of an expression; ``value_of`` gives that of a name."""
    return _function(text)(*map(value_of, names(text)))


@cache
def _function(text: str) -> Callable[..., Any]:
    """Return an expression as a function of its names."""
    function: Callable[..., Any] = eval(
        f"lambda {', '.join(names(text))}: {text}", {"__builtins__": {}, **_FUNCTIONS}
    )  # parsed above
    return function


class _Qualify(ast.NodeTransformer):
    def __init__(self, rules: tuple[str, ...]) -> None:
        self.rules = rules

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Qualify a name."""
        if node.id in _FUNCTIONS:
            return node
        return ast.Attribute(
            ast.Name("rules" if node.id in self.rules else "row", ast.Load()), node.id, ast.Load()
        )


def in_row(text: str, rules: tuple[str, ...] = ()) -> str:
    """Return an expression with names replaced by fields of ``rules``, if there, or ``row``."""
    tree = ast.parse(ast.unparse(parse(text)), mode="eval")
    return ast.unparse(ast.fix_missing_locations(_Qualify(rules).visit(tree)))
