#!/usr/bin/env bash
# Install Chromium and axe-core, without which the browser tests skip. `ci/browser.sh test` also runs those tests.
set -euo pipefail
cd "$(dirname "$0")/.."
sudo=$([ "$(id -u)" = 0 ] || echo sudo)
if ! command -v chromium >/dev/null; then
    $sudo apt-get update -qq
    $sudo apt-get install -y -qq chromium chromium-driver >/dev/null
fi
if command -v npm >/dev/null; then npm install --silent --no-save --no-package-lock axe-core@4; fi
if [ "${1:-}" = test ]; then .venv/bin/python -m pytest -q tests/tools/explorer tests/show; fi
