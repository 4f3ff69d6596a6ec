"""Values of transformers for files that store tied tensors with values of their own (tests/models/stored_ties_test.cpp).

The models are those of tests/golden/families and tests/golden. Every case changes the tensors of one of them as the test does, loads the
result with transformers 5.23, and stores the first logits of the last token of the first sample.

    python3 make_goldens.py
"""

import json
import pathlib
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

GOLDEN = pathlib.Path(__file__).parent.parent
VALUES = 6


def folder_of(case):
    folder = GOLDEN / "families" / case
    return folder if folder.exists() else GOLDEN / case


def inputs_of(case):
    folder = folder_of(case)
    inputs = folder / "inputs.safetensors"
    return load_file(inputs if inputs.exists() else folder / "batch.safetensors")


def model_of(folder):
    config = json.loads((folder / "config.json").read_text())
    return getattr(transformers, config["architectures"][0]).from_pretrained(folder, dtype=torch.float32).eval()


def logits_of(case, change, keys):
    tensors = load_file(folder_of(case) / "model.safetensors")
    config = json.loads((folder_of(case) / "config.json").read_text())
    config.update(keys)
    change(tensors)
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "config.json").write_text(json.dumps(config))
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        model = model_of(folder)
        inputs = inputs_of(case)
        if not model.config.is_encoder_decoder:
            inputs.pop("labels", None)
        with torch.no_grad():
            logits = model(**inputs).logits
    return [round(value, 6) for value in logits[0, -1, :VALUES].tolist()]


def turned(tensor, factor):
    """The rows in reverse order, times a factor."""
    return (tensor.flip(0) * factor).contiguous()


def head(name, table):
    def change(tensors):
        tensors[name] = turned(tensors[table], 0.5)

    return change


def bias(name, tied):
    def change(tensors):
        tensors[name] = turned(tensors[tied], 2) + 1

    return change


T5 = {"shared": "shared.weight", "encoder": "encoder.embed_tokens.weight", "decoder": "decoder.embed_tokens.weight",
      "head": "lm_head.weight"}


def tables(**factors):
    """T5 with these tables only; a factor of 0 is the shared table as it was, others turn it."""

    def change(tensors):
        table = tensors.pop("shared.weight")
        for stale in T5.values():
            tensors.pop(stale, None)
        for part, factor in factors.items():
            tensors[T5[part]] = table.clone() if factor == 0 else turned(table, factor)

    return change


CASES = {
    "t5/shared": (tables(shared=0), {}),
    "t5/no_shared": (tables(encoder=0, decoder=0, head=0), {}),
    "t5/decoder_alone": (tables(decoder=0), {}),
    "t5/head_alone": (tables(head=0), {}),
    "t5/other_decoder": (tables(shared=0, decoder=0.5), {}),
    "t5/other_encoder": (tables(shared=0, encoder=0.5), {}),
    "t5/encoder_and_other_decoder": (tables(encoder=0, decoder=0.5), {}),
    "t5/four": (tables(shared=0, encoder=0.5, decoder=0.25, head=2), {}),
    "t5/three": (tables(encoder=0.5, decoder=0.25, head=2), {}),
    "t5/other_head": (tables(shared=0, head=2), {}),
    "t5/flan": (tables(shared=0, head=2), {"tie_word_embeddings": True, "scale_decoder_outputs": False}),
    "t5/untied_without_head": (tables(shared=0), {"tie_word_embeddings": False, "scale_decoder_outputs": False}),
    "t5/untied_with_equal_head": (tables(shared=0, head=0),
                                  {"tie_word_embeddings": False, "scale_decoder_outputs": False}),
    "roberta/bias": (bias("lm_head.decoder.bias", "lm_head.bias"), {}),
    "bert/bias": (bias("cls.predictions.decoder.bias", "cls.predictions.bias"), {}),
}
HEADS = {
    "lm_head.weight": ["bloom", "cohere", "falcon", "gemma", "gemma2", "gemma3_text", "gpt2", "opt", "smollm3",
                       "starcoder2"],
    "cls.predictions.decoder.weight": ["bert"],
    "lm_head.decoder.weight": ["roberta"],
    "proj_out.weight": ["whisper"],
}


def table_of(case):
    names = load_file(folder_of(case) / "model.safetensors")
    for name in names:
        if name.endswith((".word_embeddings.weight", "decoder.embed_tokens.weight", "embed_tokens.weight", "wte.weight")):
            return name
    raise KeyError(case)


def main():
    found = {}
    for name, cases in HEADS.items():
        for case in cases:
            table = table_of(case)
            found[f"{case}/other_head"] = logits_of(case, head(name, table), {"tie_word_embeddings": True})
    for case, (change, keys) in CASES.items():
        found[case] = logits_of(case.split("/")[0], change, keys)
    path = pathlib.Path(__file__).parent / "logits.json"
    path.write_text("{\n" + ",\n".join(f'  "{name}": {json.dumps(found[name])}' for name in sorted(found)) + "\n}\n")


main()
