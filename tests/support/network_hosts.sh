#!/usr/bin/env bash
# Hosts of a network of their own on one machine: network namespaces, each with an address, joined by a bridge.
#   network_hosts.sh up NAME COUNT FOLDER     makes NAME-0, NAME-1, ... with 10.77.0.10, .11, ...; FOLDER gets what they need
#   network_hosts.sh run FOLDER HOST COMMAND  runs it there, under that host's name (mpirun's remote shell, too)
#   network_hosts.sh slow FOLDER HOST         delays and loses packets of that host
#   network_hosts.sh cut FOLDER HOST          takes its cable out
#   network_hosts.sh down FOLDER              ends what runs there and removes it all
# Needs the right to make namespaces. Delay and loss are netem's, where the kernel has it, else a token bucket's queue
# and a random DROP.
set -euo pipefail

up() {
  local name=$1 count=$2 folder=$3 i
  mkdir -p "$folder"
  printf '%s\n' "$name" >"$folder/name"
  printf '127.0.0.1 localhost\n' >"$folder/hosts"
  : >"$folder/resolv.conf"
  ip netns add "$name-net"
  ip -n "$name-net" link add bridge type bridge
  ip -n "$name-net" link set bridge up
  for ((i = 0; i < count; ++i)); do
    printf '10.77.0.%d %s-%d\n' $((10 + i)) "$name" "$i" >>"$folder/hosts"
    ip netns add "$name-$i"
    ip -n "$name-$i" link set lo up
    ip -n "$name-net" link add "port$i" type veth peer name eth0 netns "$name-$i"
    ip -n "$name-net" link set "port$i" master bridge up
    ip -n "$name-$i" address add "10.77.0.$((10 + i))/24" dev eth0
    ip -n "$name-$i" link set eth0 up
  done
  # mpirun calls its remote shell as AGENT HOST COMMAND...
  printf '#!/bin/sh\nexec "%s" run "%s" "$@"\n' "$(realpath "${BASH_SOURCE[0]}")" "$folder" >"$folder/agent"
  chmod +x "$folder/agent"
}

# Names are files of the host's own: nothing asks a name server.
run() {
  local folder=$1 host=$2
  shift 2
  exec ip netns exec "$host" unshare --uts --mount sh -c '
    hostname "$1" && mount --bind "$2/hosts" /etc/hosts && mount --bind "$2/resolv.conf" /etc/resolv.conf || exit 1
    shift 2
    exec sh -c "$*"' sh "$host" "$folder" "$@"
}

slow() {
  local host=$2
  if ip netns exec "$host" tc qdisc add dev eth0 root netem delay 3ms 1ms loss 1% 2>/dev/null; then return; fi
  ip netns exec "$host" tc qdisc add dev eth0 root tbf rate 400mbit burst 32kb latency 20ms
  ip netns exec "$host" iptables -A INPUT -i eth0 -m statistic --mode random --probability 0.01 -j DROP
}

cut() { ip -n "$2" link set eth0 down; }

down() {
  local name space
  name=$(cat "$1/name")
  for space in $(ip netns list | awk '{print $1}' | grep "^$name-"); do
    ip netns pids "$space" | xargs -r kill -9 2>/dev/null || true
    ip netns delete "$space"
  done
}

command=$1
shift
"$command" "$@"
