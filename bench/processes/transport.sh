#!/usr/bin/env bash
# The transport over Gloo against plain sends of the same size, large and small, over loopback and over a rate-limited link between two
# pretended hosts (scripts/hosts.sh, root).
#
#   bench/processes/transport.sh [PROGRAM]      default: build/release/transport_bench; RATE=100mbit takes another rate than 1gbit
set -euo pipefail
cd "$(dirname "$0")/../.."
program=$(realpath "${1:-build/release/transport_bench}")
rate=${RATE:-1gbit}
port=$((20000 + $$ % 10000))
echo "loopback"
RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$program" &
other=$!
RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$program"
wait $other
echo
echo "$rate"
scripts/hosts.sh 2 "$rate" "$program" || { code=$?; [ $code -eq 77 ] || exit $code; }
