"""Makes the folders of CASES: small random decoders with inputs, logits, loss, gradients and greedy tokens.

    python tests/golden/families/make_decoders.py [CASE ...]

Cases with recurrent layers also have packed.safetensors, one row of documents that were computed alone, and
states.safetensors, the caches of the first two rows after the prompt. config_hub.json has the keys of published files.

transformers 5.23.0, torch 2.13.0, one CPU thread. Weights are rounded to float32. Everything is computed in float64 with
eager attention and stored in float32. Gradients have the names and the layout of model.safetensors.
"""
import json
import pathlib
import sys
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
    "ernie4_5_moe": ("Ernie4_5_Moe", SIZES | {
        "num_key_value_heads": 2, "moe_num_experts": 6, "moe_k": 2, "moe_num_shared_experts": 2, "moe_intermediate_size": 8,
        "moe_layer_start_index": 1, "output_router_logits": True, "router_aux_loss_coef": 0.02}),
    "recurrent_gemma": ("RecurrentGemma", SIZES | {
        "num_attention_heads": 4, "num_key_value_heads": 1, "lru_width": 32, "attention_window_size": 5,
        "logits_soft_cap": 4.0, "num_hidden_layers": 3}),
    "bamba": ("Bamba", SIZES | {
        "num_attention_heads": 4, "num_key_value_heads": 2, "mamba_n_heads": 6, "mamba_d_head": 8, "mamba_n_groups": 2,
        "mamba_d_state": 5, "mamba_expand": 2, "attn_layer_indices": [1], "attention_bias": True, "mlp_bias": True}),
    "olmo_hybrid": ("OlmoHybrid", SIZES | {
        "num_key_value_heads": 3, "layer_types": ["linear_attention", "linear_attention", "full_attention"],
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 12, "linear_value_head_dim": 6,
        "rope_parameters": None}),
    "apertus": ("Apertus", SIZES | {
        "num_key_value_heads": 3, "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 200.0, "factor": 4.0, "original_max_position_embeddings": 16,
            "low_freq_factor": 1.0, "high_freq_factor": 4.0}}),
}
RECURRENT = ("recurrent_gemma", "bamba", "olmo_hybrid")
DOCUMENTS = (9, 14, 11)
# How config.json of published files differs: the values of older keys, and keys that it does not have.
OLDER = {
    "ernie4_5_moe": ({"rope_theta": 500000.0, "rope_scaling": None, "torch_dtype": "float32"},
                     ("rope_parameters", "dtype")),
    "recurrent_gemma": ({"rope_theta": 10000.0, "partial_rotary_factor": 0.5, "torch_dtype": "float32",
                         "embeddings_scale_by_sqrt_dim": True, "final_w_init_variance_scale": 0.6666666666666666},
                        ("rope_parameters", "dtype", "tie_word_embeddings", "max_position_embeddings")),
    "bamba": ({"rope_theta": 10000.0, "rope_scaling": None, "torch_dtype": "float32", "mamba_d_head": "auto"},
              ("rope_parameters", "dtype", "time_step_limit", "z_loss_coefficient")),
    "olmo_hybrid": ({"torch_dtype": "float32"}, ("dtype", "linear_a_log_min", "linear_dt_min")),
    "apertus": ({"rope_theta": 200.0, "torch_dtype": "float32", "mlp_bias": False, "post_norm": False, "qk_norm": True,
                 "rope_scaling": {"rope_type": "llama3", "factor": 4.0, "original_max_position_embeddings": 16,
                                  "low_freq_factor": 1.0, "high_freq_factor": 4.0}}, ("rope_parameters", "dtype")),
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


def as_published(tensors):
    """transformers 5.24 gives a norm of OLMo hybrid's attention layers the name of one in other layers."""
    attending = {name.split(".self_attn.")[0] for name in tensors if ".self_attn." in name}
    wrong = {layer + ".feedforward_layer_norm.weight": layer + ".post_attention_layernorm.weight" for layer in attending}
    return {wrong.get(name, name): value for name, value in tensors.items()}


def saved(model):
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return as_published(load_file(pathlib.Path(folder) / "model.safetensors"))


def greedy(model, ids):
    rows = []
    for row in ids:
        sequence = row[None, :PROMPT]
        for _ in range(NEW):
            logits = model(input_ids=sequence, use_cache=False).logits
            sequence = torch.cat([sequence, logits[:, -1].argmax(-1, keepdim=True)], 1)
        rows.append(sequence[0, PROMPT:].tolist())
    return rows


def packed_row(model, draw):
    parts = [torch.randint(0, VOCABULARY, (1, length), generator=draw) for length in DOCUMENTS]
    made = [model(input_ids=part, labels=part, use_cache=False) for part in parts]
    counts = torch.tensor([length - 1.0 for length in DOCUMENTS])
    loss = (torch.stack([one.loss for one in made]) * counts).sum() / counts.sum()
    return {"input_ids": torch.cat(parts, 1),
            "document_ids": torch.cat([torch.full((1, length), i) for i, length in enumerate(DOCUMENTS)], 1),
            "position_ids": torch.cat([torch.arange(length)[None] for length in DOCUMENTS], 1),
            "logits": torch.cat([one.logits for one in made], 1).float().contiguous(), "loss": loss.float()}


def cached_states(model, ids):
    cache = getattr(model(input_ids=ids, use_cache=True), "past_key_values", None)
    states = {}
    for number, layer in enumerate(model.model.layers):
        block = getattr(layer, "temporal_block", None)
        held = cache.layers[number] if cache is not None and number < len(cache.layers) else None
        if hasattr(block, "conv1d_state"):
            states[f"{number}.conv_states"] = block.conv1d_state
            states[f"{number}.recurrent_states"] = block.rg_lru.recurrent_states
        elif hasattr(held, "recurrent_states"):
            states[f"{number}.conv_states"] = held.conv_states[0]
            states[f"{number}.recurrent_states"] = held.recurrent_states[0]
    return {key: value.float().contiguous() for key, value in states.items()}


def save_older_keys(name, folder):
    older, newer = OLDER[name]
    keys = {key: value for key, value in json.loads((folder / "config.json").read_text()).items() if key not in newer}
    (folder / "config_hub.json").write_text(json.dumps(dict(sorted((keys | older).items())), indent=2) + "\n")


def make(name, classes, keys, seed):
    draw = torch.Generator().manual_seed(seed)
    model = random_model(classes, keys, draw)
    ids = torch.randint(0, VOCABULARY, (4 if name in RECURRENT else 2, 17), generator=draw)
    layers = [name.split(".")[2] for name, _ in model.named_modules() if name.endswith(".mlp.gate")]  # with experts
    made = model(input_ids=ids, labels=ids, use_cache=False, **({"output_router_logits": True} if layers else {}))
    made.loss.backward()
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    with torch.no_grad():
        tokens = greedy(model, ids)
        if name in RECURRENT:
            save_file(packed_row(model, draw), folder / "packed.safetensors")
            save_file(cached_states(model, ids[:2, :PROMPT]), folder / "states.safetensors")
        model.float().save_pretrained(folder)
        save_file(saved(model), folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "generation_config.json").unlink(missing_ok=True)
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.copy_(parameter.grad)
    expected = {f"grad.{key}": value.contiguous() for key, value in saved(model).items()
                if not key.endswith(("e_score_correction_bias", "act_fn.beta", "act_fn.eps"))}
    expected |= {"logits": made.logits.detach().float().contiguous(), "loss": made.loss.detach().float()}
    if getattr(made, "aux_loss", None) is not None:
        aux = made.aux_loss.detach()
        expected |= {"aux_loss": aux.float(),
                     "ce_loss": (made.loss.detach() - model.config.router_aux_loss_coef * aux).float()}
    for layer, logits in zip(layers, made.router_logits if layers else (), strict=True):
        expected[f"router_logits.{layer}"] = logits.detach().float().contiguous()
    save_file(expected, folder / "expected.safetensors")
    save_file({"input_ids": ids, "labels": ids.clone()}, folder / "inputs.safetensors")
    (folder / "generate.json").write_text(json.dumps({"prompt": ids[:, :PROMPT].tolist(), "tokens": tokens}) + "\n")
    if name in OLDER:
        save_older_keys(name, folder)


def main():
    torch.set_num_threads(1)
    for seed, (name, (classes, keys)) in enumerate(sorted(CASES.items(), key=lambda case: case[0] == "olmo_hybrid")):
        if len(sys.argv) == 1 or name in sys.argv[1:]:
            make(name, classes, keys, seed)


main()
