#!/usr/bin/env bash
# Installs the release build into a scratch folder and builds and runs a project of its own that finds it with find_package(pipedream).
set -euo pipefail
cd "$(dirname "$0")/.."
./scripts/build.sh release
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cmake --install build/release --prefix "$scratch/installed" >/dev/null
cmake -S examples/consumer -B "$scratch/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$scratch/installed" >/dev/null
cmake --build "$scratch/build" >/dev/null
"$scratch/build/consumer"
"$scratch/installed/bin/pipedream" --version
