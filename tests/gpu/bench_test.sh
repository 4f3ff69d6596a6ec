#!/usr/bin/env bash
# bench_test.sh SOURCES PYTHON OUTPUT: rehearses the bench, and asks for it where there is no device.
set -euo pipefail
sources=$1 python=$2 output=$3
fail() { echo "error: bench_test: $*"; exit 1; }

"$python" "$sources/tests/gpu/bench.py" --rehearse --output "$output"
grep -q "GPT-2 124M, tokens per second, Gantry / PyTorch eager: [0-9]" "$output/bench.txt" || fail "no ratio in $output/bench.txt"
grep -q "GPT-2 124M, last loss, tp2 less one rank's: " "$output/bench.txt" || fail "no layouts in $output/bench.txt"
grep -q '"new_tokens": [0-9]' "$output/bench.json" || fail "no generation in $output/bench.json"

if "$python" -c 'import sys, torch; sys.exit(torch.cuda.is_available())'; then
  code=0
  "$python" "$sources/tests/gpu/bench.py" --output "$output/no_device" >/dev/null 2>"$output/said" || code=$?
  [ $code = 3 ] || fail "ended with $code where there is no device"
  [ "$(cat "$output/said")" = "error: gpu bench: PyTorch sees no CUDA device here; the parts that need none have passed" ] ||
    fail "said: $(cat "$output/said")"
fi
