#!/usr/bin/env bash
# Build and check everything that a release publishes, wheel, source distribution and site: ci/release.sh [TAG]
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(.venv/bin/python -c 'import npu_sim; print(npu_sim.__version__)')
if [ -n "${1:-}" ] && [ "$1" != "v$version" ]; then
    echo "the tag $1 is not v$version" >&2
    exit 1
fi
if [ -n "${1:-}" ] && grep -q "^## $version (not released)" CHANGELOG.md; then
    echo "CHANGELOG.md: the section of $version has no date" >&2
    exit 1
fi
grep -q "^version: $version$" CITATION.cff || { echo "CITATION.cff has another version" >&2; exit 1; }
ci/package.sh
ci/docs.sh
