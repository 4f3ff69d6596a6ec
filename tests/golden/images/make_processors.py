"""Images as the processors of models of images and text prepare them, and what such models say about them.

    python tests/golden/images/make_processors.py

Made with Hugging Face transformers 5.24.0 (the processors on Pillow), Pillow 13.0.0 and torch 2.13.0. Each directory of
processors/ has preprocessor_config.json and expected.safetensors with the entries of the images in IMAGES, and those of
models in families/ also tokenizer.json and generate.json: a prompt, its tokens, and the greedy tokens after it. Pillow 13
resamples columns before rows for some sizes, which differs in the last bits of bytes; the sizes here are not among them.
"""
import json
import pathlib

import numpy as np
import torch
import transformers
from PIL import Image
from safetensors.torch import save_file
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

HERE = pathlib.Path(__file__).parent
FAMILIES = HERE.parent / "families"
IMAGES = ["rgb.png", "grey.png", "processors/tall.png", "processors/wide.png"]
OF_CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711],
           "do_resize": True, "do_rescale": True, "do_normalize": True, "rescale_factor": 1 / 255, "resample": 3}
OF_GEMMA = OF_CLIP | {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 2}
CASES = {
    "gemma3": (Gemma3ImageProcessorPil, OF_GEMMA | {
        "image_processor_type": "Gemma3ImageProcessor", "size": {"height": 16, "width": 16}, "do_pan_and_scan": None}),
    "llava": (CLIPImageProcessorPil, OF_CLIP | {
        "image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 15}, "do_center_crop": True,
        "crop_size": {"height": 12, "width": 12}}),
    "mistral3": (PixtralImageProcessorPil, OF_CLIP | {
        "image_processor_type": "PixtralImageProcessor", "size": {"longest_edge": 36}, "do_pad": True}),
    "qwen2_5_vl": (Qwen2VLImageProcessorPil, OF_CLIP | {
        "image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 300, "max_pixels": 700, "patch_size": 4,
        "temporal_patch_size": 2, "merge_size": 2}),
}
WORDS = {f"w{index}": index for index in range(93)}
# Special tokens, the text around an image in the prompt, and the tokens of an image of so many rows and columns.
TEXTS = {
    "gemma3": (["<image_soft_token>", "<unused>", "<start_of_image>", "<end_of_image>"], "<start_of_image>",
               lambda rows, columns: [95] + [93] * 4 + [96]),
    "mistral3": (["[IMG]", "[IMG_BREAK]", "[IMG_END]"], "[IMG]",
                 lambda rows, columns: ([93] * columns + [94]) * (rows - 1) + [93] * columns + [95]),
    "qwen2_5_vl": (["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"],
                   "<|vision_start|><|image_pad|><|vision_end|>",
                   lambda rows, columns: [95] + [93] * (rows * columns) + [96]),
}


def draw(width, height):
    y, x = np.mgrid[0:height, 0:width]
    return Image.fromarray(np.stack([x * 5 + y * 2, x * x + 3 * y, x * y + 7 * x], -1).astype(np.uint8))


def tokenizer(special):
    added = [{"id": 93 + index, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for index, text in enumerate(special)]
    vocabulary = WORDS | {text: 93 + index for index, text in enumerate(special)}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "w0"}}


def squares(name, entries, index):
    if name == "qwen2_5_vl":
        return [side // 2 for side in entries["image_grid_thw"][index, 1:].tolist()]
    return [side // 8 for side in entries["image_sizes"][index].tolist()] if name == "mistral3" else [0, 0]


def describe(name, entries, folder):
    """Of the first and the third image in one prompt."""
    special, mark, tokens_of = TEXTS[name]
    prompt = f"w5 {mark} w17 w40 {mark} w81"
    chosen = [0, 2]
    ids = [5] + tokens_of(*squares(name, entries, 0)) + [17, 40] + tokens_of(*squares(name, entries, 2)) + [81]
    if name == "qwen2_5_vl":
        parts = entries["pixel_values"].split(entries["image_grid_thw"].prod(1).tolist())
        inputs = {"pixel_values": torch.cat([parts[i] for i in chosen]), "image_grid_thw": entries["image_grid_thw"][chosen]}
        inputs["mm_token_type_ids"] = (torch.tensor([ids]) == 93).int()
    else:
        inputs = {key: value[chosen] for key, value in entries.items() if key in ("pixel_values", "image_sizes")}
    if name == "gemma3":
        inputs["token_type_ids"] = (torch.tensor([ids]) == 93).int()
    keys = FAMILIES / f"{name}_image"
    classes = getattr(transformers, json.loads((keys / "config.json").read_text())["architectures"][0])
    model = classes.from_pretrained(keys, dtype=torch.float64, attn_implementation="eager").eval()
    inputs["pixel_values"] = inputs["pixel_values"].double()
    made = model.generate(input_ids=torch.tensor([ids]), max_new_tokens=8, do_sample=False, **inputs)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(special)) + "\n")
    (folder / "generate.json").write_text(json.dumps(
        {"images": [IMAGES[i] for i in chosen], "prompt": prompt, "prompt_tokens": ids,
         "tokens": made[0, len(ids):].tolist()}) + "\n")


def main():
    torch.set_num_threads(1)
    processors = HERE / "processors"
    processors.mkdir(exist_ok=True)
    draw(35, 54).save(processors / "tall.png")
    draw(90, 7).save(processors / "wide.png")
    for name, (classes, keys) in CASES.items():
        folder = processors / name
        folder.mkdir(exist_ok=True)
        (folder / "preprocessor_config.json").write_text(json.dumps(keys, indent=2) + "\n")
        further = {"patch_size": {"height": 8, "width": 8}} if name == "mistral3" else {}
        images = [Image.open(HERE / image).convert("RGB") for image in IMAGES]
        made = classes(**keys)(images, return_tensors="pt", **further)
        entries = {key: value.contiguous() for key, value in made.items() if isinstance(value, torch.Tensor)}
        entries.pop("num_crops", None)
        save_file(entries, folder / "expected.safetensors")
        if name in TEXTS:
            describe(name, entries, folder)


main()
