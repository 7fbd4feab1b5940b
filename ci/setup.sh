#!/usr/bin/env bash
# Create .venv with the development tools and the CPU build of PyTorch: ci/setup.sh [PYTHON]
set -euo pipefail
cd "$(dirname "$0")/.."
"${1:-python3}" -m venv .venv
.venv/bin/pip install --quiet -c constraints.txt -e '.[dev]'
.venv/bin/pip install --quiet torch==2.13.0
