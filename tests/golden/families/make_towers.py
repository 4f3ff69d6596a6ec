"""Makes the folders of CASES: small random models that read images and text, for their text decoders.

    python tests/golden/families/make_towers.py [CASE ...]

Inputs are tokens with three rows of positions. Logits, loss, and gradients of the decoder; transformers 5.24.0, torch
2.13.0, one CPU thread. Weights are rounded to float32. Everything is computed in float64 with eager attention and
stored in float32. config_hub.json has the keys of published files.
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
    "glm4v": ("Glm4v", {
        "image_token_id": 93, "video_token_id": 94, "image_start_token_id": 95, "image_end_token_id": 96,
        "video_start_token_id": 91, "video_end_token_id": 92,
        "text_config": {
            "vocab_size": VOCABULARY, "hidden_size": 36, "intermediate_size": 40, "num_hidden_layers": 3,
            "num_attention_heads": 3, "num_key_value_heads": 1, "max_position_embeddings": 128,
            "rope_parameters": {"rope_type": "default", "rope_theta": 2000.0, "partial_rotary_factor": 0.5,
                                "mrope_section": [1, 1, 1]}},
        "vision_config": {"depth": 1, "hidden_size": 12, "num_heads": 2, "patch_size": 4, "image_size": 16,
                          "out_hidden_size": 36, "intermediate_size": 16, "spatial_merge_size": 2}}),
}
HERE = pathlib.Path(__file__).parent


def random_model(classes, keys, draw):
    config = getattr(transformers, classes + "Config")(**keys)
    config._attn_implementation = "eager"
    model = getattr(transformers, classes + "ForConditionalGeneration")(config).double().eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            noise = 0.3 * torch.randn(value.shape, generator=draw, dtype=torch.float64)
            value.copy_((0.3 * noise + value if "norm" in name else noise).float())
    return model


def three_rows(rows, tokens, draw):
    """Positions of a text with an image of 2 x 3 features in the middle."""
    time = torch.arange(tokens).repeat(rows, 1)
    positions = torch.stack([time, time, time])
    start = int(torch.randint(3, 9, (1,), generator=draw))
    for feature in range(6):
        positions[:, :, start + feature] = torch.tensor([start, start + feature // 3, start + feature % 3])[:, None]
    positions[:, :, start + 6:] = torch.arange(start + 3, start + 3 + tokens - start - 6)
    return positions


def saved(model):
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(pathlib.Path(folder) / "model.safetensors")


def older_keys(config):
    """The keys of files before transformers 5."""
    text = config["text_config"]
    rotary = dict(text.pop("rope_parameters"))
    text |= {"rope_theta": rotary.pop("rope_theta"), "partial_rotary_factor": rotary.pop("partial_rotary_factor"),
             "rope_scaling": rotary, "attention_bias": True}
    config["torch_dtype"] = config.pop("dtype", "float32")
    return config


def make(name, classes, keys, seed):
    draw = torch.Generator().manual_seed(seed)
    model = random_model(classes, keys, draw)
    ids = torch.randint(0, 90, (4, 24), generator=draw)
    inputs = {"input_ids": ids, "labels": ids.clone(), "position_ids": three_rows(4, 24, draw)}
    made = model(**inputs, use_cache=False)
    made.loss.backward()
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    with torch.no_grad():
        model.float().save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.copy_(parameter.grad)
    expected = {f"grad.{key}": value.contiguous() for key, value in saved(model).items() if ".visual." not in key}
    expected |= {"logits": made.logits.detach().float().contiguous(), "loss": made.loss.detach().float()}
    save_file(expected, folder / "expected.safetensors")
    save_file(inputs, folder / "inputs.safetensors")
    config = older_keys(json.loads((folder / "config.json").read_text()))
    (folder / "config_hub.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def main():
    torch.set_num_threads(1)
    for seed, (name, (classes, keys)) in enumerate(CASES.items()):
        if len(sys.argv) == 1 or name in sys.argv[1:]:
            make(name, classes, keys, seed)


main()
