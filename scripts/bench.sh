#!/usr/bin/env bash
# The figures of docs/results.md on this machine: run it alone, timings are only worth something on a quiet machine.
set -euo pipefail
cd "$(dirname "$0")/.."
./scripts/build.sh release
for bench in build/release/*_bench; do
  [ -x "$bench" ] && "$bench"
done
python3 bench/train/figures.py build/release/pipedream
