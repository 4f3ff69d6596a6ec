#!/bin/bash
# Runs the quick start word for word, as a new user would: every sh block of docs/quick_start.md but ./dev's, in one shell,
# with an installed Gantry in PATH: quick_start.sh BUILD SOURCE
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cmake --install "$1" --prefix "$scratch/gantry" >/dev/null
export PATH="$scratch/gantry/bin:$PATH" CMAKE_PREFIX_PATH="$scratch/gantry" CMAKE_GENERATOR=Ninja
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mkdir "$scratch/home"
cp -r "$2/examples" "$2/README.md" "$scratch/home"
# A block begins where the one before it did: in the checkout.
awk '/^```sh$/ { inside = 1; print "cd \"$home\""; next } /^```$/ { inside = 0 } inside && !/^\.\/dev/' "$2/docs/quick_start.md" >"$scratch/steps"
cat "$scratch/steps"
home="$scratch/home" bash -euxo pipefail "$scratch/steps" >"$scratch/out" 2>&1 || { cat "$scratch/out"; exit 1; }
cat "$scratch/out"

# The second run of the new project went on where the first one ended, and both learned.
for step in 1 4 5 8; do grep -q "^step $step: loss [0-9]" "$scratch/out" || { echo "no step $step"; exit 1; }; done
[ -d "$scratch/home/my_model/runs/checkpoints/step-000008" ] || { echo "no checkpoint of step 8"; exit 1; }
[ -s "$scratch/home/exported/model.safetensors" ] || { echo "nothing was exported"; exit 1; }
