"""A vocabulary that is large beside the layers, over two stages: seconds a training step of one rank, of stages that are cut by
layers, by work (schedule.layers: balanced), and with embedding and head over both ranks (parallel.vocabulary: pipeline).

A GPT-2 of 4 layers of width 768 with 50257 tokens, 8 samples of 128 in 4 microbatches, float32, AdamW, one thread a rank. The
layouts run in turn in every round; a round's figure is the median of its steps after the first. Beside each stands its share of
one rank's time, of which half is the ideal without a bubble. --rounds N, --steps N, --json FILE keeps the figures.
"""
import argparse, json, os, pathlib, statistics, tempfile

import training

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = pathlib.Path(os.environ.get("GANTRY_BIN", ROOT / "build/release/bin/gantry"))
TOKENS, VOCABULARY = 128, 50257
MODEL = {"n_embd": 768, "n_layer": 4, "n_head": 12, "vocab_size": VOCABULARY, "n_positions": TOKENS,
         "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
STAGES, SHARED = {"pipeline": 2}, {"pipeline": 2, "vocabulary": "pipeline"}
LAYOUTS = {
    "one rank": ({}, {"name": "1f1b"}),
    "stages by layers, 1f1b": (STAGES, {"name": "1f1b"}),
    "balanced, 1f1b": (STAGES, {"name": "1f1b", "layers": "balanced"}),
    "vocabulary, 1f1b, algorithm 1": (SHARED, {"name": "1f1b", "vocabulary_algorithm": 1}),
    "vocabulary, 1f1b, algorithm 2": (SHARED, {"name": "1f1b", "vocabulary_algorithm": 2}),
    "vocabulary, zb_h1": (SHARED, {"name": "zb_h1"}),
    "vocabulary, v_half": (SHARED, {"name": "v_half"}),
    "vocabulary, gpipe": (SHARED, {"name": "gpipe"}),
}


def step_seconds(layout, steps, folder):
    parallel, schedule = LAYOUTS[layout]
    config = training.write_config(folder, {
        "model": {"policy": "gpt2", "config": MODEL}, "parallel": parallel, "schedule": schedule | {"microbatches": 4},
        "data": training.tokens_section(folder, 8 * 8 * TOKENS, VOCABULARY, TOKENS, 8),
        "optimizer": {"name": "adamw", "lr": 0.001}, "train": {"steps": steps}, "comm": {"threads_per_rank": 1}})
    return statistics.median(line["step_seconds"] for line in training.run_steps(PROGRAM, config)[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    seconds = {layout: [] for layout in LAYOUTS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.rounds):
            for layout in LAYOUTS:
                seconds[layout].append(step_seconds(layout, arguments.steps, pathlib.Path(folder)))
    print(f"{'layout':32} {'seconds':>8} {'of one rank':>12}")
    for layout, each in seconds.items():
        shares = [mine / one for mine, one in zip(each, seconds["one rank"])]
        print(f"{layout:32} {statistics.median(each):8.3f} {statistics.median(shares):12.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(seconds, indent=1))


if __name__ == "__main__":
    main()
