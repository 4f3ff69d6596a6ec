#!/usr/bin/env python3
"""Writes adapters of a tied model that train its tables in full, and PEFT's logits (tests/fine_tuning/merge_test.cpp).

    python3 tests/golden/lora/make_saved_tables.py      # with peft 0.21.2, transformers 5.23 and torch 2.13
"""
import json
import pathlib

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent
BASE = HERE.parent / "families/gemma"


def write(name, saved, seed):
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32).eval()
    lora = LoraConfig(task_type="CAUSAL_LM", r=2, lora_alpha=3, target_modules=["q_proj"], modules_to_save=saved)
    adapted = get_peft_model(model, lora).eval()
    with torch.no_grad():
        for parameter_name, parameter in adapted.named_parameters():
            if "lora_" in parameter_name:
                parameter.copy_(torch.randn_like(parameter) * 0.3)
            if "modules_to_save" in parameter_name:
                parameter.add_(torch.randn_like(parameter) * 0.3)
        logits = adapted(input_ids=load_file(BASE / "inputs.safetensors")["input_ids"]).logits
    folder = HERE / "saved_tables" / name
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = ""
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")
    return [round(value, 6) for value in logits[0, -1, :6].tolist()]


found = {name: write(name, saved, seed) for seed, (name, saved) in enumerate(
    {"embed_tokens": ["embed_tokens"], "lm_head": ["lm_head"], "both": ["embed_tokens", "lm_head"]}.items())}
(HERE / "saved_tables/logits.json").write_text(
    "{\n" + ",\n".join(f'  "{name}": {json.dumps(values)}' for name, values in found.items()) + "\n}\n")
