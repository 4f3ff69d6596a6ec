"""Experts over two ranks: tokens a second of ep 2 beside one rank and beside tp 2, as a share of the ideal (twice one rank's), and the
bandwidth of a dispatch of rows to experts beside that of a plain all-to-all of as many bytes. A small Mixtral, one thread a rank.
And how much of the time that rows are under way shared experts and pairs of DualPipe-V hide, where a link holds every all-to-all back
by some milliseconds: seconds a step without delay, where ranks wait at once, and as Gantry runs it. Prints tables; --json FILE keeps
the figures, --quick takes few steps.
"""
import argparse, json, pathlib, statistics, subprocess, tempfile

import training

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/release"
TOKENS, BATCH, LAYERS, USED, ELEMENT = 128, 8, 4, 2, 4  # of a sample; samples; layers; experts of a token; bytes
SIZE = dict(num_hidden_layers=LAYERS, hidden_size=256, intermediate_size=512, num_attention_heads=8, num_key_value_heads=4,
            num_local_experts=8, num_experts_per_tok=USED, vocab_size=256, max_position_embeddings=TOKENS)
LAYOUTS = {"one rank": {}, "tp 2": {"tensor": 2, "sequence_parallel": True}, "ep 2": {"data": 2, "expert": 2}}
CALLS = 4 * LAYERS  # of an all-to-all in a step: there and back, forward and backward


def steps_of(parallel, steps, folder):
    config = training.write_config(folder, {
        "model": {"policy": "mixtral", "config": SIZE}, "parallel": parallel, "schedule": {"microbatches": 1},
        "data": training.tokens_section(folder, 4 * BATCH * TOKENS, 251, TOKENS, BATCH),
        "train": {"steps": steps}, "comm": {"threads_per_rank": 1}})
    return training.run_steps(BUILD / "bin/gantry", config)[2:]  # the first two steps warm up


def bandwidths_of_ranks_in_step():
    """By operation and size: bytes that a rank hands in, over seconds, where both ranks begin together."""
    out = subprocess.run([BUILD / "bench/comm_bench", "2"], check=True, stdout=subprocess.PIPE, text=True).stdout
    found = {"all_to_all": {}, "dispatch": {}}
    for row in map(json.loads, out.splitlines()):
        if row["backend"] == "local" and row["op"] in found:
            found[row["op"]][row["bytes"]] = row["bytes"] / row["median"]
    return found


def hidden_delays(quick):
    flags = ["--quick"] if quick else []
    out = subprocess.run([BUILD / "bench/expert_link_bench", *flags], check=True, stdout=subprocess.PIPE, text=True).stdout
    rows = [json.loads(line) for line in out.splitlines()]
    print(f"{'rows that are held back':26} {'each':>6} {'calls':>6} {'no delay':>9} {'at once':>9} {'overlaps':>9} {'hidden':>7}")
    for row in rows:
        print(f"{row['case']:26} {row['milliseconds']:3} ms {row['all_to_alls']:6} {row['no_delay']:8.3f}s {row['waits_at_once']:8.3f}s "
              f"{row['overlaps']:8.3f}s {100 * row['hidden']:6.0f}%")
    return rows


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--json", type=pathlib.Path)
    arguments.add_argument("--quick", action="store_true")
    given = arguments.parse_args()
    steps, rounds = (5, 1) if given.quick else (12, 3)
    taken = {name: [] for name in LAYOUTS}
    with tempfile.TemporaryDirectory() as name:
        for _ in range(rounds):  # in turn, so that a machine whose speed drifts is fair to all
            for layout, parallel in LAYOUTS.items():
                taken[layout] += steps_of(parallel, steps, pathlib.Path(name))
    figures = {}
    for layout, lines in taken.items():
        figures[layout] = BATCH * TOKENS / statistics.median(line["step_seconds"] for line in lines)
        share = "" if layout == "one rank" else f"{100 * figures[layout] / 2 / figures['one rank']:6.1f}% of the ideal"
        print(f"{layout:10} {figures[layout]:10.0f} tokens/s {share}", flush=True)
    experts = [line["experts"] for line in taken["ep 2"]]
    sent = BATCH * TOKENS // 2 * USED * SIZE["hidden_size"] * ELEMENT
    in_step = bandwidths_of_ranks_in_step()
    nearest = min(in_step["all_to_all"], key=lambda size: abs(size - sent))
    ours = statistics.median(each["all_to_all_bytes"] / each["all_to_all_seconds"] for each in experts)
    plain, alone = in_step["all_to_all"][nearest], in_step["dispatch"][nearest]
    figures |= {"rows in training": ours, "dispatch": alone, "plain": plain, "bytes": sent, "plain bytes": nearest}
    print(f"plain      {plain / 1e9:10.3f} GB/s, an all_to_all of {nearest / 1024:.0f} KiB, ranks in step\n"
          f"dispatch   {alone / 1e9:10.3f} GB/s, {100 * alone / plain:.1f}% of it: counts, as many bytes of rows, their order by expert\n"
          f"training   {ours / 1e9:10.3f} GB/s, {experts[0]['all_to_all_bytes'] / CALLS / 1024:.0f} KiB a call, waits for the other rank "
          f"among them")
    figures["held back"] = hidden_delays(given.quick)
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
