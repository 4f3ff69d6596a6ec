"""What ./dev gpu bench measures of one model in bfloat16, each in a process of its own, as one line of JSON: tokens per
second of training, by Gantry or PyTorch, eager or compiled, with the share of the device's peak and the memory; for ten
profiled steps of Gantry the share of the time that its kernels leave the device idle, which is what the host holds it up;
and new tokens per second of generation, by Gantry or transformers.

usage: speed.py gantry | profile | eager | compiled | generate | transformers --model NAME [--small] [--backend B]
       [--layout pp2 | tp2] [--graphs]
--small: a rehearsal on the CPU; --layout: two ranks as processes on one device; --graphs: train.device_graphs
"""
import argparse, json, pathlib, statistics, struct, subprocess, sys, tempfile, time

import packed

LLAMA_1B = dict(hidden=2048, layers=16, heads=32, key_heads=8, inner=8192, vocabulary=128256)
LLAMA_8B = dict(hidden=4096, layers=32, heads=32, key_heads=8, inner=14336, vocabulary=128256, lora=16)
# The sizes of GPT-2 124M, Llama 3.2 1B, and Llama 3.1 8B with frozen weights and LoRA adapters.
SIZES = {
    "gpt2": dict(hidden=768, layers=12, heads=12, vocabulary=50257, sequence=1024, batch=16),
    "llama": dict(LLAMA_1B, sequence=2048, batch=8),
    "llama_long": dict(LLAMA_1B, sequence=8192, batch=2),
    "lora": dict(LLAMA_8B, sequence=2048, batch=4),
    "lora_long": dict(LLAMA_8B, sequence=8192, batch=1),
}
SMALL_LLAMA = dict(hidden=32, layers=2, heads=4, key_heads=2, inner=48, vocabulary=251, sequence=32, batch=2)
SMALL = {
    "gpt2": dict(hidden=32, layers=2, heads=2, vocabulary=251, sequence=32, batch=2),
    "llama": SMALL_LLAMA, "llama_long": dict(SMALL_LLAMA, sequence=64),
    "lora": dict(SMALL_LLAMA, lora=4), "lora_long": dict(SMALL_LLAMA, lora=4, sequence=64),
}
# Dense bfloat16, of the vendor's data sheets.
PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "H800": 989e12, "B200": 2250e12, "A100": 312e12, "L40S": 362e12}
WARMUP, STEPS, PROMPT = 8, 20, 32


def peak_of_device():
    import torch
    if not torch.cuda.is_available():
        return None
    name = torch.cuda.get_device_name(0)
    return next((flops for part, flops in PEAK_FLOPS.items() if part in name), None)


def flops_per_token(model, size):
    """The floating-point operations of a training step for one token: the multiplications by the weights in forward and
    backward, and the causal half of the attention scores. Frozen weights need no weight gradient."""
    hidden, layers, inner = size["hidden"], size["layers"], size.get("inner")
    key_share = size.get("key_heads", size["heads"]) / size["heads"]
    attention = hidden * hidden * (2 + 2 * key_share)
    mlp = 8 * hidden * hidden if model == "gpt2" else 3 * hidden * inner
    weights = layers * (attention + mlp) + size["vocabulary"] * hidden
    return (4 if "lora" in size else 6) * weights + 6 * layers * size["sequence"] * hidden


def model_config(model, size):
    if model == "gpt2":
        return {"n_embd": size["hidden"], "n_layer": size["layers"], "n_head": size["heads"], "vocab_size": size["vocabulary"],
                "n_positions": size["sequence"], "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return {"hidden_size": size["hidden"], "num_hidden_layers": size["layers"], "num_attention_heads": size["heads"],
            "num_key_value_heads": size["key_heads"], "intermediate_size": size["inner"], "vocab_size": size["vocabulary"],
            "max_position_embeddings": size["sequence"], "rms_norm_eps": 1e-5, "tie_word_embeddings": "lora" not in size}


