#!/usr/bin/env bash
# shake_test.sh SOURCES: ./dev test shake counts the failures of a test that fails in every second run, and keeps the counts.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "error: shake_test: $*"; cat "$scratch/said"; exit 1; }
shake() { python3 "$1/tests/shake.py" "$2" --build "$scratch/build" "${@:3}" >"$scratch/said" 2>&1; }

cat >"$scratch/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.22)
project(Shaken LANGUAGES NONE)
enable_testing()
add_test(NAME steady COMMAND true)
add_test(NAME flaky COMMAND sh -c "if [ -e mark ]; then rm mark; else touch mark; exit 1; fi")
CMAKE
cmake -S "$scratch" -B "$scratch/build" -G Ninja >/dev/null

code=0
shake "$1" 5 || code=$?
[ "$code" = 1 ] || fail "a run with failures ended with $code"
grep -q '^load: 2 tests, 100 runs, each at least 50 of 50 times, 25 failures$' "$scratch/said" || fail "wrong counts"
grep -q '^  37 failures of 73 runs: flaky$' "$scratch/said" || fail "wrong sum"
shake "$1" 5 --only steady || fail "counts of an earlier call were lost"
grep -q '^suite: 1 tests, 3 runs, each at least 3 of 3 times, 0 failures$' "$scratch/said" || fail "wrong counts of one test"
