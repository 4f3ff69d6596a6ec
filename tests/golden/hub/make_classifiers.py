"""Makes classifiers.safetensors: a head for three labels on each decoder of cases.json, by transformers.

    python tests/golden/hub/make_classifiers.py

transformers 5.23.0, torch 2.13.0, one CPU thread. The bodies are those of tensors.safetensors. Texts are padded on the
right, with the padding token of cases.json or, without one, with token 0. Logits are computed in float64 with eager
attention, one text at a time if the model has no padding token, and stored in float32.
"""
import json
import pathlib
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).parent
LENGTHS = (9, 5, 7)
CLASSES = {"gemma3_text": "Gemma3TextForSequenceClassification"}
MODEL_TYPES = {"kimi_k2": "deepseek_v3"}  # transformers has no such model_type, and this one's code


def class_of(keys):
    named = keys["architectures"][0]
    for ending in ("ForCausalLM", "LMHeadModel"):
        if named.endswith(ending):
            name = CLASSES.get(keys["model_type"], named[:-len(ending)] + "ForSequenceClassification")
            return name if hasattr(transformers, name) else None
    return None


def case_of(name, keys, architecture, bodies, draw):
    asked = keys | {"architectures": [architecture], "id2label": {"0": "a", "1": "b", "2": "c"},
                    "label2id": {"a": 0, "b": 1, "c": 2},
                    "model_type": MODEL_TYPES.get(keys["model_type"], keys["model_type"])}
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(asked))
        prefix = f"{name}/weights/"
        weights = {key[len(prefix):]: value for key, value in bodies.items() if key.startswith(prefix)}
        columns = asked.get("word_embed_proj_dim") or next(iter(weights[key].shape[1] for key in weights
                                                                if key.endswith(("embed_tokens.weight", "wte.weight",
                                                                                 "embed_in.weight", "word_embeddings.weight"))))
        weights["score.weight"] = torch.randn(3, columns, generator=draw).to(torch.bfloat16)
        save_file(weights, pathlib.Path(folder) / "model.safetensors", metadata={"format": "pt"})
        config = transformers.AutoConfig.from_pretrained(folder)
        config._attn_implementation = config._experts_implementation = "eager"
        if getattr(config, "reorder_and_upcast_attn", False):
            config.reorder_and_upcast_attn = False
        model = getattr(transformers, architecture).from_pretrained(folder, config=config, dtype=torch.float64).eval()
    padding = config.pad_token_id
    ids = torch.randint(8, 24, (len(LENGTHS), LENGTHS[0]), generator=draw)
    mask = torch.zeros_like(ids)
    for row, length in enumerate(LENGTHS):
        mask[row, :length] = 1
        ids[row, length:] = padding or 0
    with torch.no_grad():
        if padding is not None:
            logits = model(input_ids=ids, attention_mask=mask).logits
        else:
            logits = torch.cat([model(input_ids=ids[row:row + 1, :length]).logits for row, length in enumerate(LENGTHS)])
    kept = {"weights/score.weight": weights["score.weight"], "inputs/input_ids": ids.to(torch.int32),
            "inputs/attention_mask": mask.to(torch.int32), "inputs/labels": torch.tensor([0, 1, 2], dtype=torch.int32),
            "expected/logits": logits.float()}
    return {f"{name}/{architecture}/{key}": value.contiguous() for key, value in kept.items()}


def main():
    torch.set_num_threads(1)
    bodies = load_file(HERE / "tensors.safetensors")
    draw = torch.Generator().manual_seed(47)
    tensors = {}
    for name, keys in json.loads((HERE / "cases.json").read_text()).items():
        if (architecture := class_of(keys)):
            tensors |= case_of(name, keys, architecture, bodies, draw)
    save_file(tensors, HERE / "classifiers.safetensors")
    print(sorted({key.split("/")[1] for key in tensors}))


main()