def gantry(*arguments, ranks=1):
    mpirun = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)] if ranks > 1 else []
    return subprocess.run([*mpirun, packed.BUILD / "bin/gantry", *map(str, arguments)], check=True, stdout=subprocess.PIPE, text=True,
                          env=packed.environment()).stdout


def train(args, size, folder, steps, **more):
    """Metrics of each step."""
    tokens = folder / "tokens.bin"
    words = size["sequence"] * size["batch"] * 4 + 1
    tokens.write_bytes(b"".join(struct.pack("<H", i * i % 251) for i in range(words)))
    layout = {"pp2": {"pipeline": 2}, "tp2": {"tensor": 2}}.get(args.layout, {})
    config = folder / "config.yaml"
    config.write_text(json.dumps({
        "model": {"policy": "gpt2" if args.model == "gpt2" else "llama", "config": model_config(args.model, size)},
        **({"lora": {"r": size["lora"], "alpha": 2 * size["lora"], "target_modules": "all-linear"}} if "lora" in size else {}),
        "precision": "bfloat16", "parallel": layout,
        "schedule": {"microbatches": 2 if args.layout == "pp2" else 1},
        "data": {"format": "tokens", "path": str(tokens), "sequence_length": size["sequence"], "batch_size": size["batch"],
                 "shuffle": False},
        "optimizer": {"name": "adamw", "lr": 0.0001, "clip_grad_norm": 1.0},
        "train": {"steps": steps, **({"device_graphs": True} if args.graphs else {})}, "comm": {"backend": args.backend}, "output": str(folder / "out"), **more}))
    gantry("train", config, ranks=2 if args.layout and not args.small else 1)
    return [json.loads(line) for line in (folder / "out/metrics.jsonl").read_text().splitlines()]


def rates(args, size, seconds, memory_bytes, last_loss):
    tokens = size["sequence"] * size["batch"]
    settled = seconds[WARMUP:]
    rate = tokens / statistics.median(settled)
    peak = peak_of_device()
    share = round(rate * flops_per_token(args.model, size) / peak, 4) if peak else None
    return dict(tokens_per_second=round(rate, 1), slowest=round(tokens / max(settled), 1), fastest=round(tokens / min(settled), 1),
                steps=len(settled), share_of_peak=share, memory_gib=round(memory_bytes / 2**30, 2), last_loss=last_loss)


def train_gantry(args, size, folder):
    steps = train(args, size, folder, WARMUP + STEPS)
    return rates(args, size, [step["step_seconds"] for step in steps], max(max(step["peak_memory_bytes"]) for step in steps),
                 steps[-1]["loss"])


def idle_share(intervals):
    """Of the time from the first kernel's start to the last one's end, what no kernel covers."""
    covered, end = 0.0, None
    for begin, finish in sorted(intervals):
        covered += max(0.0, finish - max(begin, end if end is not None else begin))
        end = max(finish, end if end is not None else finish)
    return 1 - covered / (end - min(begin for begin, _ in intervals))


def largest(times, count, total):
    """The names with the largest times, with their shares of the total."""
    return {name: round(time / total, 3) for name, time in sorted(times.items(), key=lambda one: -one[1])[:count]}


def longest(kernels):
    """The kernels that take most of the time, by names, with their shares of it."""
    times = {}
    for event in kernels:
        times[event["name"][:90]] = times.get(event["name"][:90], 0) + event["dur"]
    return largest(times, 25, sum(times.values()))


def idle_between(kernels):
    """The pairs of kernels between which the device is idle for most of the time, with their shares of the idle time."""
    times, end, last = {}, None, ""
    for event in sorted(kernels, key=lambda one: one["ts"]):
        if end is not None and event["ts"] > end:
            pair = f"{last[:50]} -> {event['name'][:50]}"
            times[pair] = times.get(pair, 0) + event["ts"] - end
        if end is None or event["ts"] + event["dur"] > end:
            end, last = event["ts"] + event["dur"], event["name"]
    return largest(times, 12, sum(times.values()) or 1)


