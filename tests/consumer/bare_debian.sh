#!/bin/bash
# The README and the quick start on a bare Debian 12, as a new user's first day: in ROOT, a root made by
#   debootstrap --variant=minbase bookworm ROOT
# a clone of this repository runs the README's two commands, then the quick start word for word. Needs root, downloads
# what ./dev installs, and takes an hour or more on two cores:
#   bare_debian.sh ROOT [VARIABLE=VALUE...]     variables for the commands inside: a proxy, pip's settings
set -euo pipefail
[ "$(id -u)" = 0 ] || { echo "error: bare_debian.sh: mounting and chroot need root"; exit 2; }
[ -x "${1:-}/usr/bin/dpkg" ] || { echo "error: bare_debian.sh: ${1:-no folder} is no Debian root; make one with debootstrap"; exit 2; }
source=$(git -C "$(dirname "${BASH_SOURCE[0]}")" rev-parse --show-toplevel)
root=$(cd "$1" && pwd)
shift

mounted=()
leave() {
  for ((i = ${#mounted[@]} - 1; i >= 0; i--)); do umount -l "${mounted[i]}"; done
}
trap leave EXIT
for folder in proc sys dev dev/pts dev/shm; do
  mkdir -p "$root/$folder"
  mountpoint -q "$root/$folder" && continue
  mount --bind "/$folder" "$root/$folder"
  mounted+=("$root/$folder")
done
[ -e "$root/etc/resolv.conf" ] || cp /etc/resolv.conf "$root/etc/resolv.conf"

rm -rf "$root/root/gantry"
git clone -q "$source" "$root/root/gantry"
inside() {
  env -i HOME=/root TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${variables[@]}" \
    chroot "$root" bash -c "cd /root/gantry && $1"
}
variables=("$@")
timed() {
  local begin=$SECONDS
  inside "$1"
  echo "== $1: $(((SECONDS - begin + 30) / 60)) minutes"
}
timed "./dev demo"
timed "./dev test"
# ./dev test has run tests/consumer/quick_start.sh too; here once more, on what the demo left.
timed "bash tests/consumer/quick_start.sh \$PWD/build/release \$PWD"
