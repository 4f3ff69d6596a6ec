"""BertForMultipleChoice and RobertaForMultipleChoice with inputs, logits, loss and gradients: make_choices.py FOLDER.

With Hugging Face transformers 5.23.0 and torch 2.13.0, in float64.
"""
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertForMultipleChoice, RobertaConfig, RobertaForMultipleChoice

SIZES = dict(vocab_size=71, hidden_size=24, num_hidden_layers=2, num_attention_heads=6, intermediate_size=38,
             max_position_embeddings=20, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
             attn_implementation="eager")
ROBERTA = dict(pad_token_id=1, bos_token_id=0, eos_token_id=2, type_vocab_size=1)


def make(folder, config, model_class):
    torch.manual_seed(5)
    model = model_class(config).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # The biases of keys and of the classifier have no gradient: small queries, and others' far above rounding.
            scale = 2.0 if name == "classifier.weight" else 0.05 if ".query." in name else 0.2
            drawn = torch.randn(parameter.shape, dtype=torch.float64) * scale + ("LayerNorm.weight" in name)
            parameter.copy_(drawn.float().double())
    model.eval()
    ids = torch.randint(3, 71, (4, 3, 12))
    mask = torch.ones_like(ids)
    for sample in range(4):
        for choice in range(3):
            padding = (sample + 2 * choice) % 4
            if padding:
                mask[sample, choice, -padding:] = 0
                ids[sample, choice, -padding:] = 1
    types = torch.zeros_like(ids)
    if config.model_type == "bert":
        types[:, :, 6:] = 1
    inputs = dict(input_ids=ids, attention_mask=mask, token_type_ids=types, labels=torch.tensor([2, 0, 1, 1]))
    out = model(**inputs)
    out.loss.backward()
    folder.mkdir(parents=True, exist_ok=True)
    expected = dict(logits=out.logits.detach().float(), loss=out.loss.detach().float())
    for name, parameter in model.named_parameters():
        expected["grad." + name] = parameter.grad.float().contiguous()
    model.float().save_pretrained(folder)
    save_file(inputs, folder / "inputs.safetensors")
    save_file(expected, folder / "expected.safetensors")


root = pathlib.Path(sys.argv[1])
make(root / "bert_choices", BertConfig(**SIZES), BertForMultipleChoice)
make(root / "roberta_choices", RobertaConfig(**SIZES, **ROBERTA), RobertaForMultipleChoice)
