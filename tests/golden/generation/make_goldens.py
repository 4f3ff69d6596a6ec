"""Tokens that Hugging Face's generate() gives, greedily and by beam search: python make_goldens.py [MODEL ...]

Writes a JSON file for each model, or those named, beside this file, and the two further models into folders here. The models' weights are
random and large enough that scores are far apart; a case whose tokens change when the weights are disturbed by what
float32 rounding may do is left out.
"""
import json
import pathlib
import sys

import torch
import transformers

HERE = pathlib.Path(__file__).parent
MODELS = ["gpt2", "llama", "llama_tied_gqa1", "generation/gpt2_untied", "generation/llama_gqa3", "families/t5", "families/t5_gated"]
PROMPTS = [[5, 17, 42, 8, 99], [7], [100, 3, 56, 23, 11, 200, 9, 31, 64], [13, 13, 2]]


def further_models():
    """Untied GPT-2 with three heads; Llama whose three key heads serve six query heads, Llama-3 rotary scaling, biases."""
    gpt2 = transformers.GPT2Config(
        vocab_size=97, n_positions=48, n_embd=36, n_layer=3, n_head=3, activation_function="gelu", tie_word_embeddings=False,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=2)
    llama = transformers.LlamaConfig(
        vocab_size=131, hidden_size=48, intermediate_size=80, num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=3,
        head_dim=8, max_position_embeddings=64, attention_bias=True, tie_word_embeddings=False, bos_token_id=1, eos_token_id=[2, 5],
        rope_parameters={"rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 16})
    return {"gpt2_untied": transformers.GPT2LMHeadModel, "llama_gqa3": transformers.LlamaForCausalLM}, {
        "gpt2_untied": gpt2, "llama_gqa3": llama}


def make_models():
    classes, configs = further_models()
    for number, (name, config) in enumerate(configs.items()):
        torch.manual_seed(100 + number)
        model = classes[name](config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(0, 0.25)
                else:
                    parameter.add_(torch.randn_like(parameter) * 0.1)
        model.save_pretrained(HERE / name)


UNPASSED = ("name", "stop_after", "bad_after")  # keys of a setting that are not options of generate()
SETTINGS = [
    {"name": "greedy", "max_new_tokens": 14},
    {"name": "greedy, short texts may not stop", "max_new_tokens": 12, "min_new_tokens": 6, "stop_after": 3},
    {"name": "greedy, stop token", "max_new_tokens": 14, "stop_after": 4},
    {"name": "greedy, repetition penalty", "max_new_tokens": 14, "repetition_penalty": 1.7},
    {"name": "greedy, maximum and minimum length", "max_length": 17, "min_length": 12, "stop_after": 2},
    {"name": "beams of 3", "num_beams": 3, "max_new_tokens": 12},
    {"name": "beams of 5", "num_beams": 5, "max_new_tokens": 10},
    {"name": "beams of 3, several", "num_beams": 3, "num_return_sequences": 3, "max_new_tokens": 8},
    {"name": "beams of 5, stop tokens", "num_beams": 5, "num_return_sequences": 2, "max_new_tokens": 12, "stop_after": 2},
    {"name": "beams of 3, early stopping", "num_beams": 3, "max_new_tokens": 12, "early_stopping": True, "stop_after": 2},
    {"name": "beams of 3, never early", "num_beams": 3, "max_new_tokens": 12, "early_stopping": "never", "stop_after": 2},
    {"name": "beams of 3, long texts", "num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 12,
     "length_penalty": 2.5, "stop_after": 2, "early_stopping": "never"},
    {"name": "beams of 3, short texts", "num_beams": 3, "num_return_sequences": 3, "max_new_tokens": 12,
     "length_penalty": -1.5, "stop_after": 2},
    {"name": "beams of 5, minimum length and repetition penalty", "num_beams": 5, "max_new_tokens": 12, "min_new_tokens": 5,
     "repetition_penalty": 1.3, "stop_after": 2},
    {"name": "greedy, no repeated pairs", "max_new_tokens": 14, "no_repeat_ngram_size": 2, "repetition_penalty": 0.7},
    {"name": "greedy, no repeated tokens", "max_new_tokens": 14, "no_repeat_ngram_size": 1},
    {"name": "greedy, bad words", "max_new_tokens": 14, "bad_after": 3},
    {"name": "greedy, forced ends", "max_new_tokens": 10, "forced_bos_token_id": 9, "forced_eos_token_id": [11, 12]},
    {"name": "beams of 3, no repeated triples, bad words", "num_beams": 3, "max_new_tokens": 12, "no_repeat_ngram_size": 3,
     "repetition_penalty": 0.7, "bad_after": 2},
    {"name": "beams of 3, forced ends", "num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 8,
     "forced_bos_token_id": 9, "forced_eos_token_id": [11], "stop_after": 4},
]


def run(model, prompts, setting, stops):
    """An encoder reads its prompts with padding behind them, and the decoder's text begins with one token of its own."""
    longest = max(map(len, prompts))
    reads = model.config.is_encoder_decoder
    pad = lambda values, filler: values + filler if reads else filler + values
    ids = torch.tensor([pad(p, [0] * (longest - len(p))) for p in prompts])
    mask = torch.tensor([pad([1] * len(p), [0] * (longest - len(p))) for p in prompts])
    given = {key: value for key, value in setting.items() if key not in UNPASSED}
    model.generation_config = transformers.GenerationConfig(decoder_start_token_id=model.config.decoder_start_token_id if reads else None)
    with torch.no_grad():
        out = model.generate(input_ids=ids, attention_mask=mask, eos_token_id=stops or None, pad_token_id=0, do_sample=False,
                             return_dict_in_generate=True, output_scores=True, **given)
    lists = []
    for row in out.sequences[:, 1 if reads else longest:].tolist():
        ends = [row.index(stop) for stop in stops if stop in row]
        lists.append(row[:min(ends) + 1] if ends else row)
    scores = out.sequences_scores.tolist() if setting.get("num_beams", 1) > 1 else []
    return lists, scores


def cases(model, vocabulary):
    prompts = [[token % vocabulary for token in prompt] for prompt in PROMPTS]
    plain, _ = run(model, prompts, {"max_new_tokens": 14}, [])
    for setting in SETTINGS:
        # Tokens that greedy texts have, so that searches meet them.
        stops = []
        if "stop_after" in setting:
            stops = sorted({plain[0][setting["stop_after"]], plain[2][setting["stop_after"] + 1]})
        if "bad_after" in setting:  # a token, and runs of two and three tokens
            text, after = plain[1], setting["bad_after"]
            setting = setting | {"bad_words_ids": [[plain[0][after]], text[after:after + 2], plain[2][after:after + 3]]}
        tokens, scores = run(model, prompts, setting, stops)
        if not is_steady(model, prompts, setting, stops, tokens):
            print("  left out:", setting["name"])
            continue
        options = {key: value for key, value in setting.items() if key not in UNPASSED}
        if "early_stopping" in options:
            options["early_stopping"] = str(options["early_stopping"]).lower()
        yield {"name": setting["name"], "options": options, "stop_tokens": stops, "prompts": prompts, "tokens": tokens,
               "scores": scores}


def is_steady(model, prompts, setting, stops, tokens):
    kept = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    steady = True
    for seed in range(3):
        torch.manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1 + 1e-5 * torch.randn_like(parameter))
        steady = steady and run(model, prompts, setting, stops)[0] == tokens
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(kept[name])
    return steady


def main():
    wanted = sys.argv[1:] or MODELS
    if not sys.argv[1:]:
        make_models()
    for name in wanted:
        loader = transformers.AutoModelForSeq2SeqLM if name.startswith("families/t5") else transformers.AutoModelForCausalLM
        model = loader.from_pretrained(HERE.parent / name, dtype=torch.float32).eval()
        made = list(cases(model, model.config.vocab_size))
        file = HERE / (pathlib.Path(name).name + ".json")
        lines = ",\n".join(json.dumps(case) for case in made)
        file.write_text('{"model": "%s", "transformers": "%s", "cases": [\n%s\n]}\n' % (name, transformers.__version__, lines))
        print(file.name, len(made), "cases")


if __name__ == "__main__":
    main()
