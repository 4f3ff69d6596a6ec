"""What `gantry checkpoint export` writes, loaded by Hugging Face transformers: no key is missing, unexpected or of another shape, the
weights have the type that config.json names and the source's bits, and the logits are those of `gantry forward` and of the reference case.
`GANTRY_LONG=1 ./dev test` runs it. GANTRY_BIN: the program."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden"
GANTRY = os.environ.get("GANTRY_BIN", str(ROOT / "build/release/bin/gantry"))
MODELS = ["gpt2", "llama", "llama_tied_gqa1", "bert"]
DTYPES = ["float32", "bfloat16", "float16"]
MOST_DIFFERENT = 2e-5  # of logits, as tests/cli/golden_test.cpp has it


def gantry(*arguments):
    run = subprocess.run([GANTRY, *map(str, arguments)], capture_output=True, text=True)
    assert run.returncode == 0, f"gantry {arguments}: {run.stderr}"


def load(directory, dtype="auto"):
    name = json.loads((directory / "config.json").read_text())["architectures"][0]
    model, info = getattr(transformers, name).from_pretrained(directory, torch_dtype=dtype, output_loading_info=True)
    return model.eval(), info


def logits_of(model, batch):
    with torch.no_grad():
        return model(**{name: value for name, value in batch.items() if name != "labels"}).logits


def check(model, exported, dtype, source, case):
    loaded, info = load(exported)
    for fault in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        assert not info.get(fault), f"{fault}: {info[fault]}"
    assert loaded.dtype == getattr(torch, dtype), f"is {loaded.dtype}"
    config = loaded.config
    assert config.tie_word_embeddings == source.config.tie_word_embeddings
    tied = loaded.get_output_embeddings().weight.data_ptr() == loaded.get_input_embeddings().weight.data_ptr()
    assert tied == config.tie_word_embeddings, "is tied otherwise than config.json says"
    assert loaded.get_input_embeddings().weight.shape[0] == config.vocab_size, "has a padded vocabulary"
    expected = source.state_dict()
    for name, weight in loaded.state_dict().items():
        assert torch.equal(weight, expected[name].to(weight.dtype)), f"{name} differs"

    logits = logits_of(loaded.float(), case["batch"])
    output = exported / "forward.out"
    gantry("forward", "--model", exported, "--batch", GOLDEN / model / "batch.safetensors", "--output", output,
           "--set", "precision=float32")
    differences = [(logits - load_file(output)["logits"]).abs().max().item()]
    if dtype == "float32":
        differences.append((logits - case["forward"]["logits"]).abs().max().item())
    assert max(differences) <= MOST_DIFFERENT, f"logits differ by {differences}"
    return max(differences)


def published(scratch):
    """A model directory with a tokenizer, defaults of generation, both old and new keys, and keys that Gantry does not know."""
    base = scratch / "base"
    shutil.copytree(GOLDEN / "llama", base)
    for file in (GOLDEN / "tokenizers/kinds/t5").iterdir():
        shutil.copy(file, base)
    config = json.loads((base / "config.json").read_text())
    config.update({"task_specific_params": {"own": [1, 2]}, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}})
    (base / "config.json").write_text(json.dumps(config))
    (base / "generation_config.json").write_text(json.dumps({"max_new_tokens": 6, "repetition_penalty": 1.3, "eos_token_id": [3]}))
    (base / "chat_template.jinja").write_text("{{ messages[0].content }}")
    return base


def check_other_files(scratch):
    """Tokenizer, template and defaults of the export, also when the base has been removed."""
    base, exported = published(scratch), scratch / "exported"
    gantry("checkpoint", "import", base, scratch / "c")
    base = base.rename(scratch / "moved")
    gantry("checkpoint", "export", scratch / "c", exported)
    tokens, models = [], []
    for directory in (base, exported):
        tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
        assert tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "hi"
        inputs = tokenizer("the quick brown", return_tensors="pt", add_special_tokens=False)
        model, _ = load(directory, torch.float32)
        models.append(model)
        tokens.append(model.generate(input_ids=inputs["input_ids"])[0].tolist())
    assert tokens[0] == tokens[1] and len(tokens[0]) > inputs["input_ids"].shape[1], tokens
    assert models[0].config.rope_parameters == models[1].config.rope_parameters
    assert models[0].generation_config.to_dict() == models[1].generation_config.to_dict()
    config = json.loads((exported / "config.json").read_text())
    assert config["rope_theta"] == 500.0 and config["rope_scaling"] == {"rope_type": "linear", "factor": 2.0}
    assert config["task_specific_params"] == {"own": [1, 2]} and config["dtype"] == config["torch_dtype"] == "float32"
    run = subprocess.run([GANTRY, "generate", "--model", str(exported), "--json", "--tokens",
                          ",".join(map(str, inputs["input_ids"][0].tolist()))], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    print(f"other files: tokens of generate() {tokens[1]}, by gantry generate {run.stdout.strip()}", flush=True)


def main():
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    for model in MODELS:
        case = {name: load_file(GOLDEN / model / f"{name}.safetensors") for name in ("batch", "forward")}
        source, _ = load(GOLDEN / model, torch.float32)
        with tempfile.TemporaryDirectory() as scratch:
            scratch = pathlib.Path(scratch)
            gantry("checkpoint", "import", GOLDEN / model, scratch / "c", "--set", "parallel.tensor=2")
            for dtype in DTYPES:
                for form, shard_gb in (("whole", 5), ("sharded", 0.00002)):
                    exported = scratch / f"{dtype}_{form}"
                    gantry("checkpoint", "export", "--dtype", dtype, "--shard-gb", shard_gb, scratch / "c", exported)
                    assert (exported / "model.safetensors.index.json").exists() == (form == "sharded")
                    different = check(model, exported, dtype, source, case)
                    print(f"{model:16} {dtype:9} {form:8} logits within {different:.1e}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        check_other_files(pathlib.Path(scratch))
    print("every exported directory loads")


if __name__ == "__main__":
    sys.exit(main())
