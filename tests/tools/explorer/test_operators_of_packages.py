"""Operators of other packages and of files in the explorer."""

import subprocess
import sys

import pytest

from npu_sim import registry
from npu_sim.cores import load_profile, shipped_products
from npu_sim.tools.explorer.state import catalog
from tests.operators.test_broken_packages import MODULES, broken  # noqa: F401
from tests.operators.test_own_operator import PACKAGE, ROOT


def test_the_explorer_warns_of_a_broken_package_and_leaves_its_operator_out(broken):  # noqa: F811
    products = {name: load_profile(name) for name in shipped_products()}
    with pytest.warns(RuntimeWarning, match=MODULES[broken][1]):
        operators = catalog(products)["operators"]
    assert [operator["name"] for operator in operators] == list(registry.OPERATOR_NAMES)


def test_the_explorer_offers_an_operator_of_a_file():
    file = PACKAGE / "scale_rows" / "__init__.py"
    program = (
        "import sys, pathlib, npu_sim; npu_sim.register_file(pathlib.Path(sys.argv[1]));"
        "from npu_sim.tools.explorer.state import catalog;"
        "print([operator['name'] for operator in catalog({})['operators']])"
    )
    done = subprocess.run(
        (sys.executable, "-c", program, str(file)),
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert "scale_rows" in done.stdout
