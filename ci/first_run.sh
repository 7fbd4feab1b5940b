#!/usr/bin/env bash
# What a new user does, on any system: the README's two commands, then every command: ci/first_run.sh [PYTHON]
set -euo pipefail
cd "$(dirname "$0")/.."
venv=.venv/first
"${1:-python}" -m venv "$venv"
bin="$venv/bin"
[ -d "$bin" ] || bin="$venv/Scripts"  # Windows
"$bin/python" -m pip install -q -c constraints.txt -e .
"$bin/npu-sim" demo
"$bin/npu-sim" plan rms_norm_grad --dy 4096x8192:bf16 --gamma 8192:bf16
rm -rf "$venv/every command"
"$bin/python" ci/every_command.py "$venv/every command"
"$bin/python" -m pip install -q -c constraints.txt -e '.[dev]'
"$bin/python" -m pytest -q
