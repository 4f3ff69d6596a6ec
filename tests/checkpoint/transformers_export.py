"""What `gantry checkpoint export` writes, loaded by Hugging Face transformers: no key is missing, unexpected or of another shape, the
weights have the type that config.json names and the source's bits, and the logits are those of `gantry forward` and of the reference case.
`GANTRY_LONG=1 ./dev test` runs it. GANTRY_BIN: the program."""
import json
import os
import pathlib
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
    gantry("forward", "--model", exported, "--batch", GOLDEN / model / "batch.safetensors", "--output", output)
    differences = [(logits - load_file(output)["logits"]).abs().max().item()]
    if dtype == "float32":
        differences.append((logits - case["forward"]["logits"]).abs().max().item())
    assert max(differences) <= MOST_DIFFERENT, f"logits differ by {differences}"
    return max(differences)


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
    print("every exported directory loads")


if __name__ == "__main__":
    sys.exit(main())
