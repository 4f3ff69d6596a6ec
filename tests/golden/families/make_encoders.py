"""Makes the folders of CASES: small random models with an encoder, or with an encoder and a decoder.

    python tests/golden/families/make_encoders.py [CASE ...]

Inputs, logits, loss, gradients and greedy tokens; transformers 5.24.0, torch 2.13.0, one CPU thread. Weights are
rounded to float32. Everything is computed in float64 with eager attention and stored in float32. config_hub.json has
the keys of published files.
"""
import json
import pathlib
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

VOCABULARY = 97
CASES = {
    "pegasus": ("PegasusForConditionalGeneration", {
        "vocab_size": VOCABULARY, "d_model": 24, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 40, "decoder_ffn_dim": 36, "max_position_embeddings": 32,
        "activation_function": "relu", "dropout": 0.0, "scale_embedding": True, "forced_eos_token_id": None}),
    "electra": ("ElectraForMaskedLM", {
        "vocab_size": VOCABULARY, "embedding_size": 20, "hidden_size": 32, "num_hidden_layers": 3,
        "num_attention_heads": 4, "intermediate_size": 44, "max_position_embeddings": 32, "hidden_act": "relu",
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "classifier_dropout": 0.0,
        "summary_last_dropout": 0.0}),
}
# How config.json of published files differs: the values of older keys, and keys that it does not have.
OLDER = {
    "pegasus": ({"add_bias_logits": False, "add_final_layer_norm": True, "normalize_before": True,
                 "normalize_embedding": False, "static_position_embeddings": True, "extra_pos_embeddings": 1,
                 "classif_dropout": 0.0, "classifier_dropout": 0.0, "num_hidden_layers": 2, "torch_dtype": "float32",
                 "force_bos_token_to_be_generated": False, "gradient_checkpointing": False, "bos_token_id": 0},
                ("dtype", "tie_word_embeddings", "is_decoder")),
    "electra": ({"position_embedding_type": "absolute", "torch_dtype": "float32"},
                ("dtype", "tie_word_embeddings", "is_decoder", "add_cross_attention")),
}
HERE = pathlib.Path(__file__).parent


def random_model(architecture, keys, draw):
    config = getattr(transformers, architecture.split("For")[0] + "Config")(**keys)
    config._attn_implementation = "eager"
    model = getattr(transformers, architecture)(config).double().eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if not value.requires_grad:
                value.copy_(value.float())
                continue
            noise = 0.3 * torch.randn(value.shape, generator=draw, dtype=torch.float64)
            value.copy_((0.3 * noise + value if "norm" in name.lower() else noise).float())
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.copy_((0.3 * torch.randn(1, VOCABULARY, generator=draw, dtype=torch.float64)).float())
    return model


def saved(model):
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(pathlib.Path(folder) / "model.safetensors")


def greedy(model, ids, mask, count=12):
    """The tokens behind the start token, and the smallest distance between the two largest logits."""
    tokens, gap = torch.full((len(ids), 1), model.config.decoder_start_token_id), float("inf")
    for _ in range(count):
        logits = model(input_ids=ids, attention_mask=mask, decoder_input_ids=tokens, use_cache=False).logits[:, -1]
        largest = logits.topk(2, -1).values
        gap = min(gap, (largest[:, 0] - largest[:, 1]).min().item())
        tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], 1)
    return {"prompt": tokens[:, :1].tolist(), "tokens": tokens[:, 1:].tolist(), "smallest_gap": round(gap, 5)}


def with_decoder(model, inputs, draw):
    labels = torch.randint(2, VOCABULARY, (4, 17), generator=draw)
    labels[2, 12:] = -100
    starts = torch.full((len(labels), 1), model.config.decoder_start_token_id)
    shifted = torch.cat([starts, labels[:, :-1]], 1)
    shifted[shifted == -100] = model.config.pad_token_id
    return inputs | {"decoder_input_ids": shifted, "labels": labels}


def inputs_of(model, draw):
    ids = torch.randint(2, VOCABULARY, (4, 24), generator=draw)
    mask = torch.ones_like(ids)
    mask[1, 19:] = mask[3, 10:] = 0
    ids[mask == 0] = model.config.pad_token_id
    inputs = {"input_ids": ids, "attention_mask": mask}
    if model.config.is_encoder_decoder:
        return with_decoder(model, inputs, draw)
    labels = torch.randint(2, VOCABULARY, ids.shape, generator=draw)
    labels[torch.rand(ids.shape, generator=draw) < 0.6] = -100
    return inputs | {"labels": labels.masked_fill(mask == 0, -100)}


def make(name, architecture, keys, seed):
    draw = torch.Generator().manual_seed(seed)
    model = random_model(architecture, keys, draw)
    inputs = inputs_of(model, draw)
    made = model(**inputs)
    made.loss.backward()
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    with torch.no_grad():
        if model.config.is_encoder_decoder:
            tokens = greedy(model, inputs["input_ids"], inputs["attention_mask"])
            (folder / "generate.json").write_text(json.dumps(tokens) + "\n")
        model.float().save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        trained = {key for key, value in model.named_parameters() if value.grad is not None}
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.copy_(parameter.grad)
    expected = {f"grad.{key}": value.contiguous() for key, value in saved(model).items() if key in trained}
    expected |= {"logits": made.logits.detach().float().contiguous(), "loss": made.loss.detach().float()}
    save_file(expected, folder / "expected.safetensors")
    save_file(inputs, folder / "inputs.safetensors")
    older, newer = OLDER[name]
    config = {key: value for key, value in json.loads((folder / "config.json").read_text()).items() if key not in newer}
    (folder / "config_hub.json").write_text(json.dumps(dict(sorted((config | older).items())), indent=2) + "\n")


def main():
    torch.set_num_threads(1)
    for seed, (name, (architecture, keys)) in enumerate(CASES.items()):
        if len(sys.argv) == 1 or name in sys.argv[1:]:
            make(name, architecture, keys, seed)


main()
