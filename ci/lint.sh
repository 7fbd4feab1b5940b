#!/usr/bin/env bash
# Formatting, lint, types, the order of packages, the form of the workflow files, and the size in tokens.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/ruff format --check .
.venv/bin/ruff check .
.venv/bin/mypy
.venv/bin/lint-imports
.venv/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
.venv/bin/python ci/size.py
