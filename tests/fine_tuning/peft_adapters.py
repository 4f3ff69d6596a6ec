"""Adapters between Gantry and PEFT: what `gantry checkpoint export` writes, PEFT loads onto the base, with the same logits, and writes again with
the same names, order and bits; what PEFT writes, Gantry reads, with the same logits, and merges, with the logits of PEFT's own merge in transformers.
For plain LoRA, rslora, patterns of ranks and alphas, modules_to_save, embeddings, routers, stacked experts, classifiers with their heads, text decoders
of models that read images, and models with their image encoders.
`GANTRY_LONG=1 ./dev test` runs it.
GANTRY_BIN: the program."""
import json
import os
import pathlib
import subprocess
import tempfile

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
GANTRY = os.environ.get("GANTRY_BIN", str(ROOT / "build/release/bin/gantry"))
MOST_DIFFERENT = 2e-5  # of logits, as tests/cli/golden_test.cpp has it
LLAMA, MIXTRAL, GPT2 = (ROOT / "tests/golden" / name for name in ("lora/all", "lora/experts", "lora/tied_tables"))
BERT, ROBERTA = (ROOT / "tests/golden/heads" / name for name in ("bert_single", "roberta_several"))
LLAMA_CLASSIFIER = "a classifier with the body of LLAMA"  # made when it is needed
GPT_OSS = ROOT / "tests/golden/lora/turned_experts"
STACKS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
CASES = {  # the base, PEFT's keys, and the layout that trains
    "lora": (LLAMA, dict(r=4, lora_alpha=6, target_modules=["q_proj", "down_proj"]), {"tensor": 2}),
    "all-linear": (LLAMA, dict(r=2, lora_alpha=5, target_modules="all-linear"), {"pipeline": 2}),
    "rslora": (LLAMA, dict(r=4, lora_alpha=6, use_rslora=True, target_modules=["v_proj", "up_proj"]), {"data": 2, "zero": 3}),
    "patterns": (LLAMA, dict(r=4, lora_alpha=6, target_modules=["q_proj", "k_proj"], rank_pattern={"layers.1.self_attn.q_proj": 2},
                             alpha_pattern={"k_proj": 9}), {"tensor": 2, "sequence_parallel": True}),
    "modules_to_save": (LLAMA, dict(r=3, lora_alpha=5, target_modules=["o_proj"], modules_to_save=["lm_head", "model.norm"]), {"pipeline": 2}),
    "embeddings": (LLAMA, dict(r=3, lora_alpha=5, target_modules=["embed_tokens", "q_proj"]), {"tensor": 2}),
    "tied embeddings": (GPT2, dict(r=3, lora_alpha=7, target_modules=["wte", "wpe", "c_attn"], fan_in_fan_out=True), {"tensor": 2}),
    "experts": (MIXTRAL, dict(r=3, lora_alpha=5, target_modules=["q_proj"], target_parameters=["mlp.gate.weight"] + STACKS), {"data": 2, "expert": 2}),
    "bert classifier": (BERT, dict(r=2, lora_alpha=3, target_modules=["query", "value"]), {"tensor": 2}),
    "roberta, labels": (ROBERTA, dict(r=2, lora_alpha=3, target_modules="all-linear"), {"data": 2}),
    "llama classifier": (LLAMA_CLASSIFIER, dict(r=2, lora_alpha=3, target_modules=["q_proj", "up_proj"]), {"data": 2}),
    **{name: (ROOT / "tests/golden/families" / name, dict(r=2, lora_alpha=3, target_modules=["q_proj", "down_proj"]), {"tensor": 2})
       for name in ("gemma3_mm", "llava_text", "mistral3", "qwen2_vl", "qwen2_5_vl", "qwen3_vl")},
    **{name: (ROOT / "tests/golden/families" / name, dict(r=2, lora_alpha=3, target_modules=["q_proj", "down_proj"], modules_to_save=[saved]),
              {"tensor": 2})
       for name, saved in (("gemma3_image", "multi_modal_projector"), ("mistral3_image", "vision_tower"), ("qwen2_5_vl_image", "model.visual.merger"))},
    "gpt_oss": (GPT_OSS, dict(r=2, lora_alpha=5, target_modules=[], target_parameters=STACKS), {"tensor": 2}),
}
OURS = {"r": "r", "alpha": "lora_alpha", "rslora": "use_rslora", "rank_pattern": "rank_pattern", "alpha_pattern": "alpha_pattern",
        "modules_to_save": "modules_to_save"}


def gantry(*arguments):
    run = subprocess.run([GANTRY, *map(str, arguments)], capture_output=True, text=True)
    assert run.returncode == 0, f"gantry {arguments}: {run.stderr}"


def is_classifier(folder):
    return json.loads((folder / "config.json").read_text())["architectures"][0].endswith("ForSequenceClassification")


def class_of(folder):
    return getattr(transformers, json.loads((folder / "config.json").read_text())["architectures"][0])


def make_llama_classifier(folder):
    config = transformers.AutoConfig.from_pretrained(LLAMA, num_labels=3, pad_token_id=0)
    torch.manual_seed(7)
    transformers.LlamaForSequenceClassification(config).save_pretrained(folder)
    return folder


def base_model(folder):
    model = class_of(folder).from_pretrained(folder, dtype=torch.float32)
    model.config._experts_implementation = "eager"  # grouped kernels want widths of whole vectors
    return model.eval()


def logits_of(model, batch):
    with torch.no_grad():
        return model(**batch).logits


def gantrys_logits(scratch, model, batch, adapter=None):
    save_file(batch, scratch / "batch.safetensors")
    gantry("forward", "--model", model, "--batch", scratch / "batch.safetensors", "--output", scratch / "out.safetensors",
           *(["--adapter", adapter] if adapter else []))
    return load_file(scratch / "out.safetensors")["logits"]


