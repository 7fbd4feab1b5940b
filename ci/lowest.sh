#!/usr/bin/env bash
# The tests of what dependencies do (not of threads and of translated texts) with the lowest declared version of each.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/python ci/lowest.py >.venv/lowest.txt
python3 -m venv .venv/lowest
.venv/lowest/bin/pip install -q -c .venv/lowest.txt -e '.[dev]'
.venv/lowest/bin/python -m pytest -q -p no:cacheprovider tests/files tests/framework tests/cli tests/numbers tests/kernels/test_cache.py \
    --ignore tests/cli/test_whole_outputs.py
