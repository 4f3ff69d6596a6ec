"""Pipeline schedules run by Gantry: seconds a step, how near they are to the simulator's time from the same run's action times,
and PyTorch's schedules beside them in the same run (Gloo). Then what an action costs when stages compute nothing. Prints tables;
--json FILE keeps the figures, --quick takes fewer steps. Ranks beyond the machine's cores share them: such rows say little.
"""
import argparse, json, os, pathlib, statistics, struct, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/release"
SIZE = dict(hidden=256, layers=8, heads=8, batch=16, microbatches=8)
SEQUENCE = 128
# schedule: chunks per rank, whether PyTorch has it
SCHEDULES = {"gpipe": (1, False), "1f1b": (1, True), "interleaved_1f1b": (2, True), "breadth_first": (2, False), "zb_h1": (1, False),
             "zb_h2": (1, False), "zb_auto": (1, False), "zb_v": (2, True), "v_half": (2, False), "v_min": (2, False),
             "dualpipe_v": (2, True)}


def gantry(name, ranks, steps, folder):
    """The seconds of each step, and measured over simulated time of the last one."""
    tokens = folder / "tokens.bin"
    if not tokens.exists():
        tokens.write_bytes(b"".join(struct.pack("<H", i * i % 251) for i in range(64 * SEQUENCE + 1)))
    config = folder / "config.yaml"
    config.write_text(json.dumps({
        "model": {"policy": "gpt2", "config": {"n_embd": SIZE["hidden"], "n_layer": SIZE["layers"], "n_head": SIZE["heads"],
                                               "vocab_size": 256, "n_positions": SEQUENCE, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
                                               "attn_pdrop": 0.0, "tie_word_embeddings": False}},
        "parallel": {"pipeline": ranks},
        "schedule": {"name": name, "microbatches": SIZE["microbatches"], "chunks": SCHEDULES[name][0]},
        "data": {"format": "tokens", "path": str(tokens), "sequence_length": SEQUENCE, "batch_size": SIZE["batch"], "shuffle": False},
        "optimizer": {"lr": 0.001, "clip_grad_norm": 1.0}, "train": {"steps": steps}, "comm": {"threads_per_rank": 1},
        "output": str(folder / "out")}))
    subprocess.run([BUILD / "bin/gantry", "train", config], check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (folder / "out/metrics.jsonl").read_text().splitlines()]
    events = [e for e in json.loads((folder / "out/trace.json").read_text())["traceEvents"] if e["ph"] == "X"]
    measured, simulated = (max(e["ts"] + e["dur"] for e in events if e["pid"] == process) for process in (0, 1))
    return [line["step_seconds"] for line in lines][2:], measured / simulated


def pytorch(name, ranks, steps, *more):
    flags = [f"--{key}={value}" for key, value in SIZE.items() if key != "microbatches" or not more]
    out = subprocess.run([sys.executable, ROOT / "bench/pytorch_pipelines.py", name, f"--ranks={ranks}", f"--steps={steps}", *flags, *more],
                         check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(out.splitlines()[-1])


def schedule_rows(steps, rounds, folder):
    figures = []
    print(f"{'schedule':17} {'ranks':>5} {'step s':>8} {'measured / simulated':>21} {'PyTorch s':>10} {'ratio':>7}")
    for ranks in (2, 4):
        for name, (chunks, in_pytorch) in SCHEDULES.items():
            ours, theirs, shares = [], [], []
            for _ in range(rounds):
                seconds, share = gantry(name, ranks, steps, folder)
                ours += seconds
                shares.append(share)
                if in_pytorch:
                    theirs += pytorch(name, ranks, steps)[2:]
            f = dict(schedule=name, ranks=ranks, gantry=statistics.median(ours), share=statistics.median(shares),
                     pytorch=statistics.median(theirs) if theirs else None)
            beside = f"{f['pytorch']:10.3f} {f['pytorch'] / f['gantry']:7.2f}" if theirs else ""
            shared = " (ranks share cores)" if ranks > (os.cpu_count() or 1) else ""
            print(f"{name:17} {ranks:5} {f['gantry']:8.3f} {f['share']:21.3f} {beside}{shared}", flush=True)
            figures.append(f)
    return figures


def executor_rows():
    lines = subprocess.run([BUILD / "bench/executor_bench"], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    figures = [json.loads(line) for line in lines]
    print(f"\n{'empty stages':17} {'ranks':>5} {'us an action':>13} {'allocations':>12} {'PyTorch us':>11} {'ratio':>7}")
    for f in figures:
        beside = ""
        if f["schedule"] == "1f1b" and f["ranks"] > 1:
            f["pytorch_us"] = pytorch("1f1b", f["ranks"], 8, "--empty", "--microbatches=256")
            beside = f"{f['pytorch_us']:11.1f} {f['pytorch_us'] / f['microseconds_an_action']:7.0f}"
        print(f"{f['schedule']:17} {f['ranks']:5} {f['microseconds_an_action']:13.2f} {f['allocations_an_action']:12.1f} {beside}", flush=True)
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = dict(schedules=schedule_rows(4 if args.quick else 7, 1 if args.quick else 3, pathlib.Path(folder)))
    figures["executor"] = executor_rows()
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
