#!/usr/bin/env python3
"""Writes the cases `experts`, `turned_experts` and `tied_tables`: adapters of embeddings, routers and stacked experts;
and `tied_tokens` and `own_tokens`: rows of the embedding that are trained next to adapters.

    python3 tests/golden/lora/make_goldens.py      # with peft 0.21.2, transformers 5.23 and torch 2.13
"""
import json
import os

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import (GPT2Config, GPT2LMHeadModel, GemmaConfig, GemmaForCausalLM, GptOssConfig, GptOssForCausalLM,
                          MixtralConfig, MixtralForCausalLM)

HERE = os.path.dirname(os.path.abspath(__file__))
SMALL = dict(vocab_size=61, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64, intermediate_size=11, num_local_experts=5, num_experts_per_tok=2,
             bos_token_id=None, eos_token_id=None, pad_token_id=None)
STACKS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]


def mixtral():
    return MixtralForCausalLM(MixtralConfig(**SMALL, tie_word_embeddings=False)), dict(
        r=3, lora_alpha=5, target_modules=["q_proj", "embed_tokens"], target_parameters=["mlp.gate.weight"] + STACKS,
        rank_pattern={"layers.1.mlp.experts.down_proj": 2})


def gpt_oss():
    config = GptOssConfig(**SMALL, head_dim=4, sliding_window=8, rope_parameters={"rope_type": "default",
                                                                                  "rope_theta": 2000.0})
    return GptOssForCausalLM(config), dict(r=2, lora_alpha=6, target_modules=["v_proj"], target_parameters=STACKS[1:],
                                           use_rslora=True)


def gpt2():
    config = GPT2Config(vocab_size=61, n_embd=16, n_layer=2, n_head=4, n_positions=64, bos_token_id=None,
                        eos_token_id=None, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    return GPT2LMHeadModel(config), dict(r=3, lora_alpha=7, target_modules=["wte", "wpe", "c_attn"],
                                         fan_in_fan_out=True)


def gemma():
    config = GemmaConfig(**{key: SMALL[key] for key in SMALL if "experts" not in key}, head_dim=4)
    config.pad_token_id = 5  # one of the tokens: its look-ups give no gradient
    return GemmaForCausalLM(config), dict(r=2, lora_alpha=3, target_modules=["q_proj"],
                                          trainable_token_indices=[60, 5, 17, 30])


def mixtral_tokens():
    model, keys = mixtral()
    return model, dict(r=2, lora_alpha=3, target_modules=["v_proj"], trainable_token_indices=[2, 59])


def write(name, make, seed):
    torch.manual_seed(seed)
    model, keys = make()
    model.config._experts_implementation = "eager"  # grouped kernels want widths of whole vectors
    model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.2)
    folder = os.path.join(HERE, name)
    model.save_pretrained(folder)
    ids = torch.randint(0, 61, (4, 12))
    labels = ids.clone()
    labels[0, :4] = -100
    save_file({"input_ids": ids, "labels": labels}, folder + "/inputs.safetensors")
    adapted = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **keys))
    adapted.eval()
    with torch.no_grad():
        for parameter_name, parameter in adapted.named_parameters():
            if "lora_" in parameter_name or "trainable_tokens" in parameter_name:
                parameter.copy_(torch.randn_like(parameter) * 0.3)
    out = adapted(input_ids=ids, labels=labels)
    out.loss.backward()
    expected = {"logits": out.logits.detach(), "loss": out.loss.detach()}
    for parameter_name, parameter in adapted.named_parameters():
        if parameter.grad is not None:
            expected["grad." + parameter_name.replace(".default", "")] = parameter.grad
    save_file({key: value.contiguous() for key, value in expected.items()}, folder + "/expected.safetensors")
    adapted.save_pretrained(folder + "/adapter")
    os.remove(folder + "/adapter/README.md")
    path = folder + "/adapter/adapter_config.json"
    with open(path) as file:
        config = json.load(file)
    config["base_model_name_or_path"] = None
    for key in ("target_modules", "target_parameters"):
        config[key] = sorted(config[key]) if config[key] else None
    with open(path, "w") as file:
        json.dump(config, file, indent=2)


if __name__ == "__main__":
    for number, (name, make) in enumerate({"experts": mixtral, "turned_experts": gpt_oss, "tied_tables": gpt2,
                                           "tied_tokens": gemma, "own_tokens": mixtral_tokens}.items()):
        write(name, make, 11 + number)
