#!/usr/bin/env bash
# Installs packages if missing, builds, and trains a convolutional network on real images as a PipeDream pipeline of two ranks:
# measured, planned, run, and the prediction shown beside the measurement. Under 3 minutes after the build on 2 cores.
set -euo pipefail
cd "$(dirname "$0")/.."
./scripts/build.sh release pipedream
run=${1:-$(mktemp -d /tmp/pipedream-demo.XXXXXX)}
./build/release/pipedream train --model vgg11:batch_norm=1 --data fashion-mnist:train=9600,test=2000 --ranks 2 --epochs 1 --lr 0.02 --momentum 0.9 --run "$run"
echo
echo "The run is in $run: open trace.json in https://ui.perfetto.dev, or see 'pipedream report $run'."
