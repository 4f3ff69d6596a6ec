"""This version beside an earlier one in one run: seconds a training step of GPT-2 and Llama in several layouts.

COMMIT is built in build/beside with the same LibTorch. Each round runs both programs, the first of them in turn, so that a
machine whose speed drifts is fair to both; a round's figure is the median of its steps. Prints the median over the rounds
of the ratio now : before, the half of them that lies in the middle, and the ratio of the fastest steps of all rounds, which
other programs of the machine disturb least. --rounds N, --steps N, --rows "NAME;NAME",
--json FILE keeps the figures.
"""
import argparse, json, os, pathlib, statistics, subprocess, tempfile

import training

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEQUENCE = 128
MODELS = {
    "gpt2": {"n_embd": 256, "n_layer": 8, "n_head": 8, "vocab_size": 256, "n_positions": SEQUENCE,
             "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "llama": {"hidden_size": 256, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4,
              "intermediate_size": 688, "vocab_size": 256, "max_position_embeddings": SEQUENCE},
}
LAYOUTS = {
    "one rank": (1, {}),
    "pp 2": (8, {"pipeline": 2}),
    "tp 2": (1, {"tensor": 2}),
    "tp 2, sequence": (1, {"tensor": 2, "sequence_parallel": True}),
    "dp 2": (1, {"data": 2}),
    "dp 2, zero 1": (1, {"data": 2, "zero": 1}),
}


def build(commit):
    """The program of that commit."""
    whole = subprocess.run(["git", "rev-parse", "--verify", commit + "^{commit}"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    tree = ROOT / "build/beside" / whole.stdout[:12]
    if not tree.exists():
        subprocess.run(["git", "worktree", "add", "--detach", tree, whole.stdout.strip()], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    if not (tree / ".deps").exists() and (ROOT / ".deps").exists():
        (tree / ".deps").symlink_to(ROOT / ".deps")
    print(f"== building {tree.name}", flush=True)
    if not (tree / "build/release/build.ninja").exists():
        subprocess.run(["cmake", "--preset", "release"], cwd=tree, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", "build/release", "--target", "gantry_front", "gantry_engine", "--", "--quiet"], cwd=tree, check=True)
    return tree / "build/release/bin/gantry"


def step_seconds(program, model, layout, steps, folder):
    microbatches, parallel = LAYOUTS[layout]
    config = training.write_config(folder, {
        "model": {"policy": model, "config": MODELS[model]}, "parallel": parallel,
        "schedule": {"name": "1f1b", "microbatches": microbatches},
        "data": training.tokens_section(folder, 64 * SEQUENCE, 251, SEQUENCE, 16),
        "optimizer": {"name": "adamw", "lr": 0.001}, "train": {"steps": steps}, "comm": {"threads_per_rank": 1}})
    return [line["step_seconds"] for line in training.run_steps(program, config)[2:]]  # the first two steps warm up


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rows", default="")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    programs = {"now": pathlib.Path(os.environ.get("GANTRY_BIN", ROOT / "build/release/bin/gantry")), "before": build(arguments.commit)}
    print(f"{'row':24} {'before s':>9} {'now s':>9} {'now : before':>13}   middle half      fastest")
    figures = []
    for model in MODELS:
        for layout in LAYOUTS:
            row = f"{model}, {layout}"
            if arguments.rows and row not in arguments.rows.split(";"):
                continue
            seconds = {name: [] for name in programs}
            with tempfile.TemporaryDirectory() as folder:
                for number in range(arguments.rounds):
                    for name in sorted(programs, reverse=number % 2 == 1):
                        seconds[name].append(step_seconds(programs[name], model, layout, arguments.steps, pathlib.Path(folder)))
            rounds = {name: [statistics.median(steps) for steps in each] for name, each in seconds.items()}
            fastest = {name: min(min(steps) for steps in each) for name, each in seconds.items()}
            ratios = [now / before for now, before in zip(rounds["now"], rounds["before"])]
            low, middle, high = statistics.quantiles(ratios, n=4)
            print(f"{row:24} {statistics.median(rounds['before']):9.4f} {statistics.median(rounds['now']):9.4f} {middle:13.3f}   "
                  f"{low:.3f} to {high:.3f} {fastest['now'] / fastest['before']:9.3f}", flush=True)
            figures.append({"row": row, "now": seconds["now"], "before": seconds["before"], "ratio": middle,
                            "fastest": fastest["now"] / fastest["before"]})
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
