"""Makes small models with multi-token prediction layers, their inputs, logits, losses and gradients.

    python tests/golden/mtp/make_mtp.py

A multi-token prediction layer is composed of a decoder layer of transformers, whose classes have no such layers: depth k
reads concat(enorm(embedding of token i + k), hnorm(hidden state i of depth k - 1)) through eh_proj, runs the decoder
layer and shared_head.norm, and uses the output layer of the model. Depth 0 is the output of the model's last norm.
"ce_loss" is the mean cross entropy of the next token, "mtp_loss" the mean over the depths of the mean cross entropies
of the tokens k further ahead, and "loss" is ce_loss + FACTOR * mtp_loss.

transformers 5.24.0, torch 2.13.0, one CPU thread. Weights are rounded to float32. Everything is computed in float64 with
eager attention and stored in float32. Gradients have the names and the layout of model.safetensors.
"""
import json
import pathlib
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

FACTOR = 0.3
VOCABULARY = 41
NO_TOKENS = {"vocab_size": VOCABULARY, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
CASES = {
    "deepseek_v3": ("DeepseekV3", 2, NO_TOKENS | {
        "hidden_size": 12, "intermediate_size": 14, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 4, "max_position_embeddings": 64, "q_lora_rank": 6, "kv_lora_rank": 5,
        "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 3, "n_routed_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 5, "n_shared_experts": 1, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1}),
    "glm4_moe": ("Glm4Moe", 1, NO_TOKENS | {
        "hidden_size": 12, "intermediate_size": 14, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 6, "max_position_embeddings": 64, "n_routed_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 5, "n_shared_experts": 1, "first_k_dense_replace": 1,
        "attention_bias": True, "use_qk_norm": True}),
}
HERE = pathlib.Path(__file__).parent


def drawn(value, name, draw):
    """Norms differ from their initial values, and biases from zero, so that every part changes the logits."""
    noise = 0.3 * torch.randn(value.shape, generator=draw, dtype=torch.float64)
    return (0.3 * noise + value if "norm" in name else noise).float()


class Depth(torch.nn.Module):
    """The parts of a multi-token prediction layer around its decoder layer."""

    def __init__(self, norm, hidden):
        super().__init__()
        self.enorm, self.hnorm = norm(hidden), norm(hidden)
        self.eh_proj = torch.nn.Linear(2 * hidden, hidden, bias=False)
        self.shared_head = torch.nn.Module()
        self.shared_head.norm = norm(hidden)


def make_model(classes, depths, keys, draw):
    """A model with the decoder layers of all depths after its own ones, and the other parts of the depths."""
    all_layers = keys | {"num_hidden_layers": keys["num_hidden_layers"] + depths}
    config = getattr(transformers, classes + "Config")(**all_layers)
    config._attn_implementation = config._experts_implementation = "eager"
    model = getattr(transformers, classes + "ForCausalLM")._from_config(config, dtype=torch.float64).double().eval()
    norm = type(model.model.norm)
    further = torch.nn.ModuleList(
        Depth(lambda size: norm(size, eps=config.rms_norm_eps), config.hidden_size) for _ in range(depths)).double()
    chosen = [(name, buffer) for name, buffer in model.named_buffers() if name.endswith("e_score_correction_bias")]
    with torch.no_grad():
        for name, value in list(model.named_parameters()) + chosen + list(further.named_parameters()):
            value.copy_(drawn(value, name, draw))
    return model, further


def run_layer(layer, hidden, rotary):
    tokens = hidden.shape[1]
    mask = torch.full((tokens, tokens), float("-inf"), dtype=hidden.dtype).triu(1)[None, None]
    positions = torch.arange(tokens)[None]
    return layer(hidden, attention_mask=mask, position_ids=positions, position_embeddings=rotary(hidden, positions))


def run(model, further, ids):
    """The hidden states of all depths, each after its norm."""
    decoder, own = model.model, len(model.model.layers) - len(further)
    hidden = decoder.embed_tokens(ids)
    for layer in decoder.layers[:own]:
        hidden = run_layer(layer, hidden, decoder.rotary_emb)
    states = [decoder.norm(hidden)]
    for number, depth in enumerate(further, 1):
        ahead = torch.cat([ids[:, number:], torch.zeros_like(ids[:, :number])], 1)
        both = [depth.enorm(decoder.embed_tokens(ahead)), depth.hnorm(states[-1])]
        made = run_layer(decoder.layers[own + number - 1], depth.eh_proj(torch.cat(both, -1)), decoder.rotary_emb)
        states.append(depth.shared_head.norm(made))
    return states


def loss_ahead(logits, labels, tokens):
    return torch.nn.functional.cross_entropy(logits[:, :-tokens].reshape(-1, VOCABULARY), labels[:, tokens:].reshape(-1),
                                             ignore_index=-100)


def saved(model, further, own):
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tensors = load_file(pathlib.Path(folder) / "model.safetensors")
    for number, depth in enumerate(further):
        layer = f"model.layers.{own + number}."
        tensors |= {layer + name: value.detach().clone() for name, value in depth.named_parameters()}
        # Published files repeat the tensors that all depths share.
        tensors |= {layer + "embed_tokens.weight": tensors["model.embed_tokens.weight"].clone(),
                    layer + "shared_head.head.weight": tensors["lm_head.weight"].clone()}
    return tensors


def make(name, classes, depths, keys, seed):
    draw = torch.Generator().manual_seed(seed)
    model, further = make_model(classes, depths, keys, draw)
    own = keys["num_hidden_layers"]
    ids = torch.randint(0, VOCABULARY, (3, 11), generator=draw)
    labels = ids.masked_fill(torch.rand(ids.shape, generator=draw) < 0.2, -100)
    logits = [model.lm_head(state) for state in run(model, further, ids)]
    loss = loss_ahead(logits[0], labels, 1)
    mtp_loss = torch.stack([loss_ahead(one, labels, depth + 1) for depth, one in enumerate(logits) if depth]).mean()
    (loss + FACTOR * mtp_loss).backward()
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    model.float(), further.float()
    tensors = saved(model, further, own)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads(model.config.to_json_string())
    config |= {"num_hidden_layers": own, "num_nextn_predict_layers": depths, "dtype": "float32"}
    for key in ("num_mtp_layers", "mlp_layer_types", "layer_types"):
        config.pop(key, None)
    (folder / "config.json").write_text(json.dumps(dict(sorted(config.items())), indent=2) + "\n")
    with torch.no_grad():
        for parameter in list(model.parameters()) + list(further.parameters()):
            parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
    expected = {f"grad.{key}": value.contiguous() for key, value in saved(model, further, own).items()
                if not key.endswith("e_score_correction_bias")}
    expected |= {"logits": logits[0].detach().float().contiguous(), "ce_loss": loss.detach().float(),
                 "mtp_loss": mtp_loss.detach().float(), "loss": (loss + FACTOR * mtp_loss).detach().float()}
    for depth, one in enumerate(logits[1:], 1):
        expected[f"mtp_logits.{depth}"] = one.detach().float().contiguous()
    save_file(expected, folder / "expected.safetensors")
    save_file({"input_ids": ids, "labels": labels}, folder / "inputs.safetensors")


def main():
    torch.set_num_threads(1)
    for seed, (name, (classes, depths, keys)) in enumerate(CASES.items()):
        make(name, classes, depths, keys, seed)


main()
