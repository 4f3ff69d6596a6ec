#!/bin/sh
# Installs the build into a folder of its own and builds and runs the consumer against it: run.sh BUILD SOURCE
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cmake --install "$1" --prefix "$scratch/install" >/dev/null
cmake -S "$2/tests/consumer" -B "$scratch/build" -G Ninja -DCMAKE_PREFIX_PATH="$scratch/install" >/dev/null
cmake --build "$scratch/build"
"$scratch/build/consumer"
"$scratch/install/bin/gantry" --version
"$scratch/install/bin/gantry" schedule check 1f1b -p 2 -m 4
