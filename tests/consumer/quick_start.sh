#!/bin/bash
# Runs the quick start word for word, as a new user would: every command of docs/quick_start.md but ./dev demo, which
# made the build, in one shell. The page alone sets variables; here are only a home and a checkout for it. Then the
# commands of the new project's own README, and those of docs/tutorials/own_model.md on the same project, because the
# precompiled header of another project takes more than a minute: quick_start.sh BUILD SOURCE
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/home" "$scratch/checkout/build"
for entry in "$2"/*; do
  [ "$(basename "$entry")" = build ] || cp -r "$entry" "$scratch/checkout"
done
ln -s "$1" "$scratch/checkout/build/release"
# Lines of sh blocks, and what console blocks have after "$ ".
commands() {
  awk '/^```sh$/ { inside = 1; next } /^```$/ { inside = 0 } inside && $0 != "./dev demo"
    /^```console$/ { shown = 1; next } /^```$/ { shown = 0 } shown && sub(/^\$ /, "")' "$1"
}
commands "$2/docs/quick_start.md" >"$scratch/steps"
# Fewer steps than the template has, from the beginning: the project trains on its own files.
sed -i '/^gantry init my_model$/a sed -i "s/steps: 200/steps: 20/" my_model/train.yaml' "$scratch/steps"
cat "$scratch/steps"
cd "$scratch/checkout"
as_a_user=(env -i HOME="$scratch/home" PATH=/usr/local/bin:/usr/bin:/bin TERM=dumb LANG=C.UTF-8)
[ -z "${GANTRY_TORCH:-}" ] || as_a_user+=(GANTRY_TORCH="$GANTRY_TORCH")  # where the build's LibTorch has gone
"${as_a_user[@]}" bash -euxo pipefail "$scratch/steps" >"$scratch/out" 2>&1 || { cat "$scratch/out"; exit 1; }
cat "$scratch/out"

# The second run of the new project went on where the first one ended, and both learned.
for step in 1 4 5 8; do grep -q "step $step/[48]  loss [0-9]" "$scratch/out" || { echo "no step $step"; exit 1; }; done
[ -d my_model/runs/checkpoints/step-000008 ] || { echo "no checkpoint of step 8"; exit 1; }
[ -s exported/model.safetensors ] || { echo "nothing was exported"; exit 1; }

cd my_model
commands README.md >"$scratch/steps"
"${as_a_user[@]}" CMAKE_PREFIX_PATH="$scratch/home/gantry" bash -euxo pipefail "$scratch/steps" >"$scratch/out" 2>&1 || { cat "$scratch/out"; exit 1; }
[ -n "$(find build -name '*.gch')" ] || { echo "gantry_add_program made no precompiled header"; exit 1; }
[ "$(grep -c 'step 20/20  loss [0-9]' "$scratch/out")" = 3 ] || { cat "$scratch/out"; exit 1; }

# The tutorial installs Gantry and makes a project as the quick start does; the name of the project is another one.
cd ..
rm -r my_model/runs
commands "$2/docs/tutorials/own_model.md" >"$scratch/page"
grep -qx 'gantry init my_transformer' "$scratch/page"
sed -e '/^cmake --install/d' -e '/^gantry init/d' -e 's/my_transformer/my_model/g' "$scratch/page" >"$scratch/steps"
"${as_a_user[@]}" bash -euxo pipefail "$scratch/steps" >"$scratch/out" 2>&1 || { cat "$scratch/out"; exit 1; }
for step in 20/20 40/40; do grep -q "step $step  loss [0-9]" "$scratch/out" || { cat "$scratch/out"; exit 1; }; done
