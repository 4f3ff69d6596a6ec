"""Steps as the planner predicts them beside how they are: layouts of two ranks on this machine, of a GPT-2 and a Llama.

Each round measures the machine (`gantry plan measure`) and runs every row once, so that a machine whose speed drifts is fair to
all. A row's prediction is the median over the rounds' measurements (`gantry plan estimate`), its time the median of all its steps
but the first one of each run. Prints both, their difference, the mean of the differences' sizes, and for each model the row that
the planner would pick beside the best measured one. One thread a rank. --rounds N, --steps N, --rows TEXT takes the rows whose
names have it (several by ';'), --parts prints parts of the steps too, --json FILE keeps the figures. Nothing else should run.
"""
import argparse, json, os, pathlib, statistics, subprocess, tempfile

import training

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = pathlib.Path(os.environ.get("GANTRY_BIN", ROOT / "build/release/bin/gantry"))
NONE = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
# name: policy, its keys, tokens of a sample, samples of a step
MODELS = {
    "gpt2": ("gpt2", {"n_embd": 512, "n_layer": 6, "n_head": 8, "vocab_size": 2048, "n_positions": 256, **NONE}, 256, 8),
    "llama": ("llama", {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 6, "num_attention_heads": 8,
                        "num_key_value_heads": 4, "vocab_size": 2048, "max_position_embeddings": 512}, 512, 4),
}
# name: parallel, schedule; microbatches by their number, of a replica
LAYOUTS = {
    "dp 2": ({"data": 2}, {"microbatches": 1}),
    "dp 2, two microbatches": ({"data": 2}, {"microbatches": 2}),
    "dp 2, recomputed": ({"data": 2}, {"microbatches": 1, "recompute": "full"}),
    "dp 2, zero 1": ({"data": 2, "zero": 1}, {"microbatches": 1}),
    "dp 2, zero 2": ({"data": 2, "zero": 2}, {"microbatches": 2}),
    "dp 2, zero 3": ({"data": 2, "zero": 3}, {"microbatches": 1}),
    "tp 2": ({"tensor": 2}, {"microbatches": 1}),
    "tp 2, sequence": ({"tensor": 2, "sequence_parallel": True}, {"microbatches": 1}),
    "tp 2, four microbatches": ({"tensor": 2}, {"microbatches": 4}),
    "cp 2, ulysses": ({"context": 2, "context_method": "ulysses"}, {"microbatches": 1}),
    "cp 2, ring": ({"context": 2, "context_method": "ring"}, {"microbatches": 1}),
    "cp 2, gathered": ({"context": 2, "context_method": "all_gather"}, {"microbatches": 1}),
    "pp 2": ({"pipeline": 2}, {"microbatches": 4}),
    "pp 2, two microbatches": ({"pipeline": 2}, {"microbatches": 2}),
    "pp 2, interleaved": ({"pipeline": 2}, {"name": "interleaved_1f1b", "chunks": 3, "microbatches": 4}),
    "pp 2, zb_h1": ({"pipeline": 2}, {"name": "zb_h1", "microbatches": 4}),
    "pp 2, zb_v": ({"pipeline": 2}, {"name": "zb_v", "microbatches": 4}),
}


def write_config(model, layout, steps, folder):
    policy, keys, sequence, batch = MODELS[model]
    parallel, schedule = LAYOUTS[layout]
    return training.write_config(folder, {
        "model": {"policy": policy, "config": keys}, "parallel": parallel, "schedule": schedule,
        "data": training.tokens_section(folder, 4 * batch * sequence, 2039, sequence, batch),
        "optimizer": {"name": "adamw", "lr": 0.0001}, "train": {"steps": steps}, "comm": {"threads_per_rank": 1}})


def predict(config, cluster):
    out = subprocess.run([PROGRAM, "plan", "estimate", config, "--cluster", cluster, "--json"], check=True, stdout=subprocess.PIPE).stdout
    return json.loads(out)


def run(config, cluster, folder):
    """The seconds of its steps, without the first one, and their parts as measured."""
    seconds = [line["step_seconds"] for line in training.run_steps(PROGRAM, config, "--cluster", cluster)[1:]]
    return seconds, json.loads((folder / "out/report.json").read_text())["plan"]["measured"]["seconds"]


def median_of(parts):
    return {name: statistics.median(each[name] for each in parts) for name in parts[0]}


def print_row(name, figures, with_parts):
    predicted, measured = figures["predicted"], figures["measured"]
    print(f"{name:32} {predicted:11.4f} {measured:10.4f} {100 * (predicted / measured - 1):+7.1f}%", flush=True)
    if with_parts:
        for part, seconds in figures["measured_parts"].items():
            if seconds > 0 or figures["predicted_parts"][part] > 0:
                print(f"    {part:28} {figures['predicted_parts'][part]:11.4f} {seconds:10.4f}", flush=True)


def print_model(model, rows):
    errors = [abs(each["predicted"] / each["measured"] - 1) for each in rows.values()]
    pick = min(rows, key=lambda name: rows[name]["predicted"])
    best = min(rows, key=lambda name: rows[name]["measured"])
    above = rows[pick]["measured"] / rows[best]["measured"] - 1
    print(f"{model}: mean error {100 * statistics.mean(errors):.1f}% of {len(rows)} rows, the largest {100 * max(errors):.1f}%; the pick, "
          f"{pick}, takes {100 * above:.1f}% longer than the best, {best}", flush=True)
    return errors


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rows", default="")
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    wanted = [text.strip() for text in arguments.rows.split(";") if text.strip()]
    names = [(model, layout) for model in MODELS for layout in LAYOUTS
             if not wanted or any(text in f"{model}, {layout}" for text in wanted)]
    rows = {name: {"estimates": [], "steps": [], "parts": []} for name in names}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for number in range(arguments.rounds):
            cluster = folder / f"here{number}.yaml"
            subprocess.run([PROGRAM, "plan", "measure", "--ranks", "2", "--output", cluster], check=True, stdout=subprocess.DEVNULL)
            if arguments.parts:
                print(cluster.read_text(), flush=True)
            for model, layout in names if number % 2 == 0 else reversed(names):
                config = write_config(model, layout, arguments.steps, folder)
                row = rows[model, layout]
                row["estimates"].append(predict(config, cluster))
                seconds, parts = run(config, cluster, folder)
                row["steps"] += seconds
                row["parts"].append(parts)
    print(f"{'row':32} {'predicted s':>11} {'measured s':>10} {'error':>8}")
    all_errors, figures = [], []
    for model in MODELS:
        of_model = {}
        for layout in LAYOUTS:
            if (model, layout) not in rows:
                continue
            row = rows[model, layout]
            of_model[layout] = {"predicted": statistics.median(each["step_seconds"] for each in row["estimates"]),
                                "measured": statistics.median(row["steps"]), "steps": row["steps"],
                                "predicted_parts": median_of([each["seconds"] for each in row["estimates"]]),
                                "measured_parts": median_of(row["parts"])}
            print_row(f"{model}, {layout}", of_model[layout], arguments.parts)
            figures.append({"row": f"{model}, {layout}"} | of_model[layout])
        if of_model:
            all_errors += print_model(model, of_model)
    print(f"mean error {100 * statistics.mean(all_errors):.1f}% of {len(all_errors)} rows")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
