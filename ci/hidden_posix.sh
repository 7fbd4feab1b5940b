#!/usr/bin/env bash
# Run every command with the parts of Python hidden that Windows does not have, in each encoding of a console, in a
# folder whose name has blanks and non-ASCII letters; the results must have the same bits as with these parts. Then run
# the tests of what is written; TESTS=tests runs all.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export NPU_SIM_CACHE_DIR="$folder/kernels of this test"
python="$root/.venv/bin/python"
cd "$folder"
"$python" "$root/ci/every_command.py" "$folder/all" "$root/tests/data"
export PYTHONPATH="$root/ci/hidden_posix" NPU_SIM_CACHE_DIR="$folder/hidden"
if "$python" -c 'import fcntl' 2>/dev/null; then
    echo "fcntl is not hidden" >&2
    exit 1
fi
for encoding in ${*:-cp1252 gbk utf-8}; do
    echo "== POSIX hidden, console $encoding"
    hidden="$folder/hidden, 目录 é $encoding"
    PYTHONIOENCODING=$encoding "$python" "$root/ci/every_command.py" "$hidden" "$root/tests/data"
    diff -r "$folder/all/results" "$hidden/results"
done
cd "$root"
"$python" -m pytest -q -W 'ignore:only soft file lock is available' ${TESTS:-tests/files tests/sweeps tests/plans}
echo "the same bits with POSIX hidden"
