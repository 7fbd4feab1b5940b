"""Every recorded refusal is translated as a whole."""

import gzip
import json
import re

import pytest

import npu_sim
from npu_sim.language import translated, using_language
from tests.operators.test_recorded_calls import OPERATORS, RECORDED, product

ENGLISH = re.compile(r"(?<![\w./\"'-])[a-z]{2,} [a-z]{2,}(?![\w./\"'(=:-])")
"""Two English words outside names, dtypes and values."""
NAMES = re.compile(r"indices scalar|Atlas \w+ series|reduction (mean|sum|none)")
"""Names and values that read like words."""


def refusals(operator):
    """Return one refusal of every template, from the recorded calls."""
    calls = json.loads(gzip.decompress((RECORDED / f"{operator}.json.gz").read_bytes()))
    errors = {}
    for call, status, _ in calls:
        options = {"operator": operator, **call}
        named = options.pop("profile", "atlas_a2")
        if status == 0:
            continue
        try:
            npu_sim.plan(product=product(named) if named.endswith(".yaml") else named, **options)
        except (npu_sim.AclnnError, npu_sim.UsageError) as error:
            key = tuple(getattr(text, "template", text) for text in (error.message, error.hint))
            errors.setdefault(key, error)
    return errors.values()


@pytest.mark.parametrize("operator", OPERATORS)
def test_refusals_have_no_english_clause(operator):
    errors = refusals(operator)
    assert len(errors) > 10
    with using_language("zh"):
        texts = [translated(text) for error in errors for text in (error.message, error.hint)]
    lines = [NAMES.sub("", line) for text in texts for line in text.splitlines()]
    assert [line for line in lines if ENGLISH.search(line)] == []
