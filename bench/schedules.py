"""What a schedule costs before a run, Gantry beside PyTorch in one run: milliseconds to lower and check the same
compute-only orders. PyTorch's is what its schedules do when they are made from such an order: checking it, and adding the
messages. Prints one table; --json FILE keeps the figures.
"""
import argparse, copy, json, pathlib, subprocess, sys, time

BUILD = pathlib.Path(__file__).resolve().parent.parent / "build/release"
SIZES = [("interleaved_1f1b", 64, 256, 2), ("zb_v", 64, 256, 2), ("dualpipe_v", 64, 256, 2), ("interleaved_1f1b", 8, 32, 2),
         ("v_min", 16, 64, 2), ("v_half", 16, 64, 2), ("zb_v", 16, 64, 2), ("zb_auto", 16, 64, 1)]


def gantry_figures(name, ranks, microbatches, chunks):
    out = subprocess.run([BUILD / "bench/schedule_bench", name, *map(str, (ranks, microbatches, chunks)), "5"], check=True,
                         stdout=subprocess.PIPE, text=True).stdout
    return json.loads(out)


def pytorch_milliseconds(name, ranks, microbatches, chunks):
    from torch.distributed.pipelining import schedules as peer

    text = subprocess.run([BUILD / "bin/gantry", "schedule", "show", name, "-p", str(ranks), "-m", str(microbatches), "-v", str(chunks),
                           "--csv"], check=True, stdout=subprocess.PIPE, text=True).stdout
    order = {rank: [peer._Action.from_str(cell) for cell in row.split(",")] for rank, row in enumerate(text.splitlines())}
    start = time.perf_counter()
    rank_of_stage = peer._validate_schedule(order, ranks, ranks * chunks, microbatches)
    order = {rank: peer._add_reduce_grad(peer._add_unshard_reshard(row), microbatches) for rank, row in order.items()}
    peer._add_send_recv(order, stage_to_rank=lambda stage: rank_of_stage[stage], num_stages=ranks * chunks)
    return 1000 * (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    figures = []
    print(f"{'schedule':17} {'ranks':>5} {'micro':>5} {'chunks':>6} {'generate ms':>11} {'simulate ms':>11} {'lower ms':>9} {'check ms':>9} "
          f"{'PyTorch ms':>11} {'ratio':>7}")
    for size in SIZES:
        f = gantry_figures(*size)
        f["pytorch_ms"] = pytorch_milliseconds(*size)
        f["ratio"] = f["pytorch_ms"] / (f["lower_ms"] + f["validate_lowered_ms"])
        print(f"{size[0]:17} {size[1]:5} {size[2]:5} {size[3]:6} {f['generate_ms']:11.1f} {f['simulate_ms']:11.1f} {f['lower_ms']:9.1f} "
              f"{f['validate_lowered_ms']:9.1f} {f['pytorch_ms']:11.1f} {f['ratio']:7.0f}", flush=True)
        figures.append(f)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
