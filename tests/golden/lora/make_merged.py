#!/usr/bin/env python3
"""Writes dora/merged.safetensors: the base's weights with the DoRA adapter, in float64 and rounded at the end.

    python3 tests/golden/lora/make_merged.py      # with numpy
"""
import json
import os
import struct

import numpy

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dora")
PREFIX = "base_model.model."


def read(name):
    with open(os.path.join(HERE, name), "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        body = file.read()
    header.pop("__metadata__", None)
    return {key: numpy.frombuffer(body[slice(*entry["data_offsets"])], "<f4").reshape(entry["shape"])
            for key, entry in header.items()}


def main():
    base, adapter = read("model.safetensors"), read("adapter/adapter_model.safetensors")
    with open(os.path.join(HERE, "adapter/adapter_config.json")) as file:
        keys = json.load(file)
    scale = keys["lora_alpha"] / keys["r"]
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name, weight in sorted(base.items()):
        layer = PREFIX + name.removesuffix(".weight")
        if layer + ".lora_magnitude_vector" in adapter:
            a, b, magnitude = (adapter[layer + end].astype(numpy.float64)
                               for end in (".lora_A.weight", ".lora_B.weight", ".lora_magnitude_vector"))
            rows = weight.astype(numpy.float64) + scale * b @ a
            weight = rows * (magnitude / numpy.sqrt((rows * rows).sum(1)))[:, None]
        data = weight.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": weight.shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(HERE, "merged.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)


main()
