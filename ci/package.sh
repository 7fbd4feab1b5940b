#!/usr/bin/env bash
# Build wheel and source distribution; run the demo from the wheel, and tests from the source distribution.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf dist
.venv/bin/python -m hatchling build
python3 -m venv .venv/wheel
.venv/wheel/bin/pip install -q -c constraints.txt dist/*.whl
(cd / && "$OLDPWD/.venv/wheel/bin/npu-sim" demo)

rm -rf .venv/sdist && mkdir -p .venv/sdist
tar xzf dist/*.tar.gz -C .venv/sdist --strip-components 1
cd .venv/sdist
PYTHONPATH=. ../bin/python -m pytest -q -n 0 --collect-only >collected.txt || { tail -n 20 collected.txt && exit 1; }
PYTHONPATH=. ../bin/python -m pytest -q tests/test_package.py tests/test_cores.py tests/operators/test_rms_norm.py tests/benchmarks