def differ(a, b):
    return (a - b).abs().max().item()


def training_data(scratch, base, batch):
    if is_classifier(base):
        labels = load_file(base / "batch.safetensors")["labels"] if (base / "batch.safetensors").exists() else torch.arange(4) % 3
        count = min(len(labels), len(batch["input_ids"]))
        save_file({"input_ids": batch["input_ids"][:count].contiguous(), "labels": labels[:count].contiguous()}, scratch / "samples.safetensors")
        return {"format": "tensors", "path": str(scratch / "samples.safetensors"), "sequence_length": batch["input_ids"].shape[1], "batch_size": 4}
    if base.name == "gemma3_image":  # whose entries have the samples first
        save_file(batch | {"labels": batch["input_ids"].clone()}, scratch / "samples.safetensors")
        return {"format": "tensors", "path": str(scratch / "samples.safetensors"), "sequence_length": batch["input_ids"].shape[1], "batch_size": 4}
    keys = json.loads((base / "config.json").read_text())
    vocabulary = keys.get("text_config", keys)["vocab_size"]
    tokens = scratch / "tokens.bin"
    tokens.write_bytes(b"".join((i * i * 7 % vocabulary).to_bytes(2, "little") for i in range(2000)))
    return {"format": "tokens", "path": str(tokens), "sequence_length": 12, "batch_size": 4}


def trained_by_gantry(scratch, base, keys, parallel, batch):
    """A checkpoint's export: three steps from PEFT's initial values."""
    targets = keys["target_modules"]
    lora = {ours: keys[theirs] for ours, theirs in OURS.items() if theirs in keys}
    if "modules_to_save" in lora:  # to PEFT "norm" would be each module that ends so, and Gantry must write that it is not
        lora["modules_to_save"] = [name.removeprefix("model.") for name in lora["modules_to_save"]]
    lora["target_modules"] = targets if isinstance(targets, str) else targets + keys.get("target_parameters", [])
    (scratch / "train.yaml").write_text(json.dumps({
        "model": {"path": str(base), "config": {"image_encoder": True} if "pixel_values" in batch else {}}, "lora": lora, "parallel": parallel, "optimizer": {"lr": 0.02}, "train": {"steps": 3},
        "data": training_data(scratch, base, batch),
        "checkpoint": {"path": str(scratch / "checkpoints")}, "output": str(scratch / "run")}))
    gantry("train", scratch / "train.yaml")
    gantry("checkpoint", "export", scratch / "checkpoints", scratch / "adapter")
    return scratch / "adapter"


def check_ours_in_peft(scratch, base, keys, parallel, batch):
    adapter = trained_by_gantry(scratch, base, keys, parallel, batch)
    adapted = peft.PeftModel.from_pretrained(base_model(base), adapter).eval()
    difference = differ(logits_of(adapted, batch), gantrys_logits(scratch, base, batch, adapter))
    assert differ(logits_of(adapted, batch), logits_of(base_model(base), batch)) > 100 * MOST_DIFFERENT, "the adapter does nothing"
    adapted.save_pretrained(scratch / "again", save_embedding_layers=False)
    ours, theirs = (load_file(folder / "adapter_model.safetensors") for folder in (adapter, scratch / "again"))
    assert list(ours) == list(theirs), set(ours) ^ set(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    return difference


def check_theirs_in_gantry(scratch, base, keys, batch):
    torch.manual_seed(5)
    model = base_model(base)
    if hasattr(model.config, "vision_config"):  # the same names are in the image encoder, where Gantry has no adapters
        ends = tuple(keys["target_modules"])
        keys = dict(keys, target_modules=[name for name, _ in model.named_modules() if "language_model" in name and name.endswith(ends)])
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="SEQ_CLS" if is_classifier(base) else "CAUSAL_LM", **keys)).eval()
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    adapter = scratch / "theirs"
    adapted.save_pretrained(adapter)
    logits = logits_of(adapted, batch)
    gantry("checkpoint", "merge", adapter, scratch / "merged", "--model", base)
    merged, info = class_of(base).from_pretrained(scratch / "merged", dtype=torch.float32, output_loading_info=True)
    merged.config._experts_implementation = "eager"
    for fault in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info.get(fault), f"{fault}: {info[fault]}"
    return [differ(logits, gantrys_logits(scratch, base, batch, adapter)), differ(logits, logits_of(merged.eval(), batch)),
            differ(logits, gantrys_logits(scratch, scratch / "merged", batch))]


def main():
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    print(f"peft {peft.__version__}, transformers {transformers.__version__}, torch {torch.__version__}")
    for name, (base, keys, parallel) in CASES.items():
        with tempfile.TemporaryDirectory() as scratch:
            scratch = pathlib.Path(scratch)
            inputs = (LLAMA if base == LLAMA_CLASSIFIER else base) / "inputs.safetensors"
            batch = load_file(inputs if inputs.exists() else base / "batch.safetensors")
            batch = {name: batch[name] for name in batch if name == "input_ids" or "pixel_values" in batch and name != "labels"}
            base = make_llama_classifier(scratch / "base") if base == LLAMA_CLASSIFIER else base
            ours = check_ours_in_peft(scratch, base, keys, parallel, batch)
            theirs = check_theirs_in_gantry(scratch, base, keys, batch)
        assert max([ours, *theirs]) <= MOST_DIFFERENT, f"{name}: logits differ by {ours}, {theirs}"
        print(f"{name:16} ours in PEFT {ours:.1e}; PEFT's in Gantry {theirs[0]:.1e}, merged {theirs[1]:.1e} in transformers, "
              f"{theirs[2]:.1e} in Gantry", flush=True)
    print("every adapter goes both ways")


if __name__ == "__main__":
    main()
