"""Makes, in tiktoken/ beside this file, small files of ranks and what tiktoken makes of hard text with them:

    trained.tiktoken    ranks of a byte-level BPE that tokenizers trained        shuffled.tiktoken    ranks in random order
    cases.json          patterns, special tokens, and by case the ids with each pattern

No BPE training makes the second file: tokens there have lower ranks than their parts, and several cuts. The patterns of
cl100k_base, o200k_base and r50k_base are those of the package tiktoken.

    pip install tokenizers==0.23.3 tiktoken==0.14.0 && python make_tiktoken.py

The texts are those of cases.json and kinds/cases.json, without bytes that are no UTF-8, and the ones below.
"""

import base64
import json
import pathlib
import random

import tiktoken
from tiktoken_ext import openai_public
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent
OUT = HERE / "tiktoken"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|begin|>", "<|end|>", "<|mark|>", "<|\u6f22\u5b57|>"]
TRAINING = """The quick brown fox jumps over the lazy dog. The dogs don't mind; they're asleep, and we've seen it all before.
A pipeline has stages, and each stage holds layers. The first stage reads tokens, the last one gives the loss.
In 1984 there were 365 days, 12 months and 1,000,000 reasons to stay at home.\n\n   It cost 3.14 or 42.50, about 100%.
for (int i = 0; i < 10; ++i) {\n    std::cout << i << "\\n";\n}\n
Le caf\u00e9 est ferm\u00e9 \u00e0 No\u00ebl; na\u00efve fa\u00e7ade, d\u00e9j\u00e0 vu. \u00dcber die Stra\u00dfe gehen gr\u00f6\u00dfere H\u00e4user.
\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u4f60\u597d\uff0c\u4e16\u754c\u3002 \u3053\u3093\u306b\u3061\u306f\u4e16\u754c\u3002 \uc548\ub155\ud558\uc138\uc694
""" * 4
MORE = {
    "white space at the end": "a\n  ",
    "lines at the end": "end \n \n\n  \n",
    "white space alone": " \n\t ",
    "family": "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f468\U0001f3fd\u200d\U0001f680",
    "title case": "\u01c5abc\u01c5 \u02b0\u02b0 \u00aa\u00ba McDonald's iPhone HTTPServer",
    "signs of patterns": "x$^y ^ $\n^$ {1,3}+ path/to//file/\n/x",
    "special token of other characters": "\u6f22<|\u6f22\u5b57|>\u6f22\u5b57",
    "long han": "\u6f22\u5b57\u4eee\u540d" * 30,
}


def texts():
    for name in ("cases.json", "kinds/cases.json"):
        for case in json.loads((HERE / name).read_text()):
            if case["tokenizer"] not in ("gpt2", "qwen2") or (name != "cases.json" and case["name"] in seen):
                continue
            seen.add(case["name"])
            try:
                yield case["name"], bytes.fromhex(case["bytes"]).decode()
            except UnicodeDecodeError:
                pass
    yield from MORE.items()


def trained():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([TRAINING], trainers.BpeTrainer(vocab_size=560, initial_alphabet=alphabet, show_progress=False))
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    bytes_of = {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}
    return {bytes(bytes_of[c] for c in token): rank for token, rank in tokenizer.get_vocab().items()}


def shuffled():
    source = random.Random(3)
    longer = {bytes(source.choice(b"abc") for _ in range(source.randint(2, 6))) for _ in range(120)}
    tokens = [bytes([byte]) for byte in range(256)] + sorted(longer)
    source.shuffle(tokens)
    return {token: rank for rank, token in enumerate(tokens)}


def cases(ranks, patterns, named_texts):
    special = {token: len(ranks) + i for i, token in enumerate(SPECIAL)}
    encodings = {name: tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
                 for name, pattern in patterns.items()}
    for name, text in named_texts:
        ids = {pattern: encoding.encode(text, allowed_special="all") for pattern, encoding in encodings.items()}
        yield {"name": name, "text": text, "ids": ids}


def write_ranks(name, ranks):
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in sorted(ranks.items(), key=lambda item: item[1])]
    (OUT / name).write_text("".join(lines))


seen = set()
OUT.mkdir(exist_ok=True)
PATTERNS = {"llama3": LLAMA3, "cl100k": openai_public.cl100k_base, "o200k": openai_public.o200k_base}
source = random.Random(4)
words = [("".join(source.choice("abc") for _ in range(length)), length) for length in [3, 7, 20, 40, 60, 90, 150, 300] * 2]
openai_public.load_tiktoken_bpe = lambda *args, **more: {}  # the patterns alone, without a download
PATTERNS = {name: made if isinstance(made, str) else made()["pat_str"] for name, made in PATTERNS.items()}
groups = []
for file, ranks, patterns, named in [("trained.tiktoken", trained(), PATTERNS, texts()),
                                     ("shuffled.tiktoken", shuffled(), {"words": r"\S+|\s+"},
                                      ((f"{length} letters, {i}", word) for i, (word, length) in enumerate(words)))]:
    write_ranks(file, ranks)
    lines = ",\n".join(json.dumps(case) for case in cases(ranks, patterns, named))
    groups.append(f'{{"file": "{file}", "patterns": {json.dumps(patterns)}, "cases": [\n{lines}\n]}}')
(OUT / "cases.json").write_text(f'{{"special": {json.dumps(SPECIAL)}, "groups": [\n' + ",\n".join(groups) + "\n]}\n")
