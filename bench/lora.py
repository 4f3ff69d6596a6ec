"""A training step of adapters beside PEFT on PyTorch, in one run and at one rank: Llama with LoRA on all linear layers, float32, AdamW.

usage: ./dev bench lora [--hidden N] [--layers N] [--r N] [--rounds N] [--steps N] [--threads N]
Each round runs both programs, the first of them in turn, so that a machine whose speed drifts is fair to both; a round's figure is the median
of its steps. Prints the median over the rounds of the ratio PEFT : Gantry of seconds (above 1: Gantry is faster), and the memory that
`gantry plan estimate` counts for Gantry's.
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
    return training.write_config(folder, {
        "model": {"policy": "llama", "config": keys_of(args)},
        "lora": {"r": args.r, "alpha": 2 * args.r, "target_modules": "all-linear"},
        "data": training.tokens_section(folder, 64 * SEQUENCE, 251, SEQUENCE, BATCH),
        "optimizer": {"name": "adamw", "lr": 0.001}, "train": {"steps": args.steps}, "comm": {"threads_per_rank": args.threads}})


def gantry_step(args, folder):
    lines = training.run_steps(GANTRY, config_of(args, folder))
    return statistics.median(line["step_seconds"] for line in lines[2:])  # the first two steps warm up


def peft_step(args, folder):
    run = subprocess.run([sys.executable, "-W", "ignore", __file__, "--peer", *sum(([f"--{name}", str(getattr(args, name))] for name in
                         ("hidden", "layers", "r", "steps", "threads")), [])], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(run.stdout.splitlines()[-1])


def run_peer(args):
    import peft, torch, transformers
    torch.set_num_threads(args.threads)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**keys_of(args), attn_implementation="sdpa"))
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
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        return run_peer(args)
    programs = {"gantry": gantry_step, "peft": peft_step}
    rounds = []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for number in range(args.rounds):
            names = list(programs) if number % 2 == 0 else list(programs)[::-1]
            rounds.append({name: programs[name](args, scratch) for name in names})
        estimate = subprocess.run([GANTRY, "plan", "estimate", config_of(args, scratch), "--cluster", "a100_80g", "--json"], check=True,
                                  stdout=subprocess.PIPE, text=True)
    ratios = sorted(each["peft"] / each["gantry"] for each in rounds)
    middle = ratios[len(ratios) // 4: len(ratios) - len(ratios) // 4]
    for name in programs:
        print(f"{name:7} {1000 * statistics.median(each[name] for each in rounds):8.1f} ms a step")
    print(f"PEFT : Gantry {statistics.median(ratios):.2f} (half of the rounds within {middle[0]:.2f} to {middle[-1]:.2f})")
    print(f"memory by the planner {json.loads(estimate.stdout)['memory_bytes'][0] / 2 ** 20:.1f} MiB")


if __name__ == "__main__":
    main()
