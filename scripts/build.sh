#!/usr/bin/env bash
# Builds a preset (default: release): build/<preset>/pipedream. usage: build.sh [PRESET [TARGET ...]]
set -euo pipefail
cd "$(dirname "$0")/.."
./scripts/install_packages.sh
preset=${1:-release}
shift || true
launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
cmake --preset "$preset" "${launcher[@]}" >"/tmp/pipedream-configure.$$.log" 2>&1 || { cat "/tmp/pipedream-configure.$$.log"; exit 1; }
rm -f "/tmp/pipedream-configure.$$.log"
targets=()
for target in "$@"; do targets+=(--target "$target"); done
cmake --build --preset "$preset" "${targets[@]}"
