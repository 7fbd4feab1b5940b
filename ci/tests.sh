#!/usr/bin/env bash
# The tests of the README's command, then the long ones, some of which need transformers and accelerate.
set -euo pipefail
cd "$(dirname "$0")/.."
python3 -m venv .venv && .venv/bin/pip install -q -c constraints.txt -e '.[dev]' && .venv/bin/python -m pytest -q
.venv/bin/pip install -q -c constraints.txt transformers==5.23.0 accelerate==1.15.0
.venv/bin/python -m pytest -q -m long
