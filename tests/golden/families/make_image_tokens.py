"""Writes generate.json of the models with image encoders: prompts with images, and the greedy tokens after them.

    python tests/golden/families/make_image_tokens.py

transformers 5.24.0, torch 2.13.0, one CPU thread, in float64 with eager attention. The prompts are the beginnings of the
texts in inputs.safetensors, of different lengths, with all of their images.
"""
import json
import pathlib

import torch
import transformers
from safetensors.torch import load_file

NEW, SHORTEST = 12, 12
HERE = pathlib.Path(__file__).parent


def images_of(inputs, tokens):
    """The entries of the images of each sample, whose numbers of image tokens are given."""
    if "image_grid_thw" in inputs:
        patches = inputs["image_grid_thw"].prod(1)
        parts = inputs["pixel_values"].split(patches.tolist())
        return [{"pixel_values": part, "image_grid_thw": grid[None]}
                for part, grid in zip(parts, inputs["image_grid_thw"], strict=True)]
    if "image_sizes" not in inputs:
        return [{"pixel_values": image[None]} for image in inputs["pixel_values"]]
    entries, first = [], 0
    for count in tokens:
        end = first
        while count > 0:
            count -= inputs["image_sizes"][end].prod().item() // 64
            end += 1
        entries.append({name: inputs[name][first:end] for name in ("pixel_values", "image_sizes")} if end > first else {})
        first = end
    return entries


def make(folder):
    inputs = load_file(folder / "inputs.safetensors")
    inputs["pixel_values"] = inputs["pixel_values"].double()
    keys = json.loads((folder / "config.json").read_text())
    classes = getattr(transformers, keys["architectures"][0])
    model = classes.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    token = keys.get("image_token_id", keys.get("image_token_index"))
    images = images_of(inputs, (inputs["input_ids"] == token).sum(1).tolist())
    prompts, tokens = [], []
    for row, entries in enumerate(images):
        length = SHORTEST + row
        of_tokens = {name: inputs[name][row:row + 1, :length] for name in ("token_type_ids", "mm_token_type_ids")
                     if name in inputs}
        prompt = inputs["input_ids"][row:row + 1, :length]
        made = model.generate(input_ids=prompt, max_new_tokens=NEW, do_sample=False, **entries, **of_tokens)
        prompts.append(prompt[0].tolist())
        tokens.append(made[0, length:].tolist())
    (folder / "generate.json").write_text(json.dumps({"prompt": prompts, "tokens": tokens}) + "\n")


def main():
    torch.set_num_threads(1)
    for name in ("gemma3_image", "mistral3_image", "qwen2_5_vl_image"):
        make(HERE / name)


main()
