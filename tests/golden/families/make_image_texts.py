"""Makes the folder mistral3_image: a small random Mistral 3 with its image encoder, images of unequal sizes and texts.

    python tests/golden/families/make_image_texts.py

transformers 5.24.0, torch 2.13.0, one CPU thread. Weights are rounded to float32. Everything is computed in float64 with
eager attention and stored in float32. config_hub.json has the keys of published files. make_image_tokens.py adds
generate.json.
"""
import json
import pathlib
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

IMAGE, BREAK, END = 93, 94, 95
TOKENS = 21
NO_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
TEXT = {"model_type": "mistral", "vocab_size": 97, "hidden_size": 24, "intermediate_size": 36, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 6, "max_position_embeddings": 64,
        "sliding_window": None, "rope_parameters": {"rope_type": "default", "rope_theta": 2000.0}} | NO_TOKENS
VISION = {"model_type": "pixtral", "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2,
          "num_attention_heads": 3, "image_size": 32, "patch_size": 4, "hidden_act": "silu",
          "rope_parameters": {"rope_type": "axial", "rope_theta": 100.0}}
KEYS = {"text_config": TEXT, "vision_config": VISION, "image_token_index": IMAGE, "projector_hidden_act": "gelu",
        "multimodal_projector_bias": False, "spatial_merge_size": 2, "vision_feature_layer": -1,
        "tie_word_embeddings": False}
# Height and width in tokens of the images of each sample; the images of a sample share its tokens with text.
GRIDS = [[(2, 3)], [(1, 2), (3, 1)], [], [(2, 2)]]
SQUARE = 8  # pixels of a token
FOLDER = pathlib.Path(__file__).parent / "mistral3_image"


def random_model(draw):
    config = transformers.Mistral3Config(**KEYS)
    config._attn_implementation = "eager"
    for part in (config.text_config, config.vision_config):
        part._attn_implementation = "eager"
    model = transformers.Mistral3ForConditionalGeneration._from_config(config, dtype=torch.float64).double().eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            noise = 0.3 * torch.randn(value.shape, generator=draw, dtype=torch.float64)
            is_norm = "norm" in name or "ln_pre" in name
            value.copy_((0.3 * noise + 1 if is_norm else noise).float())
    return model


def tokens_of(grids, draw):
    row = torch.randint(0, IMAGE, (TOKENS,), generator=draw)
    place = 1
    for height, width in grids:
        for line in range(height):
            row[place:place + width] = IMAGE
            row[place + width] = END if line == height - 1 else BREAK
            place += width + 1
        place += 1
    return row


def images(draw):
    sizes = [(SQUARE * height, SQUARE * width) for grids in GRIDS for height, width in grids]
    pixels = torch.zeros(len(sizes), 3, max(h for h, _ in sizes), max(w for _, w in sizes))
    for image, (height, width) in zip(pixels, sizes, strict=True):
        image[:, :height, :width] = torch.randn(3, height, width, generator=draw)
    return pixels, torch.tensor(sizes)


def saved(model):
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(pathlib.Path(folder) / "model.safetensors")


def save_published_keys():
    keys = json.loads((FOLDER / "config.json").read_text())
    keys = {key: value for key, value in keys.items() if key != "dtype"}
    for part, theta in (("text_config", 2000.0), ("vision_config", 100.0)):
        keys[part] = {key: value for key, value in keys[part].items() if key not in ("rope_parameters", "dtype")}
        keys[part]["rope_theta"] = theta
    keys["torch_dtype"] = "float32"
    keys["transformers_version"] = "4.57.1"
    (FOLDER / "config_hub.json").write_text(json.dumps(keys, indent=2, sort_keys=True) + "\n")


def main():
    torch.set_num_threads(1)
    draw = torch.Generator().manual_seed(3)
    model = random_model(draw)
    ids = torch.stack([tokens_of(grids, draw) for grids in GRIDS])
    pixels, sizes = images(draw)
    inputs = {"input_ids": ids, "labels": ids.clone(), "pixel_values": pixels, "image_sizes": sizes}
    made = model(**(inputs | {"pixel_values": pixels.double()}), use_cache=False)
    made.loss.backward()
    FOLDER.mkdir(exist_ok=True)
    with torch.no_grad():
        for part in (model.config.text_config, model.config.vision_config):
            part.dtype = torch.float32
        model.float().save_pretrained(FOLDER)
        (FOLDER / "generation_config.json").unlink(missing_ok=True)
        for parameter in model.parameters():
            parameter.copy_(parameter.grad)
    expected = {f"grad.{key}": value.contiguous() for key, value in saved(model).items()}
    expected |= {"logits": made.logits.detach().float().contiguous(), "loss": made.loss.detach().float()}
    save_file(expected, FOLDER / "expected.safetensors")
    save_file(inputs, FOLDER / "inputs.safetensors")
    save_published_keys()


main()
