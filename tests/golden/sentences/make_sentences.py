"""Makes inputs.safetensors and expected.safetensors: sentence embeddings of encoders and decoders in ../families, and of ../bert.
groups.safetensors has samples of three texts, and group_results*.safetensors the losses that rank them and gradients.

    python tests/golden/sentences/make_sentences.py

transformers 5.24.0, torch 2.13.0. The models are those of AutoModel, without a head. Everything is computed in float64
and stored in float32. The arithmetic of the modules is that of sentence-transformers 6.2. One sample has its padding
on the left. Attention is "sdpa", because "eager" has no numbers for windows of padding alone.
"""
import pathlib

import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
# The modes, and whether the result is normalized.
CASES = {
    "bert": (["mean"], True),
    "families/roberta": (["cls"], False),
    "families/xlm_roberta": (["max"], True),
    "families/distilbert": (["mean_sqrt_len_tokens"], False),
    "families/nomic_bert": (["mean"], False),
    "families/modernbert": (["lasttoken"], True),
    "families/electra": (["cls", "mean"], True),
    "families/qwen3": (["lasttoken"], True),
    "families/gemma": (["mean"], False),
    "families/opt_projected": (["cls", "lasttoken"], False),
    "families/lfm2": (["max"], True),
    "families/qwen3_moe": (["lasttoken"], False),
}


def pooled(mode, hidden, mask):
    kept = mask.unsqueeze(-1).to(hidden.dtype)
    rows = torch.arange(len(mask))
    if mode == "cls":
        return hidden[rows, mask.argmax(1)]
    if mode == "lasttoken":
        return hidden[rows, mask.size(1) - 1 - mask.flip(1).argmax(1)]
    if mode == "max":
        return hidden.masked_fill(kept == 0, float("-inf")).max(1).values
    count = kept.sum(1).clamp(min=1e-9)
    return (hidden * kept).sum(1) / (count if mode == "mean" else count.sqrt())


def model_of(folder):
    model = transformers.AutoModel.from_pretrained(
        HERE.parent / folder, attn_implementation="sdpa",
        **({"experts_implementation": "eager"} if "moe" in folder else {}))
    return model.double().eval()


def embedding(folder, modes, normalizes, inputs):
    model = model_of(folder)
    with torch.no_grad():
        hidden = model(**inputs).last_hidden_state
    made = torch.cat([pooled(mode, hidden, inputs["attention_mask"]) for mode in modes], 1)
    return torch.nn.functional.normalize(made, p=2, dim=-1) if normalizes else made


def ranking(folder, mode, part, prefix, groups):
    """MultipleNegativesRankingLoss of sentence-transformers, with its scale 20 and cosines."""
    model = model_of(folder)
    texts = [{name: value[:, text] for name, value in groups.items()} for text in range(3)]
    rows = [torch.nn.functional.normalize(
        pooled(mode, model(**text).last_hidden_state, text["attention_mask"]), p=2, dim=-1) for text in texts]
    scores = 20 * rows[0] @ torch.cat(rows[1:]).T
    losses = torch.nn.functional.cross_entropy(scores, torch.arange(len(scores)), reduction="none")
    losses.mean().backward()
    gradients = {prefix + name: value.grad for name, value in model.named_parameters() if part in name}
    return {"losses": losses.detach(), **gradients}


def main():
    draw = torch.Generator().manual_seed(11)
    mask = torch.ones(4, 11, dtype=torch.int64)
    mask[1, 7:] = 0
    mask[2, :3] = 0
    mask[3, 1:] = 0
    inputs = {"input_ids": torch.randint(2, 40, (4, 11), generator=draw) * mask, "attention_mask": mask}
    save_file(inputs, HERE / "inputs.safetensors")
    save_file({folder.split("/")[-1]: embedding(folder, *how, inputs).float().contiguous()
               for folder, how in CASES.items()}, HERE / "expected.safetensors")
    groups = {"input_ids": torch.randint(2, 97, (4, 3, 7), generator=draw), "attention_mask": torch.ones(4, 3, 7)}
    groups["attention_mask"][1:3, 1, 4:] = 0
    groups["attention_mask"] = groups["attention_mask"].long()
    save_file(groups, HERE / "groups.safetensors")
    for file, *how in (("group_results", "families/distilbert", "mean", "layer.1.attention", ""),
                       ("group_results_decoder", "llama", "lasttoken", "layers.1.self_attn", "model.")):
        save_file({name: value.float().contiguous() for name, value in ranking(*how, groups).items()},
                  HERE / f"{file}.safetensors")


if __name__ == "__main__":
    main()
