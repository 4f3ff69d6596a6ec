"""Tokens of a Whisper with tokens that are forced, suppressed, and suppressed at the beginning: make_whisper.py FAMILIES OUT.json.

FAMILIES/whisper is the model and its sounds. With Hugging Face transformers 5.23.0 and torch 2.13.0, in float64.
"""
import json
import sys

import torch
from safetensors.torch import load_file
from transformers import WhisperForConditionalGeneration
from transformers.generation import GenerationMixin

folder = sys.argv[1] + "/whisper"
model = WhisperForConditionalGeneration.from_pretrained(folder, attn_implementation="eager").double().eval()
features = load_file(folder + "/inputs.safetensors")["input_features"].double()
CASES = [
    ("greedy", [], dict(max_new_tokens=10)),
    ("forced", [5, 9, 11], dict(max_new_tokens=10, suppress_tokens=[27, 7], begin_suppress_tokens=[5])),
    ("beams", [5], dict(max_new_tokens=8, num_beams=3, num_return_sequences=2, suppress_tokens=[27, 3])),
    ("stopped", [5, 9], dict(max_new_tokens=9, num_beams=2, eos_token_id=[1, 13, 27], begin_suppress_tokens=[27, 13, 5])),
]
cases = []
for name, begin, options in CASES:
    start = torch.tensor([[model.config.decoder_start_token_id, *begin]] * features.shape[0])
    options = dict(options, suppress_tokens=list(options.get("suppress_tokens", [])))
    with torch.no_grad():
        found = GenerationMixin.generate(model, input_features=features, decoder_input_ids=start, do_sample=False,
                                         pad_token_id=0, return_dict_in_generate=True, output_scores=True, **options)
    rows = []
    stops = options.get("eos_token_id", [])
    for row in found.sequences[:, start.shape[1]:].tolist():
        end = next((i + 1 for i, token in enumerate(row) if token in stops), len(row))
        rows.append(row[:end])
    cases.append(dict(name=name, begin=begin, options=options, tokens=rows,
                      scores=found.sequences_scores.tolist() if "num_beams" in options else []))
    print(name, rows)
with open(sys.argv[2], "w", encoding="ascii") as file:
    json.dump(cases, file, indent=1)
    file.write("\n")
