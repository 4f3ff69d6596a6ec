"""Writes text.jsonl, and pairs.json with the tokens and merges of Hugging Face's tokenizers 0.23: python make.py"""
import json
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

TEXTS = ["The quick brown fox jumps over the lazy dog. The dog sleeps; the fox doesn't.\n\n  Indented  text,\tand 1234 numbers 12 34.",
         "Größe und Grüße: ein Übergrößenträger.  naïve café, cafe\u0301", "Привет, мир! Привет, друг!", "हिन्दी भाषा हिन्दी पाठ",
         "東京都の東京タワー 👩‍👩‍👧 👩‍👩‍👧", "banana bandana banana anana nananana aaaaaaaa aaaa", "<|endoftext|> is text here", "def f(x):\n    return x + 1\n\ndef g(x):\n    return f(x)\n"]

with open("text.jsonl", "w") as file:
    for text in TEXTS:
        file.write(json.dumps({"text": text}) + "\n")
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
found = {}
for frequency in (0, 2):
    tokenizer.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=400, min_frequency=frequency, special_tokens=["<|endoftext|>", "<pad>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    found[str(frequency)] = {"tokens": sorted(model["vocab"], key=model["vocab"].get), "merges": [list(m) for m in model["merges"]]}
json.dump(found, open("pairs.json", "w"))
