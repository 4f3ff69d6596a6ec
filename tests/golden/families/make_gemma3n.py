"""Makes gemma3n_text and gemma3n_mm: small random text models of Gemma 3n, whose last two layers use keys of others.

    python tests/golden/families/make_gemma3n.py

Inputs, logits, loss, gradients and greedy tokens. gemma3n_mm has the names and the keys of a model that also reads
images and sounds: tensors of these parts are random numbers, and the keys that its last layers do not use are in the
files, as in published ones. config_hub.json has the keys of published files.

transformers 5.24.0, torch 2.13.0, one CPU thread. Weights are rounded to float32. Everything is computed in float64 with
eager attention and stored in float32.
"""
import json
import pathlib
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

PROMPT, NEW = 6, 12
KINDS = ["sliding_attention", "full_attention"] * 3
TEXT = {
    "vocab_size": 67, "vocab_size_per_layer_input": 61, "hidden_size": 32, "hidden_size_per_layer_input": 6,
    "intermediate_size": [40, 36, 40, 44, 40, 48], "num_hidden_layers": 6, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": None,
    "eos_token_id": None, "sliding_window": 5, "layer_types": KINDS, "num_kv_shared_layers": 2, "laurel_rank": 4,
    "altup_num_inputs": 3, "altup_active_idx": 1, "altup_correct_scale": True, "final_logit_softcapping": 8.0,
    "activation_sparsity_pattern": [0.6, 0.3, 0.0, 0.0, 0.5, 0.0],
    "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 300.0},
                        "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}}
CASES = {"gemma3n_text": TEXT,
         "gemma3n_mm": TEXT | {"intermediate_size": 40, "altup_num_inputs": 4, "altup_active_idx": 0,
                               "altup_correct_scale": False, "layer_types": KINDS[:4] + ["full_attention"] * 2}}
OTHER_PARTS = {"vision_tower.timm_model.conv_stem.conv.weight": (4, 3, 3, 3),
               "audio_tower.conformer.0.norm.weight": (12,), "embed_vision.embedding.weight": (3, 8),
               "embed_vision.embedding_projection.weight": (32, 8), "embed_audio.embedding.weight": (3, 12)}
HERE = pathlib.Path(__file__).parent


def random_model(keys, draw):
    config = transformers.Gemma3nTextConfig(**keys)
    config._attn_implementation = "eager"
    model = transformers.Gemma3nForCausalLM._from_config(config, dtype=torch.float64).double().eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            noise = 0.3 * torch.randn(value.shape, generator=draw, dtype=torch.float64)
            value.copy_((0.3 * noise + value if "norm" in name else noise).float())
    return model


def saved(model):
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(pathlib.Path(folder) / "model.safetensors")


def greedy(model, ids):
    rows = []
    for row in ids:
        sequence = row[None, :PROMPT]
        for _ in range(NEW):
            logits = model(input_ids=sequence, use_cache=False).logits
            sequence = torch.cat([sequence, logits[:, -1].argmax(-1, keepdim=True)], 1)
        rows.append(sequence[0, PROMPT:].tolist())
    return rows


def named(name, is_part):
    return name.replace("model.", "model.language_model.", 1) if is_part else name


def tensors_of_other_parts(draw):
    """Parts that a text model does not load, and keys of layers that use those of other layers."""
    tensors = {"model." + name: torch.randn(shape, generator=draw) for name, shape in OTHER_PARTS.items()}
    for layer in (4, 5):
        at = f"model.language_model.layers.{layer}.self_attn."
        for name, shape in {"k_proj": (16, 32), "v_proj": (16, 32), "k_norm": (8,)}.items():
            tensors[f"{at}{name}.weight"] = torch.randn(shape, generator=draw)
    return tensors


def full_config(text):
    """The keys of the full model: those of the parts that have no text are not all there."""
    offset = text["vocab_size_per_layer_input"]
    vision = {"model_type": "gemma3n_vision", "architecture": "mobilenetv5_300m_enc", "hidden_size": 8, "vocab_size": 3,
              "vocab_offset": offset, "rms_norm_eps": 1e-6, "initializer_range": 0.02, "do_pooling": False}
    audio = {"model_type": "gemma3n_audio", "hidden_size": 12, "vocab_size": 3, "vocab_offset": offset + 3,
             "conf_num_hidden_layers": 1, "rms_norm_eps": 1e-6}
    return {"architectures": ["Gemma3nForConditionalGeneration"], "model_type": "gemma3n", "dtype": "float32",
            "audio_soft_tokens_per_image": 4, "vision_soft_tokens_per_image": 4, "audio_token_id": offset + 4,
            "image_token_id": offset + 1, "boi_token_id": 5, "eoi_token_id": offset, "boa_token_id": 6,
            "eoa_token_id": offset + 3, "initializer_range": 0.02, "tie_word_embeddings": True, "text_config": text,
            "vision_config": vision, "audio_config": audio}


def published(config):
    """The keys of files before transformers 5."""
    full = full_config({key: value for key, value in config.items() if key not in ("architectures", "dtype")})
    text = full["text_config"]
    rotary = text.pop("rope_parameters")
    text |= {"rope_theta": rotary["full_attention"]["rope_theta"], "rope_scaling": None, "torch_dtype": "float32",
             "rope_local_base_freq": rotary["sliding_attention"]["rope_theta"], "altup_lr_multiplier": 1.0,
             "query_pre_attn_scalar": 256}
    del text["tie_word_embeddings"], full["tie_word_embeddings"]
    full["torch_dtype"] = full.pop("dtype")
    return full


def save_json(path, content):
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def make(name, keys, seed):
    draw = torch.Generator().manual_seed(seed)
    model = random_model(keys, draw)
    is_part = name == "gemma3n_mm"
    ids = torch.randint(0, 61 if is_part else 67, (3, 17), generator=draw)
    made = model(input_ids=ids, labels=ids, use_cache=False)
    made.loss.backward()
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    with torch.no_grad():
        tokens = greedy(model, ids)
        assert not is_part or max(map(max, tokens)) < keys["vocab_size_per_layer_input"], "a token of an image"
        weights = {named(key, is_part): value for key, value in saved(model.float()).items()}
        for parameter in model.parameters():
            parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
    expected = {f"grad.{named(key, is_part)}": value.contiguous() for key, value in saved(model).items()}
    expected |= {"logits": made.logits.detach().float().contiguous(), "loss": made.loss.detach().float()}
    config = json.loads(model.config.to_json_string())
    config |= {"architectures": ["Gemma3nForCausalLM"], "dtype": "float32"}
    if is_part:
        weights |= tensors_of_other_parts(draw)
        save_json(folder / "config_hub.json", published(config))
        config = full_config({key: value for key, value in config.items() if key != "architectures"})
    save_json(folder / "config.json", config)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    save_file(expected, folder / "expected.safetensors")
    save_file({"input_ids": ids, "labels": ids.clone()}, folder / "inputs.safetensors")
    (folder / "generate.json").write_text(json.dumps({"prompt": ids[:, :PROMPT].tolist(), "tokens": tokens}) + "\n")


def main():
    torch.set_num_threads(1)
    for seed, (name, keys) in enumerate(CASES.items()):
        make(name, keys, seed)


main()
