#!/usr/bin/env bash
# Ranks as processes, measured. Ratios are of runs that follow each other on the same machine.
#
#   bench/processes/run.sh [PROGRAM]      default: build/release/pipedream
#
# 1. Efficiency (compute of the slowest rank / period) of two ranks as threads and as processes over Gloo, three models.
# 2. A VGG-16 for small images on two pretended hosts (scripts/hosts.sh, root) with 1 Gbit/s between them: the planner's pipeline against
#    synchronous data parallelism, time and bytes, measured and predicted. RATE=100mbit takes another rate; PARTS=2 runs this part only.
set -euo pipefail
cd "$(dirname "$0")/../.."
program=$(realpath "${1:-build/release/pipedream}")
rate=${RATE:-1gbit}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

value() { sed -n "s/^ *\"$2\": *\([-0-9.e+]*\),\{0,1\}$/\1/p" "$1" | head -n 1; }
divide() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.3f", (b > 0 ? a / b : 0) }'; }
train() { "$program" --quiet train --no-baseline --no-evaluation --json "$@"; }

efficiency() {
echo "efficiency of two ranks, one core each"
printf '%-34s %10s %10s %16s\n' model threads gloo "samples/s ratio"
while read -r model data micro steps; do
  train --model "$model" --data "$data" --micro-batch "$micro" --steps "$steps" --ranks 2 --run "$work/run" >"$work/threads.json"
  train --model "$model" --data "$data" --micro-batch "$micro" --steps "$steps" --plan "$work/run/plan.json" --transport gloo >"$work/gloo.json"
  printf '%-34s %10.3f %10.3f %16s\n' "$model" "$(value "$work/threads.json" efficiency)" "$(value "$work/gloo.json" efficiency)" \
    "$(divide "$(value "$work/gloo.json" samples_per_s)" "$(value "$work/threads.json" samples_per_s)")"
  rm -rf "$work/run"
done <<MODELS
mlp:layers=8,width=1024 synthetic-images:samples=20000,size=28 64 200
vgg11:width=32,classifier=small synthetic-images:samples=20000,channels=3,size=32 16 60
gpt:blocks=6,width=256,heads=8,context=64 synthetic-tokens:samples=20000,vocabulary=256 8 60
MODELS
echo
}
[[ ${PARTS:-12} != *1* ]] || efficiency
[[ ${PARTS:-12} == *2* ]] || exit 0

echo "VGG-16 (size 32), two hosts, $rate between them"
model=(--model vgg16 --data synthetic-images:samples=4096,channels=3,size=32 --micro-batch 16 --deadline 120s)
on_hosts() { scripts/hosts.sh 2 "$rate" "$program" --quiet "$@"; }
on_hosts cluster --seconds 2 -o "$work/cluster.toml" >"$work/links.txt" || { code=$?; [ $code -eq 77 ] && exit 0; exit $code; }
sed -n '/from/,$p' "$work/links.txt"
on_hosts train "${model[@]}" --no-baseline --no-evaluation --json --cluster "$work/cluster.toml" --steps "${STEPS:-60}" --run "$work/pipe" >"$work/pipe.json"
on_hosts train "${model[@]}" --no-baseline --no-evaluation --json --cluster "$work/cluster.toml" --profile "$work/pipe/profile.json" \
  --schedule data-parallel --micro-batches 2 --steps "${DP_STEPS:-10}" >"$work/data.json"
row() { printf '%-16s %14.1f %14.1f %18.0f\n' "$1" "$(value "$2" period_ms)" "$(value "$2" predicted_period_ms)" "$(divide "$(value "$2" bytes_sent)" "$3")"; }
printf '%-16s %14s %14s %18s\n' "" "period, ms" "predicted, ms" "bytes/micro-batch"
row pipeline "$work/pipe.json" "${STEPS:-60}"
row data-parallel "$work/data.json" $((2 * ${DP_STEPS:-10}))
measured=$(divide "$(value "$work/data.json" period_ms)" "$(value "$work/pipe.json" period_ms)")
predicted=$(divide "$(value "$work/data.json" predicted_period_ms)" "$(value "$work/pipe.json" predicted_period_ms)")
echo "data parallel / pipeline: measured $measured, predicted $predicted"
sed -n 's/.*"ranks": *\(\[[0-9, ]*\]\).*/stage on ranks \1/p' "$work/pipe/plan.json" || true
