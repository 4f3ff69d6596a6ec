#!/usr/bin/env bash
# pack_test.sh SOURCES PYTHON: packs a folder, which must be small and whole, and configures a build from it.
set -euo pipefail
sources=$1 python=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "error: pack_test: $*"; exit 1; }

"$python" "$sources/tests/gpu/pack.py" "$scratch/folder"
[ "$(du -sm --apparent-size "$scratch/folder" | cut -f1)" -le 60 ] || fail "more than 60 MiB"
for file in dev CMakeLists.txt core/mesh.cpp tests/gpu/check.py tests/golden/gpt2/model.safetensors packed/usr.tar.gz; do
  [ -e "$scratch/folder/$file" ] || fail "$file is missing"
done

# The packed files alone must do: the machine's own are not looked at.
(cd "$scratch/folder" && GANTRY_GPU_CONFIGURE_ONLY=1 GANTRY_GPU_BUILD= "$python" tests/gpu/build.py)
for name in fmt_DIR yaml-cpp_DIR nlohmann_json_DIR CLI11_DIR GTest_DIR ONIGURUMA_LIBRARY SENTENCEPIECE_LIBRARY XXHASH_LIBRARY \
  BOOST_ASIO_INCLUDE_DIR JPEG_LIBRARY_RELEASE PNG_LIBRARY_RELEASE MPI_mpi_LIBRARY; do
  grep -q "^$name:.*=$scratch/folder/packed/usr" "$scratch/folder/build/gpu/CMakeCache.txt" ||
    fail "$name was not found in the packed files: $(grep "^$name:" "$scratch/folder/build/gpu/CMakeCache.txt")"
done

# A folder with something else in it is left alone.
mkdir "$scratch/other" && touch "$scratch/other/mine"
if "$python" "$sources/tests/gpu/pack.py" "$scratch/other" 2>"$scratch/said"; then fail "overwrote a folder"; fi
grep -q "is not empty and no packed folder" "$scratch/said" || fail "said: $(cat "$scratch/said")"
[ -e "$scratch/other/mine" ] || fail "lost a file"
