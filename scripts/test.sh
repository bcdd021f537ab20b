#!/usr/bin/env bash
# Installs packages if missing, builds, runs every test, ends with ctest's summary. usage: test.sh [ctest options]
set -euo pipefail
cd "$(dirname "$0")/.."
./scripts/build.sh release
ctest --test-dir build/release --output-on-failure --no-tests=error -j "$(nproc)" "$@"
