"""Data drawn for calls with empty tensors: what the product accepts, ``run`` computes."""

import pytest

import npu_sim
from npu_sim.cores import load_profile
from npu_sim.framework.arguments import Number, Word
from npu_sim.framework.inference import call_with
from npu_sim.numbers.formats import TensorSpec
from npu_sim.operators.loading import load_operator
from npu_sim.registry import OPERATOR_NAMES
from npu_sim.status import AclnnError, NotModelledError
from tests.cases import every


def declared(name, product):
    try:
        return load_operator(name).on(load_profile(product))
    except NotModelledError:
        return None


CASES = [
    (product, name)
    for product in ("ascend_950", "atlas_a2")
    for name in OPERATOR_NAMES
    if declared(name, product)
]


@pytest.mark.parametrize(("product", "name"), every(20, CASES))
def test_empty_calls_run_or_are_refused(product, name):
    operator, accepted = declared(name, product), 0
    sizes = [axis for axis in operator.axes if isinstance(axis, Number)]
    small = {axis.name: max(axis.low, min(axis.default, 6)) for axis in sizes}
    words = [
        {axis.name: word} for axis in operator.axes if isinstance(axis, Word) for word in axis.words
    ]
    for emptied in ({}, *({axis.name: max(axis.low, 0)} for axis in sizes)):
        for changed in ({}, *words):
            values = {**operator.defaults(), **small, **emptied, **changed}
            call = {
                name: str(value) if isinstance(value, TensorSpec) else value
                for name, value in call_with(operator, values).items()
            }
            try:
                npu_sim.run(name, product=product, **call)
                accepted += 1
            except AclnnError:
                continue
    assert accepted > 0
