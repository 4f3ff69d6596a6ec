"""GPT-2 of 124 million parameters in bfloat16 on one device: tokens per second of Gantry and of PyTorch, eager and
compiled, each a process of its own; and for ten profiled steps of Gantry the share of the time that its kernels leave
the device idle, which is what the host holds it up. Each prints one line of JSON.

usage: gpt2_speed.py gantry | profile | eager | compiled [--small] [--backend B]    (--small: a rehearsal on the CPU)
"""
import argparse, json, pathlib, statistics, struct, subprocess, sys, tempfile, time

import packed

LARGE = dict(hidden=768, layers=12, heads=12, vocabulary=50257, sequence=1024, batch=16)
SMALL = dict(hidden=32, layers=2, heads=2, vocabulary=251, sequence=32, batch=2)
WARMUP, STEPS = 8, 20


def train_gantry(size, folder, backend, steps, **more):
    tokens = folder / "tokens.bin"
    words = size["sequence"] * size["batch"] * 4 + 1
    tokens.write_bytes(b"".join(struct.pack("<H", i * i % 251) for i in range(words)))
    model = {"n_embd": size["hidden"], "n_layer": size["layers"], "n_head": size["heads"], "vocab_size": size["vocabulary"],
             "n_positions": size["sequence"], "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config = folder / "config.yaml"
    config.write_text(json.dumps({
        "model": {"policy": "gpt2", "config": model}, "precision": "bfloat16",
        "schedule": {"microbatches": 1},
        "data": {"format": "tokens", "path": str(tokens), "sequence_length": size["sequence"], "batch_size": size["batch"],
                 "shuffle": False},
        "optimizer": {"name": "adamw", "lr": 0.0001, "clip_grad_norm": 1.0},
        "train": {"steps": steps}, "comm": {"backend": backend}, "output": str(folder / "out"), **more}))
    subprocess.run([packed.BUILD / "bin/gantry", "train", config], check=True, stdout=subprocess.DEVNULL,
                   env=packed.environment())
    return [json.loads(line) for line in (folder / "out/metrics.jsonl").read_text().splitlines()]


def rate(size, seconds):
    tokens = size["sequence"] * size["batch"]
    settled = seconds[WARMUP:]
    return dict(tokens_per_second=tokens / statistics.median(settled), slowest=tokens / max(settled), fastest=tokens / min(settled),
                steps=len(settled))


def gantry(size, folder, backend):
    steps = train_gantry(size, folder, backend, WARMUP + STEPS)
    return rate(size, [step["step_seconds"] for step in steps]) | {"last_loss": steps[-1]["loss"]}


def idle_share(intervals):
    """Of the time from the first kernel's start to the last one's end, what no kernel covers."""
    covered, end = 0.0, None
    for begin, finish in sorted(intervals):
        covered += max(0.0, finish - max(begin, end if end is not None else begin))
        end = max(finish, end if end is not None else finish)
    return 1 - covered / (end - min(begin for begin, _ in intervals))


def profile(size, folder, backend):
    train_gantry(size, folder, backend, WARMUP + 10, profile={"wait": WARMUP, "active": 10})
    trace, = folder.glob("out/profile-*.trace.json")
    events = json.loads(trace.read_text())["traceEvents"]
    kernels = [(e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") == "kernel"]
    if not kernels:
        return dict(kernels=0, idle_share=None)
    return dict(kernels=len(kernels), kernels_per_step=len(kernels) / 10, idle_share=idle_share(kernels))


def pytorch(size, compiled):
    sys.path.insert(0, str(packed.ROOT / "bench"))
    import torch
    import pytorch_peer as peer
    peer.VOCABULARY, peer.SEQUENCE = size["vocabulary"], size["sequence"]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = peer.Gpt(argparse.Namespace(**size), size["layers"], True, True).to(device)
    optimizer = peer.adamw(model)
    forward = torch.compile(model) if compiled else model
    x, y = (part.to(device) for part in peer.batch_of(size["batch"]))
    seconds = []
    for _ in range(WARMUP + STEPS):
        begin = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16):
            loss = peer.loss_of(forward(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()  # Gantry's step ends with its loss on the host too
        seconds.append(time.perf_counter() - begin)
    return rate(size, seconds) | {"last_loss": loss.item()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["gantry", "profile", "eager", "compiled"])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--backend", default="nccl")
    args = parser.parse_args()
    size = SMALL if args.small else LARGE
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if args.what == "gantry":
            result = gantry(size, folder, args.backend)
        elif args.what == "profile":
            result = profile(size, folder, args.backend)
        else:
            result = pytorch(size, args.what == "compiled")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
