"""Makes a small BERT that scores pairs of texts, its batch, logits and losses.

    python tests/golden/cross_encoder/make_cross_encoder.py

transformers 5.24.0, torch 2.13.0; the vocabulary is ../word_piece/vocab.txt. lines.jsonl has the pairs; longer ones are
truncated by longest_first. Everything is computed in float64 and stored in float32. "regression" is the mean squared
error that transformers computes for one label, and "multi_label_classification" the binary cross entropy.
"""
import json
import pathlib

import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
PAIRS = [("hello dogs", "the cat", 1), ("the cat and the dogs", "hello hello the dogs and the cat", 0),
         ("hello", "hello the dogs and the cat dogs and dogs", 1), ("dogs", "cat", 0)]
KEYS = {"vocab_size": 642, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12,
        "max_position_embeddings": 16, "num_labels": 1, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def random_model(draw):
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**KEYS)).double().eval()
    with torch.no_grad():
        for value in model.parameters():
            value.copy_((1.5 * torch.randn(value.shape, generator=draw, dtype=torch.float64)).float())
    return model


def main():
    model = random_model(torch.Generator().manual_seed(7))
    model.float().save_pretrained(HERE)
    model.double()
    tokenizer = transformers.BertTokenizerFast(vocab=str(HERE.parent / "word_piece/vocab.txt"))
    first, second, labels = zip(*PAIRS)
    batch = dict(tokenizer(list(first), list(second), padding="max_length", max_length=14, truncation="longest_first",
                           return_tensors="pt"))
    targets = torch.tensor(labels, dtype=torch.float64)
    losses = {}
    for kind in ("regression", "multi_label_classification"):
        model.config.problem_type = kind
        shape = targets if kind == "regression" else targets.unsqueeze(1)
        with torch.no_grad():
            made = model(**batch, labels=shape)
        losses[kind] = made.loss.item()
    save_file({**batch, "labels": targets.float().unsqueeze(1)}, HERE / "batch.safetensors")
    save_file({"logits": made.logits.float()}, HERE / "expected.safetensors")
    (HERE / "losses.json").write_text(json.dumps(losses, indent=1) + "\n")
    (HERE / "lines.jsonl").write_text("".join(
        json.dumps({"text": a, "text_pair": b, "label": label}) + "\n" for a, b, label in PAIRS))


if __name__ == "__main__":
    main()
