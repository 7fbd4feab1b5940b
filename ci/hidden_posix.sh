#!/usr/bin/env bash
# Run every command with the parts of Python hidden that Windows does not have, in each encoding of a console, in a
# folder whose name has blanks and non-ASCII letters; the results must have the same bits as with these parts. Then run
# the tests of what is written; TESTS=tests runs all.
set -euo pipefail
cd "$(dirname "$0")/.."
export root=$PWD python="$PWD/.venv/bin/python" hidden="$PWD/ci/hidden_posix"
encodings=${*:-cp1252 gbk utf-8}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
if PYTHONPATH=$hidden "$python" -c 'import fcntl' 2>/dev/null; then
    echo "fcntl is not hidden" >&2
    exit 1
fi

every_command() { # "not hidden", or the encoding of the console
    export NPU_SIM_CACHE_DIR="$PWD/kernels of this test"
    if [ "$1" != "not hidden" ]; then
        export PYTHONPATH=$hidden NPU_SIM_CACHE_DIR="$PWD/hidden kernels" PYTHONIOENCODING=$1
    fi
    "$python" "$root/ci/every_command.py" "$PWD/目录 é $1" "$root/tests/data" | sed "s/^/$1: /"
}
export -f every_command
printf '%s\n' "not hidden" $encodings | xargs -P 2 -I{} bash -euo pipefail -c 'every_command "{}"'
for encoding in $encodings; do
    diff -r "目录 é not hidden/results" "目录 é $encoding/results"
done
cd "$root"
export PYTHONPATH=$hidden NPU_SIM_CACHE_DIR="$folder/hidden kernels"
"$python" -m pytest -q -W 'ignore:only soft file lock is available' ${TESTS:-tests/files tests/sweeps tests/plans tests/tools/profiles}
echo "the same bits with POSIX hidden"
