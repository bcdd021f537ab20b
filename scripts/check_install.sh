#!/usr/bin/env bash
# Installs the torch-free half into a scratch folder and builds and runs a project that finds it with find_package(pipedream).
set -euo pipefail
cd "$(dirname "$0")/.."
./scripts/build.sh core
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cmake --install build/core --prefix "$scratch/installed" >/dev/null
cmake -S examples/consumer -B "$scratch/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$scratch/installed" >/dev/null
cmake --build "$scratch/build" >/dev/null
"$scratch/build/consumer"
