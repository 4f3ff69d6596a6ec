"""Tokens a second of Gantry's generation with a cache and without, and of Hugging Face's transformers where it is installed, side by
side: a GPT-2 of random weights, one prompt, one rank. The tokens are checked to be the same.

--new-tokens and --threads change the case, --json FILE keeps the figures.
"""
import argparse, json, os, pathlib, subprocess, sys, tempfile, time

BENCH = pathlib.Path(__file__).resolve().parent.parent / "build/release/bench/generation_bench"
GANTRY = BENCH.parent.parent / "bin/gantry"
PROMPT = 32
SIZES = "{n_embd: 384, n_layer: 6, n_head: 6, vocab_size: 8000, n_positions: 512, initializer_range: 0.2}"


def make_model(folder):
    """A Hugging Face directory with initial weights: a training run of one step whose learning rate is nothing."""
    (folder / "text.txt").write_text("nothing in particular " * 8)
    (folder / "train.yaml").write_text(
        f"model: {{policy: gpt2, config: {SIZES}}}\ndata: {{format: text, tokenizer: bytes, path: {folder}/text.txt, sequence_length: 8, batch_size: 1}}\n"
        f"optimizer: {{lr: 1.0e-12}}\ntrain: {{steps: 1}}\ncheckpoint: {{path: {folder}/saved}}\n")
    subprocess.run([GANTRY, "train", folder / "train.yaml"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([GANTRY, "checkpoint", "export", folder / "saved", folder / "model"], check=True, stdout=subprocess.DEVNULL)
    return folder / "model"


def hugging_face(folder, new_tokens, beams, threads):
    import torch
    import transformers
    torch.set_num_threads(threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids, best = torch.arange(1, PROMPT + 1).unsqueeze(0), 0
    for _ in range(3):
        started = time.perf_counter()
        with torch.no_grad():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new_tokens, num_beams=beams, do_sample=False,
                                 pad_token_id=0)
        best = max(best, new_tokens / (time.perf_counter() - started))
    return best, out[0, PROMPT:].tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(pathlib.Path(folder))
        print(f"GPT-2 {SIZES}, {arguments.new_tokens} tokens after {PROMPT}; tokens per second\n")
        print(f"{'beams':>5} {'cache':>8} {'none':>8} {'ratio':>6} {'transformers':>13} {'ratio':>6}")
        for beams in (1, 3):
            command = [BENCH, model, str(PROMPT), str(arguments.new_tokens), str(beams), str(arguments.threads)]
            made = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
            line = f"{beams:5} {made['cached']:8.1f} {made['whole']:8.1f} {made['cached'] / made['whole']:6.2f}"
            try:
                peer, tokens = hugging_face(model, arguments.new_tokens, beams, arguments.threads)
            except ImportError:
                peer, tokens = None, made["tokens"]
            if tokens != made["tokens"] or not made["same"]:
                sys.exit(f"error: {beams} beams: the tokens differ")
            figures.append(dict(beams=beams, cached=made["cached"], whole=made["whole"], transformers=peer))
            print(line + (f" {peer:13.1f} {made['cached'] / peer:6.2f}" if peer else "  not installed"), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
