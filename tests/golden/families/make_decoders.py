"""Makes the folders of CASES: small random decoders with inputs, logits, loss, gradients and greedy tokens.

    python tests/golden/families/make_decoders.py

transformers 5.23.0, torch 2.13.0, one CPU thread. Weights are rounded to float32. Everything is computed in float64 with
eager attention and stored in float32. Gradients have the names and the layout of model.safetensors.
"""
import json
import pathlib
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

VOCABULARY = 83
PROMPT, NEW = 6, 12
NO_TOKENS = {"vocab_size": VOCABULARY, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
SIZES = NO_TOKENS | {"hidden_size": 24, "intermediate_size": 30, "num_hidden_layers": 3, "num_attention_heads": 6,
                     "max_position_embeddings": 64}
SHORT = NO_TOKENS | {"n_embd": 24, "n_layer": 2, "n_head": 6, "n_positions": 64, "attn_pdrop": 0, "embd_pdrop": 0,
                     "resid_pdrop": 0}
CASES = {
    "dots1": ("Dots1", SIZES | {
        "num_key_value_heads": 3, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 1, "n_group": 2,
        "topk_group": 1, "moe_intermediate_size": 9, "first_k_dense_replace": 1, "sliding_window": 4,
        "max_window_layers": 1, "attention_bias": True}),
    "gpt_bigcode": ("GPTBigCode", SHORT | {"n_inner": 40}),
    "gpt_bigcode_heads": ("GPTBigCode", SHORT | {"multi_query": False, "scale_attn_weights": False,
                                                 "tie_word_embeddings": False}),
    "helium": ("Helium", SIZES | {"num_key_value_heads": 2, "head_dim": 4, "attention_bias": True, "mlp_bias": True}),
    "hunyuan_v1_dense": ("HunYuanDenseV1", SIZES | {
        "num_key_value_heads": 3, "head_dim": 6, "attention_bias": True,
        "rope_parameters": {"rope_type": "dynamic", "alpha": 50.0, "factor": 1.0, "rope_theta": 100.0}}),
    "nemotron": ("Nemotron", SIZES | {"num_key_value_heads": 3, "head_dim": 8, "attention_bias": True, "mlp_bias": True}),
    "seed_oss": ("SeedOss", SIZES | {"num_key_value_heads": 3, "head_dim": 6, "attention_out_bias": True, "mlp_bias": True,
                                     "attention_dropout": 0.0, "residual_dropout": 0.0}),
}
HERE = pathlib.Path(__file__).parent


def drawn(value, name, draw):
    """Norms differ from their initial values, and biases from zero, so that every part changes the logits."""
    noise = 0.3 * torch.randn(value.shape, generator=draw, dtype=torch.float64)
    is_norm = "norm" in name or "ln_" in name
    return (0.3 * noise + value if is_norm else noise).float()


def random_model(classes, keys, draw):
    config = getattr(transformers, classes + "Config")(**keys)
    config._attn_implementation = config._experts_implementation = "eager"
    model = getattr(transformers, classes + "ForCausalLM")._from_config(config, dtype=torch.float64).double().eval()
    chosen = [(name, buffer) for name, buffer in model.named_buffers() if name.endswith("e_score_correction_bias")]
    with torch.no_grad():
        for name, value in list(model.named_parameters()) + chosen:
            value.copy_(drawn(value, name, draw))
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
            sequence = torch.cat([sequence, model(input_ids=sequence).logits[:, -1].argmax(-1, keepdim=True)], 1)
        rows.append(sequence[0, PROMPT:].tolist())
    return rows


def make(name, classes, keys, seed):
    draw = torch.Generator().manual_seed(seed)
    model = random_model(classes, keys, draw)
    ids = torch.randint(0, VOCABULARY, (2, 17), generator=draw)
    layers = [name.split(".")[2] for name, _ in model.named_modules() if name.endswith(".mlp.gate")]  # with experts
    made = model(input_ids=ids, labels=ids, **({"output_router_logits": True} if layers else {}))
    made.loss.backward()
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    with torch.no_grad():
        tokens = greedy(model, ids)
        model.float().save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        for parameter in model.parameters():
            parameter.copy_(parameter.grad)
    expected = {f"grad.{key}": value.contiguous() for key, value in saved(model).items()
                if not key.endswith("e_score_correction_bias")}
    expected |= {"logits": made.logits.detach().float().contiguous(), "loss": made.loss.detach().float()}
    for layer, logits in zip(layers, made.router_logits if layers else (), strict=True):
        expected[f"router_logits.{layer}"] = logits.detach().float().contiguous()
    save_file(expected, folder / "expected.safetensors")
    save_file({"input_ids": ids, "labels": ids.clone()}, folder / "inputs.safetensors")
    (folder / "generate.json").write_text(json.dumps({"prompt": ids[:, :PROMPT].tolist(), "tokens": tokens}) + "\n")


def main():
    torch.set_num_threads(1)
    for seed, (name, (classes, keys)) in enumerate(CASES.items()):
        make(name, classes, keys, seed)


main()
