#!/bin/sh
# Installs the build into a folder of its own and uses it as a user would: run.sh BUILD SOURCE
#   libraries and public headers, by CMake and by pkg-config, with LibTorch and without; components; completions and the manual
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cmake --install "$1" --prefix "$scratch/first" >/dev/null
mv "$scratch/first" "$scratch/install"  # an installation may be moved
export PATH="$scratch/install/bin:$PATH"
expect() { # WHAT FILE: the file has the text
  grep -qF -- "$1" "$2" || { echo "no '$1' in $2:"; cat "$2"; exit 1; }
}

# Public headers are installed, all of them and nothing else.
(cd "$2/include" && find . -name '*.h' | sort) >"$scratch/public"
(cd "$scratch/install/include" && find . -name '*.h' | sort) >"$scratch/installed"
diff "$scratch/public" "$scratch/installed"

cmake -S "$2/tests/consumer" -B "$scratch/build" -G Ninja -DCMAKE_PREFIX_PATH="$scratch/install" >/dev/null
cmake --build "$scratch/build"
"$scratch/build/consumer"
"$scratch/build/plain"
if ldd "$scratch/build/plain" | grep -q torch; then echo "gantry::core needs LibTorch"; exit 1; fi

# Without LibTorch the core alone is found; an unknown component is named.
for asked in core training nothing; do
  mkdir -p "$scratch/$asked"
  printf 'cmake_minimum_required(VERSION 3.22)\nproject(p CXX)\nset(LibTorch_INCLUDE_DIR NOTFOUND)\nset(CMAKE_DISABLE_FIND_PACKAGE_fmt ON)\nfind_package(Gantry 0.1 REQUIRED COMPONENTS %s)\n' $asked >"$scratch/$asked/CMakeLists.txt"
  if cmake -S "$scratch/$asked" -B "$scratch/$asked/build" -DCMAKE_PREFIX_PATH="$scratch/install" >"$scratch/$asked.out" 2>&1; then
    [ $asked = core ] || { echo "component $asked was found"; exit 1; }
  else
    [ $asked != core ] || { cat "$scratch/core.out"; exit 1; }
  fi
done
expect "'nothing' is no component of Gantry" "$scratch/nothing.out"

# pkg-config
export PKG_CONFIG_PATH="$(dirname "$(find "$scratch/install" -name gantry.pc)")"
c++ "$2/tests/consumer/plain.cpp" $(pkg-config --cflags --libs gantry-core) -o "$scratch/by_pkg_config"
"$scratch/by_pkg_config"
pkg-config --cflags --libs gantry >"$scratch/flags"
expect -ltorch "$scratch/flags"
expect "-isystem" "$scratch/flags"

# The program
gantry --version >"$scratch/version"
expect "gantry 0." "$scratch/version"
expect "LibTorch: 2." "$scratch/version"
gantry schedule check 1f1b -p 2 -m 4
env -i "$scratch/install/bin/gantry" --help >/dev/null
for file in bash-completion/completions/gantry zsh/vendor-completions/_gantry fish/vendor_completions.d/gantry.fish man/man1/gantry.1; do
  [ -s "$scratch/install/share/$file" ] || { echo "no $file"; exit 1; }
done
