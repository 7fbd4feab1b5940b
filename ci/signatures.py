"""Write the type stubs of the package from the declarations of the operators.

``python ci/signatures.py`` writes the stubs anew; a test says when they are out of date.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import npu_sim
from npu_sim import study as studies
from npu_sim.framework.arguments import Attribute, IntArray, Output, Tensor, Word
from npu_sim.framework.inference import implied
from npu_sim.framework.operator import Operator
from npu_sim.operators import signature_of
from npu_sim.operators.loading import load_operator
from npu_sim.registry import OPERATORS

PACKAGE = Path(npu_sim.__file__).parent
HEAD = (
    '"""Types of {what}; written by ci/signatures.py from the declarations of the operators."""\n\n'
)
TYPES = PACKAGE / "framework" / "signatures.pyi"

KINDS = ("Described", "Computed", "Natural")
"""Sets of arguments: descriptions, where inputs that the others imply may be left out; data; and
sizes by their natural names."""
QUESTIONS = {
    "diff": "Described",
    "explain": "Described",
    "limits": "Natural",
    "plan": "Described",
    "prepare": "Described",
    "run": "Computed",
}
"""Functions of the package that take an operator, and the set of its arguments."""


def stubs() -> dict[Path, str]:
    """Return every stub by the path it is written to."""
    operators: list[Operator] = [load_operator(entry.name) for entry in OPERATORS]
    return {
        TYPES: "".join([*_types(operators), *_functions(operators), *_studies(operators)]),
        PACKAGE / "__init__.pyi": "".join(_package()),
        PACKAGE / "study.pyi": HEAD.format(what="the studies") + _names(),
    }


def _types(operators: list[Operator]) -> Iterator[str]:
    yield HEAD.format(what="functions and arguments of operators")
    yield textwrap.dedent("""\
        from collections.abc import Callable, Sequence
        from pathlib import Path
        from typing import Any, Literal, NotRequired, Protocol, SupportsIndex, TypeAlias, TypedDict
        from typing import Unpack, overload

        from numpy.typing import NDArray

        from npu_sim.cores import Profile
        from npu_sim.framework.execution import Prepared, Result
        from npu_sim.framework.target import CoreOrder, Limits
        from npu_sim.numbers.formats import TensorSpec
        from npu_sim.plans.model import Plan
        from npu_sim.questions.diff import Comparison
        from npu_sim.questions.explain import Explanation
        from npu_sim.questions.limits import LimitTable
        from npu_sim.studies.certificate import Certificate
        from npu_sim.studies.determinism import DeterminismStudy
        from npu_sim.studies.invariance import InvarianceStudy
        from npu_sim.studies.precision import PrecisionStudy

        class SupportsArray(Protocol):
            def __array__(self) -> Any: ...

        class SupportsDLPack(Protocol):
            def __dlpack__(self, *, stream: Any = ...) -> Any: ...

        Array: TypeAlias = SupportsArray | SupportsDLPack | list[Any] | tuple[Any, ...] | float
        Described: TypeAlias = TensorSpec | str | Array | None
        """)
    yield f"\n__all__ = {[*QUESTIONS, *(operator.name for operator in operators)]}\n"
    for operator in operators:
        planned, computed, natural = [], [], []
        for one in operator.arguments:
            text = _attribute(operator, one) if isinstance(one, Attribute) else "Described"
            optional = (
                not one.required
                if isinstance(one, Attribute)
                else one.optional or isinstance(one, Output)
            )
            planned.append(_key(one.name, text, optional or one.name in implied(operator)))
            if not isinstance(one, Output):
                text = (
                    text
                    if isinstance(one, Attribute)
                    else "Array | None"
                    if one.optional
                    else "Array"
                )
                computed.append(_key(one.name, text, optional))
            natural.append(_key(one.name, "Any", True))
        natural += [
            _key(axis.name, "Any", True)
            for axis in operator.axes
            if axis.name not in operator.by_name
        ]
        for kind, keys in zip(KINDS, (planned, computed, natural), strict=True):
            yield f"\nclass {operator.title}{kind}(TypedDict):\n" + "".join(keys)


def _key(name: str, text: str, optional: bool) -> str:
    return f"    {name}: {f'NotRequired[{text}]' if optional else text}\n"


def _attribute(operator: Operator, one: Attribute) -> str:
    axis = next((axis for axis in operator.axes if axis.name == one.name), None)
    words = ", ".join(f'"{word}"' for word in axis.words) if isinstance(axis, Word) else ""
    names = {
        int: "SupportsIndex",
        float: "float",
        bool: "bool",
        str: f"Literal[{words}]" if words else "str",
        IntArray: "str | Sequence[int]",
    }
    return names[one.kind] + (" | None" if one.optional else "")


def _package() -> Iterator[str]:
    yield HEAD.format(what="the package")
    yield textwrap.dedent("""\
        from npu_sim import aclnn as aclnn, study as study, torch as torch
        from npu_sim.framework.signatures import *
        """)
    for name in npu_sim.__all__:
        if name not in QUESTIONS:
            yield f"from {npu_sim.modules_of_names()[name]} import {name} as {name}\n"
    yield "\n__version__: str\n__all__: list[str]\n"


def _functions(operators: list[Operator]) -> Iterator[str]:
    """Yield what the package has for every operator."""
    for name, kind in QUESTIONS.items():
        yield from _overloads(getattr(npu_sim, name), name, kind, operators)
    options = _parameters(npu_sim.run)[1][1:]
    for operator in operators:
        given = [
            _parameter(operator, one)
            for one in signature_of(operator).parameters.values()
            if one.kind is one.POSITIONAL_OR_KEYWORD
        ]
        lines = f"    {', '.join(given)},\n    {', '.join(['*', *options])},\n"
        yield f"\ndef {operator.name}(\n{lines}) -> {_results(operator)}: ...\n"


OF_OPERATORS = [name for name in studies.__all__ if name in vars(studies)]
"""Studies of an operator; that of a training is imported with PyTorch."""


def _names() -> str:
    """Return the stub of the studies, those of operators among the functions of operators."""
    listed = "".join(
        f"from npu_sim.framework.signatures import {name} as {name}\n" for name in OF_OPERATORS
    )
    return listed + "from npu_sim.torch.ablation import ablation as ablation\n"


def _studies(operators: list[Operator]) -> Iterator[str]:
    run = _parameters(npu_sim.run)[1]
    for name in OF_OPERATORS:
        function = getattr(studies, name)
        own = _parameters(function)[1]
        taken = {"core_order", "deterministic", "out"} if name == "determinism" else {"out"}
        taken |= {text.partition(":")[0] for text in own}
        yield from _overloads(
            function,
            name,
            "Computed",
            operators,
            [text for text in run[1:] if text.partition(":")[0] not in taken],
        )


def _overloads(
    function: Callable[..., Any],
    name: str,
    kind: str,
    operators: list[Operator],
    more: list[str] | None = None,
) -> Iterator[str]:
    positional, parameters, returned = _parameters(function)
    for operator in operators:
        names = ", ".join(
            f'"{one}"' for one in (operator.name, operator.title, f"aclnn{operator.title}")
        )
        given = [
            f"operator: Literal[{names}]",
            *positional[1:],
            "*",
            *parameters[len(positional) :],
            *(more or ()),
        ]
        given.append(f"**arguments: Unpack[{operator.title}{kind}]")
        yield f"\n@overload\ndef {name}(\n    {', '.join(given)}\n) -> {returned}: ...\n"


def _parameters(function: Callable[..., Any]) -> tuple[list[str], list[str], str]:
    """Return the positional parameters, all of them, and what is returned, as a stub has them."""
    node = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body[0]
    assert isinstance(node, ast.FunctionDef)
    assert node.returns is not None
    first = len(node.args.args) - len(node.args.defaults)
    positional = [_declared(one, place >= first) for place, one in enumerate(node.args.args)]
    keywords = [
        _declared(one, default is not None)
        for one, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    ]
    return positional, positional + keywords, ast.unparse(node.returns).strip("'")


def _declared(one: ast.arg, optional: bool) -> str:
    assert one.annotation is not None
    return f"{one.arg}: {ast.unparse(one.annotation)}" + (" = ..." if optional else "")


def _parameter(operator: Operator, one: inspect.Parameter) -> str:
    declared = operator.argument(one.name)
    text = _attribute(operator, declared) if isinstance(declared, Attribute) else "Array"
    if isinstance(declared, Tensor) and declared.optional:
        text += " | None"
    return f"{one.name}: {text}" + ("" if one.default is one.empty else " = ...")


def _results(operator: Operator) -> str:
    each = [f"NDArray[Any]{' | None' if one.given_with else ''}" for one in operator.outputs]
    return each[0] if len(each) == 1 else f"tuple[{', '.join(each)}]"


if __name__ == "__main__":
    for path, text in stubs().items():
        path.write_text(text, encoding="utf-8")
