"""Tokens of a Whisper that detects languages and gives time stamps: make_whisper_speech.py FAMILIES OUT.json.

FAMILIES/whisper is the model and its sounds. With Hugging Face transformers 5.23.0 and torch 2.13.0, in float64. Each
window is decoded once (force_unique_generate_call): what transformers would read again from the last time on is no part.
A case whose tokens change when the weights are disturbed by what float32 rounding may do is refused.
"""
import json
import sys

import torch
from safetensors.torch import load_file
from transformers import GenerationConfig, WhisperForConditionalGeneration

folder = sys.argv[1] + "/whisper"
features = load_file(folder + "/inputs.safetensors")["input_features"].double()
START = 2
TABLES = {
    "decoder_start_token_id": START, "pad_token_id": 0, "eos_token_id": 30, "is_multilingual": True,
    "lang_to_id": {"<|de|>": 6, "<|en|>": 12, "<|fr|>": 31}, "task_to_id": {"transcribe": 36, "translate": 37},
    "no_timestamps_token_id": 39,
}
CASES = [
    ("languages", {"max_new_tokens": 8}),
    ("languages and times", {"max_new_tokens": 14, "return_timestamps": True, "max_initial_timestamp_index": 5}),
    ("a language and times", {"language": "fr", "task": "translate", "max_new_tokens": 14, "return_timestamps": True}),
    ("a language that is open", {"forced_decoder_ids": [[1, None], [2, 37]], "max_new_tokens": 8}),
    ("beams with times", {"max_new_tokens": 10, "num_beams": 3, "return_timestamps": True, "max_initial_timestamp_index": 9,
                          "suppress_tokens": [13, 27], "begin_suppress_tokens": [40]}),
]


def model_in_float64():
    model = WhisperForConditionalGeneration.from_pretrained(folder, attn_implementation="eager").double().eval()
    return model


def run(model, keys):
    model.generation_config = GenerationConfig(**TABLES, **keys)
    with torch.no_grad():
        found = model.generate(input_features=features, return_dict_in_generate=True, force_unique_generate_call=True)
    begins, rows = [], []
    length = 1 + len(begin_of(keys))
    for row in found.sequences.tolist():
        begin, tokens = row[:length], row[length:]
        end = next((i + 1 for i, token in enumerate(tokens) if token == TABLES["eos_token_id"]), len(tokens))
        begins.append(begin)
        rows.append(tokens[:end])
    return begins, rows


def begin_of(keys):
    """As many tokens as stand behind the start token."""
    if "task" in keys:
        begin = ["language", "task"]
    else:
        begin = ["language"] + ["task"] * (len(keys.get("forced_decoder_ids", [0])) - 1)
    return begin + ([] if keys.get("return_timestamps") else ["no times"])


cases = []
for name, keys in CASES:
    model = model_in_float64()
    begins, rows = run(model, dict(keys))
    for seed in range(3):
        torch.manual_seed(seed)
        disturbed = model_in_float64()
        with torch.no_grad():
            for parameter in disturbed.parameters():
                parameter.mul_(1 + 1e-5 * torch.randn_like(parameter))
        assert run(disturbed, dict(keys)) == (begins, rows), name
    cases.append({"name": name, "keys": {**TABLES, **keys}, "begin": begins, "tokens": rows})
    print(name, begins, rows)
with open(sys.argv[2], "w", encoding="ascii") as file:
    file.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
