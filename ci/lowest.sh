#!/usr/bin/env bash
# A part of the tests with the lowest declared version of every dependency.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/python ci/lowest.py >.venv/lowest.txt
python3 -m venv .venv/lowest
.venv/lowest/bin/pip install -q -c .venv/lowest.txt -e '.[dev]'
.venv/lowest/bin/python -m pytest -q -p no:cacheprovider tests/hostile tests/cli tests/numbers tests/kernels/test_cache.py
