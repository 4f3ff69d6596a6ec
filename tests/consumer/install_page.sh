#!/bin/bash
# Runs docs/install.md word for word: the installation from the build, its CMake and pkg-config lines on two programs.
# Blocks that begin with ./dev (builds and packages) or that install LibTorch by pip are left out: install_page.sh BUILD SOURCE
set -euo pipefail
page=$2/docs/install.md
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/home" "$scratch/work/build"
cd "$scratch/work"
ln -s "$1" build/release
cp -r "$2/examples" "$2/README.md" .
cp "$2/examples/quickstart.cpp" train.cpp
cp "$2/tests/consumer/plain.cpp" draw.cpp
# Blocks of a language, without those that begin with ./dev or make an environment of Python's.
blocks() {
  awk -v fence="^\`\`\`$1\$" '$0 ~ fence { inside = 1; first = 1; next } /^```$/ { inside = 0 }
    inside && first { first = 0; if (/^(\.\/dev|python3 -m venv)/) inside = 0 } inside' "$page"
}
{
  blocks sh
  echo './train examples/quickstart.yaml && ./draw && gantry --version'
  echo 'mkdir project && cp train.cpp project && cp "$1" project/CMakeLists.txt && cmake -S project -B project/build'
} >"$scratch/steps"
{
  printf 'cmake_minimum_required(VERSION 3.22)\nproject(page CXX)\nset(CMAKE_CXX_STANDARD 20)\n'
  blocks cmake
} >"$scratch/CMakeLists.txt"
grep -q 'pkg-config --cflags --libs gantry)' "$scratch/steps"
grep -q '^gantry_add_program(train' "$scratch/CMakeLists.txt"
as_a_user=(env -i HOME="$scratch/home" PATH=/usr/local/bin:/usr/bin:/bin TERM=dumb LANG=C.UTF-8)
[ -z "${GANTRY_TORCH:-}" ] || as_a_user+=(GANTRY_TORCH="$GANTRY_TORCH")  # where the build's LibTorch has gone
"${as_a_user[@]}" bash -euxo pipefail "$scratch/steps" "$scratch/CMakeLists.txt"
