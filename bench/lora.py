"""A training step of adapters beside PEFT on PyTorch, in one run and at one rank: Llama with LoRA on all linear layers, float32, AdamW.

usage: ./dev bench lora [--quantize nf4|fp4] [--hidden N] [--layers N] [--r N] [--rounds N] [--steps N] [--threads N]
With --quantize, both programs read the same base, whose linear layers are in 4 bits: in PEFT those of bitsandbytes with its kernels for CPUs.
Each round runs both programs, the first of them in turn, so that a machine whose speed drifts is fair to both; a round's figure is the median
of its steps. Prints the median over the rounds of the ratio PEFT : Gantry of seconds (above 1: Gantry is faster), and the peak memory of
Gantry's run beside that of `gantry plan estimate`.
"""
import argparse, json, pathlib, statistics, subprocess, sys, tempfile, time

import training

ROOT = pathlib.Path(__file__).resolve().parent.parent
GANTRY = ROOT / "build/release/bin/gantry"
SEQUENCE, BATCH, VOCABULARY = 128, 8, 256


def keys_of(args):
    return {"hidden_size": args.hidden, "num_hidden_layers": args.layers, "num_attention_heads": args.hidden // 32,
            "num_key_value_heads": args.hidden // 32, "intermediate_size": args.hidden * 11 // 4, "vocab_size": VOCABULARY,
            "max_position_embeddings": SEQUENCE, "tie_word_embeddings": False}


def config_of(args, folder):
    model = {"path": str(folder / "base"), "quantize": args.quantize} if args.quantize else {"policy": "llama", "config": keys_of(args)}
    return training.write_config(folder, {
        "model": model,
        "lora": {"r": args.r, "alpha": 2 * args.r, "target_modules": "all-linear"},
        "data": training.tokens_section(folder, 64 * SEQUENCE, 251, SEQUENCE, BATCH),
        "optimizer": {"name": "adamw", "lr": 0.001}, "train": {"steps": args.steps}, "comm": {"threads_per_rank": args.threads}})


def gantry_step(args, folder):
    lines = training.run_steps(GANTRY, config_of(args, folder))
    return statistics.median(line["step_seconds"] for line in lines[2:]), lines[-1]["peak_memory_bytes"][0]  # two steps warm up


def run_python(args, *flags):
    numbers = sum(([f"--{name}", str(getattr(args, name))] for name in ("hidden", "layers", "r", "steps", "threads")), [])
    run = subprocess.run([sys.executable, "-W", "ignore", __file__, *flags, *numbers], check=True, stdout=subprocess.PIPE, text=True)
    return run.stdout


def peft_step(args, folder):
    base = ["--base", str(folder / "base"), "--quantize", args.quantize] if args.quantize else []
    return json.loads(run_python(args, "--peer", *base).splitlines()[-1])


def new_model(args):
    import transformers
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**keys_of(args), attn_implementation="sdpa"))


def quantized_model(args):
    import torch, transformers
    code = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=args.quantize, bnb_4bit_compute_dtype=torch.float32)
    return transformers.LlamaForCausalLM.from_pretrained(args.base, quantization_config=code, device_map="cpu", dtype=torch.float32,
                                                         attn_implementation="sdpa")


def run_peer(args):
    import peft, torch
    torch.set_num_threads(args.threads)
    model = quantized_model(args) if args.base else new_model(args)
    model = peft.get_peft_model(model, peft.LoraConfig(r=args.r, lora_alpha=2 * args.r, target_modules="all-linear", task_type="CAUSAL_LM"))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3, fused=True)
    seconds = []
    for _ in range(args.steps):
        tokens = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE + 1))
        start = time.perf_counter()
        logits = model(input_ids=tokens[:, :-1]).logits
        torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1)).backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - start)
    print(statistics.median(seconds[2:]))


def main():
    parser = argparse.ArgumentParser()
    for name, value in (("hidden", 256), ("layers", 8), ("r", 8), ("rounds", 5), ("steps", 12), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--quantize", choices=("nf4", "fp4"))
    for flag in ("--peer", "--write"):
        parser.add_argument(flag, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--base", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.write:
        return new_model(args).save_pretrained(args.base)
    if args.peer:
        return run_peer(args)
    programs = {"gantry": lambda *given: gantry_step(*given)[0], "peft": peft_step}
    rounds = []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        if args.quantize:
            run_python(args, "--write", "--base", str(scratch / "base"))
        for number in range(args.rounds):
            names = list(programs) if number % 2 == 0 else list(programs)[::-1]
            rounds.append({name: programs[name](args, scratch) for name in names})
        estimate = subprocess.run([GANTRY, "plan", "estimate", config_of(args, scratch), "--cluster", "a100_80g", "--ranks", "1", "--json"],
                                  check=True, stdout=subprocess.PIPE, text=True)
        peak = gantry_step(args, scratch)[1]
    ratios = sorted(each["peft"] / each["gantry"] for each in rounds)
    middle = ratios[len(ratios) // 4: len(ratios) - len(ratios) // 4]
    for name in programs:
        print(f"{name:7} {1000 * statistics.median(each[name] for each in rounds):8.1f} ms a step")
    print(f"PEFT : Gantry {statistics.median(ratios):.2f} (half of the rounds within {middle[0]:.2f} to {middle[-1]:.2f})")
    planned = json.loads(estimate.stdout)["memory_bytes"][0]
    print(f"peak memory {peak / 2 ** 20:.1f} MiB, by the planner {planned / 2 ** 20:.1f} MiB, planned : measured {planned / peak:.3f}")


if __name__ == "__main__":
    main()
