#!/usr/bin/env bash
# The fast part of CI, below six minutes: lint, types, unit tests and a part of the golden tests.
set -euo pipefail
cd "$(dirname "$0")/.."
ci/lint.sh
.venv/bin/python -m pytest -q tests/test_architecture.py tests/test_layout.py tests/numbers tests/orders tests/plans \
    tests/framework tests/tiling tests/kernels tests/operators tests/timelines
