#!/usr/bin/env bash
# Formatting, lint, types, the order of packages, and the size in statements.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/ruff format --check .
.venv/bin/ruff check .
.venv/bin/mypy
.venv/bin/lint-imports
.venv/bin/python ci/size.py
