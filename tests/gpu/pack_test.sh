#!/usr/bin/env bash
# pack_test.sh SOURCES PYTHON: packs a folder, which must be small and whole, and configures a build from it.
set -euo pipefail
sources=$1 python=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "error: pack_test: $*"; exit 1; }

"$python" "$sources/tests/gpu/pack.py" "$scratch/folder"
[ "$(du -sm --apparent-size "$scratch/folder" | cut -f1)" -le 60 ] || fail "more than 60 MiB"
for file in dev CMakeLists.txt core/sharding/mesh.cpp tests/gpu/check.py tests/golden/gpt2/model.safetensors packed/usr.tar.gz; do
  [ -e "$scratch/folder/$file" ] || fail "$file is missing"
done

# The packed files alone must do: every library, header and package that CMake found lies in them, but for LibTorch. CMake
# also looks for the C++ library of MPI, which is not linked.
(cd "$scratch/folder" && GANTRY_GPU_CONFIGURE_ONLY=1 GANTRY_GPU_BUILD= "$python" tests/gpu/build.py)
found=$(grep -E '^[A-Za-z0-9_-]*_(LIBRARY|LIBRARY_RELEASE|INCLUDE_DIR|DIR):[A-Z]*=/' "$scratch/folder/build/gpu/CMakeCache.txt")
own=$(grep -vE "=$scratch/folder/(packed/usr|build)|^(LibTorch_|Torch_|Gantry_|MPI_mpi_cxx_LIBRARY)" <<<"$found" || true)
[ -z "$own" ] || fail "these were not found in the packed files:
$own"
for name in fmt_DIR yaml-cpp_DIR nlohmann_json_DIR CLI11_DIR GTest_DIR ONIGURUMA_LIBRARY SENTENCEPIECE_LIBRARY XXHASH_LIBRARY \
  BOOST_ASIO_INCLUDE_DIR JPEG_LIBRARY_RELEASE PNG_LIBRARY_RELEASE MPI_mpi_LIBRARY; do
  grep -q "^$name:" <<<"$found" || fail "$name was not found"
done
# Also the headers that CMake does not look for: those of all packages but the C library's.
for header in $(cd "$sources" && git grep -hoE '^#include <[a-z0-9_]+\.h>' -- '*.h' '*.cpp' ':!tests/fuzz' ':!bench' | grep -oE '[a-z0-9_]+\.h' | sort -u); do
  [ -e "/usr/include/$header" ] || continue
  dpkg-query -S "/usr/include/$header" 2>/dev/null | grep -qE '^(libc6-dev|linux-libc-dev|libcrypt-dev)' && continue
  [ -e "$scratch/folder/packed/usr/include/$header" ] || fail "$header is not packed"
done

# A folder with something else in it is left alone.
mkdir "$scratch/other" && touch "$scratch/other/mine"
if "$python" "$sources/tests/gpu/pack.py" "$scratch/other" 2>"$scratch/said"; then fail "overwrote a folder"; fi
grep -q "is not empty and no packed folder" "$scratch/said" || fail "said: $(cat "$scratch/said")"
[ -e "$scratch/other/mine" ] || fail "lost a file"
