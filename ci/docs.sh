#!/usr/bin/env bash
# Build the documentation site with warnings as errors.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/pip install --quiet -c constraints.txt -e '.[docs]'
NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet
