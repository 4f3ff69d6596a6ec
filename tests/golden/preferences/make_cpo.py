"""Losses and gradients of CPO for the model and the pairs of simpo/.

    python tests/golden/preferences/make_cpo.py

transformers 5.24.0, torch 2.13.0, by the formulas of TRL's CPOTrainer. Everything is computed in float64 and, except
for the loss, stored in float32, in simpo/NAME.safetensors.
"""
import pathlib

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

FOLDER = pathlib.Path(__file__).parent / "simpo"
# name: loss_type, beta, label_smoothing, simpo_gamma, cpo_alpha
CASES = {"cpo": ("sigmoid", 0.3, 0.1, 0, 0.7), "cpo_hinge": ("hinge", 0.3, 0, 0, 1), "cpo_ipo": ("ipo", 0.3, 0, 0, 0),
         "cpo_simpo": ("simpo", 2, 0, 0.7, 0.5)}


def log_probabilities(model, inputs, which):
    """Sums over the completions, numbers of their tokens."""
    ids, mask = inputs[which + "_input_ids"], inputs[which + "_attention_mask"]
    logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1]
    each = -F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
    counted = inputs[which + "_completion_mask"][:, 1:]
    return (each * counted).sum(1), counted.sum(1)


def losses_of(kind, beta, smoothing, gamma, chosen, rejected):
    margin = chosen - rejected
    if kind == "ipo":
        return (margin - 1 / (2 * beta)) ** 2
    if kind == "hinge":
        return torch.relu(1 - beta * margin)
    margin = beta * margin - gamma
    return -(1 - smoothing) * F.logsigmoid(margin) - smoothing * F.logsigmoid(-margin)


def main():
    model = transformers.LlamaForCausalLM.from_pretrained(FOLDER, dtype=torch.float64, attn_implementation="eager")
    inputs = load_file(FOLDER / "inputs.safetensors")
    for name, (kind, beta, smoothing, gamma, alpha) in CASES.items():
        model.zero_grad()
        chosen, chosen_tokens = log_probabilities(model, inputs, "chosen")
        rejected, rejected_tokens = log_probabilities(model, inputs, "rejected")
        entropy = -chosen.sum() / chosen_tokens.sum()
        if kind == "simpo":
            chosen, rejected = chosen / chosen_tokens, rejected / rejected_tokens
        loss = losses_of(kind, beta, smoothing, gamma, chosen, rejected).mean() + alpha * entropy
        loss.backward()
        results = {"grad." + key: value.grad for key, value in model.named_parameters()}
        results |= {"chosen_rewards": beta * chosen, "rejected_rewards": beta * rejected}
        results = {key: value.detach().float().contiguous() for key, value in results.items()}
        save_file(results | {"loss": loss.detach()}, FOLDER / f"{name}.safetensors")
        print(name, loss.item())


if __name__ == "__main__":
    main()
