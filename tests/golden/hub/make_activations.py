"""Writes activations.json: values and gradients of transformers' activations (ACT2FN) without weights, in float64.

    python tests/golden/hub/make_activations.py
"""
import json
import pathlib

import torch
from transformers.activations import ACT2CLS, ACT2FN

INPUTS = [-11.0, -3.2, -1.1, -0.4, 0.3, 0.9, 2.5, 5.7, 12.0]


def main():
    values, gradients = {}, {}
    for name in sorted(set(ACT2CLS) - {"prelu", "xielu"}):
        inputs = torch.tensor(INPUTS, dtype=torch.float64, requires_grad=True)
        outputs = ACT2FN[name](inputs)
        outputs.sum().backward()
        values[name], gradients[name] = outputs.tolist(), inputs.grad.tolist()
    file = pathlib.Path(__file__).parent / "activations.json"
    file.write_text(json.dumps({"inputs": INPUTS, "values": values, "gradients": gradients}, indent=1) + "\n")


main()
