#!/usr/bin/env bash
# By hand, on Debian with room for 4 GB: the golden kernels on an emulated ARM64 machine, at a hundredth of its speed.
# Needs root for debootstrap; takes about two hours.
set -euo pipefail
cd "$(dirname "$0")/.."
root=${1:?a folder for the ARM64 system}
apt-get update -qq && apt-get install -y -qq debootstrap qemu-user-static binfmt-support >/dev/null
[ -d "$root/bin" ] || debootstrap --arch=arm64 --include=python3,python3-venv,python3-pip,ca-certificates trixie "$root"
mkdir -p "$root/work" && tar cf - --exclude=.venv --exclude=.git . | tar xf - -C "$root/work"
chroot "$root" sh -c 'cd /work && python3 -m venv .venv && .venv/bin/pip install -q -c constraints.txt -e . pytest hypothesis'
for processor in generic "neoverse-n1" "tsv110"; do
    chroot "$root" sh -c "cd /work && NUMBA_CPU_NAME=$processor .venv/bin/python -m pytest -q tests/kernels tests/numbers -p no:cacheprovider"
done
