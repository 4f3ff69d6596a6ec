#!/bin/sh
# A test that runs the example scripts: run_scripts.sh BUILD_DIRECTORY
set -eu
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/bin"
ln -s "$1/bin/gantry" "$scratch/bin/gantry"
ln -s "$1/examples/example_evaluate" "$scratch/bin/evaluate"
export PATH="$scratch/bin:$PATH"
"$here/pretrain_gpt2.sh" "$scratch/work" "$here/../README.md" "$here"/../docs/*.md
"$here/evaluate_and_export.sh" "$scratch/work"
cd "$here/.."
gantry train examples/llama.yaml --set output="$scratch/llama"
