#!/usr/bin/env bash
# The figures of docs/results.md on this machine: run it alone, timings are only worth something on a quiet machine.
set -euo pipefail
cd "$(dirname "$0")/.."
./scripts/build.sh release
for bench in build/release/bench_plan build/release/bench_reference build/release/schedule_bench; do
  echo "== $(basename "$bench")"
  "$bench"
done
echo "== training"
python3 bench/train/figures.py build/release/pipedream
echo "== processes"
bash bench/processes/run.sh build/release/pipedream
echo "== transport"
bash bench/processes/transport.sh build/release/transport_bench
echo "== time to an accuracy"
python3 bench/processes/time_to_accuracy.py || [ $? -eq 77 ]
