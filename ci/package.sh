#!/usr/bin/env bash
# Build wheel and source distribution. The wheel, in a fresh environment without the clone, runs every command and stays
# small; the source distribution builds the same wheel, and its tests run.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
rm -rf dist .venv/wheel .venv/sdist .venv/smoke
.venv/bin/python -m hatchling build
python3 -m venv .venv/wheel
.venv/wheel/bin/pip install -q -c constraints.txt dist/*.whl
mkdir .venv/smoke
cp -r ci/every_command.py tests/data .venv/smoke
(cd / && "$root/.venv/wheel/bin/python" "$root/.venv/smoke/every_command.py" "$root/.venv/smoke/run" "$root/.venv/smoke/data")
(cd / && NPU_SIM_LANG=zh "$root/.venv/wheel/bin/npu-sim" --help | grep 退出码 >/dev/null)  # the catalogue is in the wheel
.venv/wheel/bin/python ci/installed.py

mkdir -p .venv/sdist
tar xzf dist/*.tar.gz -C .venv/sdist --strip-components 1
(cd .venv/sdist && ../bin/python -m hatchling build -t wheel)
cmp dist/*.whl .venv/sdist/dist/*.whl
cd .venv/sdist
PYTHONPATH=. ../bin/python -m pytest -q -n 0 --collect-only >collected.txt || { tail -n 20 collected.txt && exit 1; }
PYTHONPATH=. ../bin/python -m pytest -q tests/test_package.py tests/test_cores.py tests/operators/test_rms_norm.py tests/benchmarks
