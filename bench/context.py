"""Ranks that share a sequence (parallel.context), by each method: seconds a step beside one rank's, as a share of the ideal time
(one rank's over the ranks), and beside PyTorch's own context parallel attention, of attention alone, where its CPU build runs it.
A small Llama, one thread a rank. Prints a table; --json FILE keeps the figures, --quick takes short
sequences and few steps. Ranks beyond the machine's cores share them: such rows say little.
"""
import argparse, json, pathlib, statistics, subprocess, sys, tempfile

import training

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/release/bin/gantry"
SIZE = dict(num_hidden_layers=2, hidden_size=512, intermediate_size=1024, num_attention_heads=8, num_key_value_heads=4, vocab_size=256)
METHODS = ["all_gather", "ring", "ulysses", "ulysses_ring"]  # the last one where the ranks are a product


def seconds(method, ranks, tokens, steps, folder):
    """The median of a step."""
    parallel = {"context": ranks, "data": 1}
    if ranks > 1:
        parallel["context_method"] = method
    config = training.write_config(folder, {
        "model": {"policy": "llama", "config": SIZE | {"max_position_embeddings": tokens}}, "parallel": parallel,
        "schedule": {"microbatches": 1}, "data": training.tokens_section(folder, 2 * steps * tokens, 251, tokens, 1),
        "train": {"steps": steps}, "comm": {"threads_per_rank": 1}})
    return statistics.median(line["step_seconds"] for line in training.run_steps(PROGRAM, config)[1:])


def pytorch(ranks, tokens, steps):
    """Seconds of one rank's attention and of that over ranks, or why there are none."""
    run = subprocess.run([sys.executable, ROOT / "bench/pytorch_context.py", f"--tokens={tokens}", f"--ranks={ranks}", f"--steps={steps}"],
                         capture_output=True, text=True)
    return json.loads(run.stdout) if run.returncode == 0 else {"reason": (run.stderr.strip().splitlines() or ["it failed"])[-1]}


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--ranks", type=int, default=2)
    arguments.add_argument("--tokens", type=int, nargs="+", default=[2048, 8192])
    arguments.add_argument("--json")
    arguments.add_argument("--quick", action="store_true")
    given = arguments.parse_args()
    steps, rows = (3, []) if given.quick else (8, [])
    with tempfile.TemporaryDirectory() as name:
        for tokens in [512] if given.quick else given.tokens:
            alone = seconds("", 1, tokens, steps, pathlib.Path(name))
            print(f"{tokens:6} tokens  one rank    {alone:8.3f} s", flush=True)
            for method in METHODS:
                if method == "ulysses_ring" and given.ranks < 4:
                    continue
                shared = seconds(method, given.ranks, tokens, steps, pathlib.Path(name))
                share = alone / given.ranks / shared
                rows.append(dict(tokens=tokens, method=method, ranks=given.ranks, seconds=shared, one_rank=alone, of_ideal=share))
                print(f"{tokens:6} tokens  {method:10}  {shared:8.3f} s  {100 * share:5.1f}% of the ideal", flush=True)
            other = pytorch(given.ranks, tokens, steps)
            if "reason" in other:
                rows.append(dict(tokens=tokens, method="pytorch", ranks=given.ranks, reason=other["reason"]))
                print(f"{tokens:6} tokens  PyTorch     does not run: {other['reason']}", flush=True)
                continue
            share = other["one"] / given.ranks / other["shared"]
            rows.append(dict(tokens=tokens, method="pytorch", ranks=given.ranks, seconds=other["shared"], one_rank=other["one"], of_ideal=share))
            print(f"{tokens:6} tokens  PyTorch     {other['shared']:8.3f} s  {100 * share:5.1f}% of the ideal", flush=True)
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps(rows, indent=1) + "\n")


main()
