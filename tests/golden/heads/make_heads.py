"""Small BERT, RoBERTa and ViT classifiers of each problem_type, with inputs, and the loss, the logits and the gradients of the
classifier, of Hugging Face
transformers 5.23 (torch 2.13). Each is in train mode without dropout, as `gantry train` computes it."""
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

SIZES = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12, hidden_dropout_prob=0.0,
             attention_probs_dropout_prob=0.0, initializer_range=0.3)
TEXT = dict(SIZES, vocab_size=29, max_position_embeddings=16, type_vocab_size=2)
IMAGES = dict(SIZES, image_size=6, patch_size=3, num_channels=3)
KINDS = {"bert": (transformers.BertConfig, transformers.BertForSequenceClassification, TEXT),
         "roberta": (transformers.RobertaConfig, transformers.RobertaForSequenceClassification, dict(TEXT, pad_token_id=1)),
         "vit": (transformers.ViTConfig, transformers.ViTForImageClassification, IMAGES)}
# name: kind, number of labels, problem_type, labels are integers
CASES = {"bert_one": ("bert", 1, None, False),
         "bert_one_of_integers": ("bert", 1, None, True),
         "bert_several": ("bert", 3, None, False),
         "bert_single": ("bert", 3, None, True),
         "roberta_regression": ("roberta", 3, "regression", False),
         "roberta_several": ("roberta", 3, "multi_label_classification", False),
         "vit_one": ("vit", 1, None, False),
         "vit_regression": ("vit", 2, "regression", False),
         "vit_several": ("vit", 3, None, False)}
SAMPLES = 4


def labels_of(count, integers, problem):
    if integers:
        return torch.arange(SAMPLES) % 3
    if count == 1:
        return torch.linspace(-1.5, 2.5, SAMPLES)
    values = torch.linspace(-1, 1, SAMPLES * count).view(SAMPLES, count)
    return values if problem == "regression" else (values.sin().mul(7).cos() > 0).float()


def main():
    directory = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    expected = {}
    for name, (kind, count, problem, integers) in CASES.items():
        torch.manual_seed(7)
        config_class, model_class, sizes = KINDS[kind]
        model = model_class(config_class(num_labels=count, problem_type=problem, **sizes)).train()
        inputs = {"input_ids": (torch.arange(SAMPLES * 6).pow(2) % 27 + 2).view(SAMPLES, 6)}
        if kind == "vit":
            inputs = {"pixel_values": torch.arange(SAMPLES * 108).mul(0.37).sin().view(SAMPLES, 3, 6, 6)}
        batch = dict(inputs, labels=labels_of(count, integers, problem))
        target = directory / name
        model.save_pretrained(target)
        save_file(batch, target / "batch.safetensors")
        output = model(**batch)
        output.loss.backward()
        save_file({"logits": output.logits.detach().clone(),
                   **{key: value.grad for key, value in model.named_parameters() if key.startswith("classifier.")}},
                  target / "results.safetensors")
        expected[name] = output.loss.item()
    (directory / "losses.json").write_text(json.dumps(expected, indent=1) + "\n")


main()
