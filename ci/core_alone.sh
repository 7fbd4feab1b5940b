#!/usr/bin/env bash
# The core without the tools: tests of commands, views and questions pass in a copy that has no npu_sim/tools.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$PWD/.venv/bin/python
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
git ls-files -z -- . ':!npu_sim/tools' ':!tests/tools' | tar --null -T - -c | tar -x -C "$folder"
cd "$folder"
export PYTHONPATH=$folder
"$python" -m pytest -q -p no:cacheprovider ${TESTS:-tests/test_core_alone.py tests/cli tests/show tests/questions tests/plans}
