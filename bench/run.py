"""Gantry and PyTorch side by side in one run: seconds a training step and the most memory that a rank's tensors take, for
one rank, pp 2, tp 2 and dp 2 in their kinds. Prints tables; --json FILE keeps the figures, --quick
takes fewer steps, --rows "NAME;NAME" some rows.
"""
import argparse, json, pathlib, statistics, subprocess, sys, tempfile

import training

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/release"
SEQUENCE = 128
SIZES = {
    "hidden 256": dict(hidden=256, layers=8, heads=8, batch=16, microbatches=8),
    "hidden 768": dict(hidden=768, layers=4, heads=12, batch=8, microbatches=4),
}
# row: PyTorch's mode, threads a rank, Gantry's parallel section, the precision where it is not float32
ROWS = {
    "one rank, 1 thread": ("one", 1, {}),
    "one rank, 2 threads": ("one", 2, {}),
    "pp 2": ("pp", 1, {"pipeline": 2}),
    "tp 2": ("tp", 1, {"tensor": 2}),
    "tp 2, sequence": ("sp", 1, {"tensor": 2, "sequence_parallel": True}),
    "dp 2": ("dp", 1, {"data": 2}),
    "dp 2, zero 1": ("fsdp", 1, {"data": 2, "zero": 1}),
    "dp 2, zero 2": ("fsdp", 1, {"data": 2, "zero": 2}),
    "dp 2, zero 3": ("fsdp", 1, {"data": 2, "zero": 3}),
    "dp 2, zero 3, bfloat16": ("fsdp", 1, {"data": 2, "zero": 3}, "bfloat16"),
}


def gantry_steps(size, row, steps, folder):
    mode, threads, parallel, *precision = row
    microbatches = size["microbatches"] if mode == "pp" else 1
    config = training.write_config(folder, {
        "model": {"policy": "gpt2", "config": {"n_embd": size["hidden"], "n_layer": size["layers"], "n_head": size["heads"], "vocab_size": 256,
                                               "n_positions": SEQUENCE, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}},
        "parallel": parallel, "precision": precision[0] if precision else "float32",
        "schedule": {"name": "1f1b", "microbatches": microbatches},
        "data": training.tokens_section(folder, 64 * SEQUENCE, 251, SEQUENCE, size["batch"]),
        "optimizer": {"name": "adamw", "lr": 0.001} | ({} if mode == "sp" else {"clip_grad_norm": 1.0}),
        "train": {"steps": steps}, "comm": {"threads_per_rank": threads}})
    return training.run_steps(BUILD / "bin/gantry", config)


def pytorch(size, row, steps, *more):
    flags = [f"--{key}={value}" for key, value in size.items()]
    out = subprocess.run([sys.executable, ROOT / "bench/pytorch_peer.py", row[0], *flags, f"--steps={steps}", f"--threads={row[1]}",
                          *[f"--precision={precision}" for precision in row[3:]], *more],
                         check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(out.splitlines()[-1])


def settled(seconds):
    return seconds[2:]  # the first two steps warm up


def training_rows(names, steps, rounds, folder):
    figures = []
    for size_name, size in SIZES.items():
        for row_name in names:
            row = ROWS[row_name]
            ours, theirs, alone = [], [], []
            for _ in range(rounds):  # in turn, so that a machine whose speed drifts is fair to all
                steps_of_ours = gantry_steps(size, row, steps, folder)
                ours += settled([step["step_seconds"] for step in steps_of_ours])
                theirs += settled(pytorch(size, row, steps))
                if row[0] != "one":
                    alone += settled([step["step_seconds"] for step in gantry_steps(size, ROWS["one rank, 1 thread"], steps, folder)])
            m = size["microbatches"]
            share = {"pp": (m + 1) / m / 2, "one": None}.get(row[0], 0.5)
            f = dict(model=size_name, row=row_name, gantry=statistics.median(ours), pytorch=statistics.median(theirs),
                     gantry_bytes=max(steps_of_ours[-1]["peak_memory_bytes"]), pytorch_bytes=pytorch(size, row, 3, "--memory"))
            f["ideal"] = statistics.median(alone) * share if share else None
            figures.append(f)
            print_training(f)
    return figures


def print_training(f):
    ideal = f"{f['ideal']:8.3f} {100 * f['ideal'] / f['gantry']:6.0f}%" if f["ideal"] else f"{'':8} {'':7}"
    print(f"{f['model']:11} {f['row']:22} {f['gantry']:9.3f} {f['pytorch']:9.3f} {f['pytorch'] / f['gantry']:7.2f} {ideal} "
          f"{f['gantry_bytes'] / 1e6:10.1f} {f['pytorch_bytes'] / 1e6:10.1f} {f['pytorch_bytes'] / f['gantry_bytes']:7.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=lambda text: text.split(";"), default=list(ROWS), help="separated by semicolons")
    args = parser.parse_args()
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'model':11} {'row':22} {'Gantry s':>9} {'PyTorch s':>9} {'ratio':>7} {'ideal s':>8} {'of it':>7} {'Gantry MB':>10} "
              f"{'PyTorch MB':>10} {'ratio':>7}")
        figures["training"] = training_rows(args.rows, 4 if args.quick else 7, 1 if args.quick else 2, pathlib.Path(folder))
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
