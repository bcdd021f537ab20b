#!/usr/bin/env bash
# Pretended hosts on one machine: network namespaces joined by a switch, every link limited to a rate in both directions.
#
#   scripts/hosts.sh HOSTS RATE COMMAND...   runs a process on each, e.g.  scripts/hosts.sh 2 1gbit build/release/pipedream train --ranks 2
#   scripts/hosts.sh make HOSTS RATE         makes hosts that stay: pd-0, pd-1, ... with the addresses 10.77.0.1, 10.77.0.2, ...
#   scripts/hosts.sh remove                  removes them
#
# A command gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Needs root, iproute2 and the tbf queue; ends with
# code 77 where they are not to be had. Ends with rank 0's code, or the first other one that is not 0. Bytes that each host sent: on standard
# error, if HOSTS_BYTES=1.
set -euo pipefail

remove_hosts() {
  local host
  for host in $(ip netns list 2>/dev/null | awk -v name="$name" 'index($1, name "-") == 1 { print $1 }'); do ip netns del "$host" || true; done
}
skip() { echo "no pretended hosts here: $1" >&2; exit 77; }
# A burst near the size of a message lets it pass unlimited: 32 kB is small enough and still reaches the rate.
limit() { tc -n "$1" qdisc add dev "$2" root tbf rate "$rate" burst 32kb latency 200ms 2>/dev/null || skip "the queue tbf is not to be had"; }
make_hosts() {
  command -v ip >/dev/null && command -v tc >/dev/null || skip "install iproute2"
  ip netns add "$name-s" 2>/dev/null || skip "making network namespaces is not permitted"
  ip -n "$name-s" link add switch type bridge 2>/dev/null || skip "making a bridge is not permitted"
  ip -n "$name-s" link set switch up
  for ((i = 0; i < hosts; i++)); do
    ip netns add "$name-$i"
    ip link add eth0 netns "$name-$i" type veth peer name "port$i" netns "$name-s"
    ip -n "$name-s" link set "port$i" master switch up
    ip -n "$name-$i" addr add "10.77.0.$((i + 1))/24" dev eth0
    ip -n "$name-$i" link set eth0 up
    ip -n "$name-$i" link set lo up
    limit "$name-$i" eth0
    limit "$name-s" "port$i"
  done
}

case ${1:-} in
  make)
    name=pd hosts=$2 rate=$3
    trap '[ $? -eq 0 ] || remove_hosts' EXIT
    make_hosts
    for ((i = 0; i < hosts; i++)); do echo "$name-$i 10.77.0.$((i + 1))"; done
    exit ;;
  remove)
    name=pd
    remove_hosts
    exit ;;
esac

hosts=$1 rate=$2
shift 2
name=pd$$
pids=()
cleanup() {
  for pid in "${pids[@]:-}"; do [ -n "$pid" ] && kill "$pid" 2>/dev/null || true; done
  remove_hosts
}
trap cleanup EXIT
make_hosts
for ((i = 0; i < hosts; i++)); do
  RANK=$i WORLD_SIZE=$hosts LOCAL_RANK=0 LOCAL_WORLD_SIZE=${HOSTS_CORES_SHARED:-$hosts} MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 \
    ip netns exec "$name-$i" "$@" &
  pids+=($!)
done
code=0
for pid in "${pids[@]}"; do
  wait "$pid" || { one=$?; [ $code -ne 0 ] || code=$one; }
done
pids=()
if [ "${HOSTS_BYTES:-0}" = 1 ]; then
  for ((i = 0; i < hosts; i++)); do
    echo "host $i sent $(ip netns exec "$name-$i" cat /sys/class/net/eth0/statistics/tx_bytes 2>/dev/null || ip -n "$name-$i" -s -j link show eth0) bytes" >&2
  done
fi
exit $code