def profile(args, size, folder):
    train(args, size, folder, WARMUP + 10, profile={"wait": WARMUP, "active": 10})
    trace, = folder.glob("out/profile-*.trace.json")
    events = json.loads(trace.read_text())["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    if not kernels:
        return dict(kernels=0, idle_share=None)
    return dict(kernels_per_step=len(kernels) / 10, idle_share=round(idle_share([(e["ts"], e["ts"] + e["dur"]) for e in kernels]), 4),
                longest=longest(kernels), idle_between=idle_between(kernels))


def peer_model(args, size):
    if args.model != "gpt2":
        import llama_peer
        return llama_peer.Llama(size)
    sys.path.insert(0, str(packed.ROOT / "bench"))
    import pytorch_peer
    pytorch_peer.VOCABULARY, pytorch_peer.SEQUENCE = size["vocabulary"], size["sequence"]
    return pytorch_peer.Gpt(argparse.Namespace(**size), size["layers"], True, True)


def pytorch(args, size, compiled):
    import torch
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    with device:
        model = peer_model(args, size)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    forward = torch.compile(model) if compiled else model
    tokens = torch.randint(0, size["vocabulary"], (size["batch"], size["sequence"] + 1), device=device)
    seconds = []
    for _ in range(WARMUP + STEPS):
        begin = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16):
            logits = forward(tokens[:, :-1])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        last_loss = loss.item()  # Gantry's step ends with its loss on the host too
        seconds.append(time.perf_counter() - begin)
    memory = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    return rates(args, size, seconds, memory, last_loss)


def saved_model(args, size, folder):
    """A Hugging Face directory with initial weights: a training run of one step whose learning rate is nothing."""
    train(args, size, folder, 1, optimizer={"name": "adamw", "lr": 1e-12}, checkpoint={"path": str(folder / "saved")})
    gantry("checkpoint", "export", folder / "saved", folder / "model")
    return folder / "model"


def new_token_rate(seconds_of, few, many):
    """The start of a process and of a text counts in both."""
    return dict(new_tokens_per_second=round((many - few) / (seconds_of(many) - seconds_of(few)), 1), new_tokens=many - few)


def generate_gantry(args, size, folder, few, many):
    model = saved_model(args, size, folder)
    prompt = ",".join(map(str, range(1, min(PROMPT, size["sequence"] // 4) + 1)))

    def seconds_of(tokens):
        begin = time.perf_counter()
        gantry("generate", "--model", model, "--tokens", prompt, "--max-new-tokens", tokens, "--min-new-tokens", tokens,
               "--set", f"comm.backend={args.backend}")
        return time.perf_counter() - begin

    return new_token_rate(seconds_of, few, many)


def generate_transformers(args, size, folder, few, many):
    try:
        import transformers
    except ImportError:
        return dict(new_tokens_per_second=None, why="transformers is not installed")
    import torch
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = transformers.AutoModelForCausalLM.from_pretrained(saved_model(args, size, folder), dtype=torch.bfloat16).to(device).eval()
    ids = torch.arange(1, min(PROMPT, size["sequence"] // 4) + 1, device=device).unsqueeze(0)

    def seconds_of(tokens):
        begin = time.perf_counter()
        with torch.no_grad():
            model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False,
                           pad_token_id=0)[0].tolist()
        return time.perf_counter() - begin

    seconds_of(few)
    return new_token_rate(seconds_of, few, many)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["gantry", "profile", "eager", "compiled", "generate", "transformers"])
    parser.add_argument("--model", choices=list(SIZES), required=True)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--layout", choices=["pp2", "tp2"])
    parser.add_argument("--graphs", action="store_true", help="train.device_graphs")
    args = parser.parse_args()
    size = (SMALL if args.small else SIZES)[args.model]
    few, many = (2, 10) if args.small else (8, 264)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        result = {"gantry": lambda: train_gantry(args, size, folder), "profile": lambda: profile(args, size, folder),
                  "eager": lambda: pytorch(args, size, False), "compiled": lambda: pytorch(args, size, True),
                  "generate": lambda: generate_gantry(args, size, folder, few, many),
                  "transformers": lambda: generate_transformers(args, size, folder, few, many)}[args.what]()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
