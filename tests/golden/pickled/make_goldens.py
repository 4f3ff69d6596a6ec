"""Files of torch.save and the values of their tensors (tests/checkpoint/pickled_test.cpp).

    python3 make_goldens.py
"""

import collections
import json
import pathlib

import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent


def kinds():
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6) / 8 - 1
    state = collections.OrderedDict()
    state["whole"] = base
    state["shared"] = base
    state["turned"] = base.t()
    state["rows"] = base[1:3]
    state["columns"] = base[:, 2:5]
    state["every_second"] = base.reshape(-1)[3::2]
    state["expanded"] = torch.arange(3, dtype=torch.float32)[None].expand(2, 3)
    state["one"] = base[2, 3]
    state["empty"] = torch.empty(0, 3)
    state["parameter"] = torch.nn.Parameter(base.double().t().contiguous())
    for dtype in (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
        state[str(dtype)[6:]] = base.to(dtype)
    for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64):
        state[str(dtype)[6:]] = torch.tensor([0, 1, 100], dtype=dtype)
    state["bool"] = torch.tensor([True, False, True])
    state._metadata = collections.OrderedDict({"": {"version": 1}, "layer": {"version": 2}})
    return state


def model():
    """A model of two shards, as transformers 4 saved it: the tied head is stored too, in the table's storage."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(5)
    config = LlamaConfig(vocab_size=16, hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2,
                         num_key_value_heads=1, max_position_embeddings=32, tie_word_embeddings=True)
    llama = LlamaForCausalLM(config).eval()
    for parameter in llama.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    folder = HERE / "model"
    folder.mkdir(exist_ok=True)
    state = llama.state_dict()
    names = list(state)
    shards = {"pytorch_model-00001-of-00002.bin": names[:4] + ["lm_head.weight"],
              "pytorch_model-00002-of-00002.bin": [name for name in names[4:] if name != "lm_head.weight"]}
    for file, held in shards.items():
        torch.save(collections.OrderedDict((name, state[name]) for name in held), folder / file)
    weight_map = {name: file for file, held in shards.items() for name in held}
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=1) + "\n")
    llama.config.architectures = ["LlamaForCausalLM"]
    llama.config.save_pretrained(folder)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    with torch.no_grad():
        logits = llama(input_ids=ids).logits
    save_file({"input_ids": ids, "labels": ids.clone()}, folder / "inputs.safetensors")
    save_file({"logits": logits}, folder / "expected.safetensors")


def main():
    model()
    state = kinds()
    torch.save(state, HERE / "kinds.bin")
    save_file({name: tensor.detach().clone().contiguous() for name, tensor in state.items()}, HERE / "kinds.safetensors")
    small = {"a": torch.ones(2)}
    torch.save(small, HERE / "legacy.bin", _use_new_zipfile_serialization=False)
    torch.save({"state_dict": small, "epoch": 3}, HERE / "nested.bin")
    torch.save({"a": torch.ones(2), "epoch": 3}, HERE / "number.bin")
    torch.save(torch.nn.Linear(1, 1), HERE / "module.bin")


main()
