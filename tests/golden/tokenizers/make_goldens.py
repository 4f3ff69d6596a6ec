"""Makes, beside this file, small tokenizers trained on the text below and what they make of hard text:

    gpt2/       vocab.json, merges.txt: byte-level BPE as GPT-2's        llama3/     tokenizer.json as Llama 3's
    byte_level/ tokenizer.json of the ByteLevel kind, with every flag    sentence/   unigram.model, bpe.model
    cases.json  by tokenizer: ids and decoded text of every case         classes.json  code points of \\s, \\p{L}, \\p{N}

    pip install tokenizers==0.23.3 sentencepiece==0.2.3 && python make_goldens.py

Bytes that are no UTF-8 are given as hex; Hugging Face gets them decoded with errors="replace".
"""

import io
import json
import pathlib

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
TRAINING = """The quick brown fox jumps over the lazy dog. The dogs don't mind; they're asleep, and we've seen it all before.
A pipeline has stages, and each stage holds layers. The first stage reads tokens, the last one gives the loss.
In 1984 there were 365 days, 12 months and 1,000,000 reasons to stay at home. It cost 3.14 or 42.50, about 100%.
def forward(self, x):\n    return self.linear(x)  # a comment\n\tif x > 0:\n\t\treturn x ** 2\n
for (int i = 0; i < 10; ++i) {\n    std::cout << i << "\\n";\n}\n
Le caf\u00e9 est ferm\u00e9 \u00e0 No\u00ebl; na\u00efve fa\u00e7ade, d\u00e9j\u00e0 vu. \u00dcber die Stra\u00dfe gehen gr\u00f6\u00dfere H\u00e4user.
\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u041a\u0430\u043a \u0434\u0435\u043b\u0430? \u042d\u0442\u043e \u043f\u0440\u0438\u043c\u0435\u0440 \u0442\u0435\u043a\u0441\u0442\u0430 \u043d\u0430 \u0440\u0443\u0441\u0441\u043a\u043e\u043c \u044f\u0437\u044b\u043a\u0435.
\u4f60\u597d\uff0c\u4e16\u754c\u3002\u6211\u4eec\u5728\u8fd9\u91cc\u5b66\u4e60\u8bed\u8a00\u6a21\u578b\u3002 \u3053\u3093\u306b\u3061\u306f\u4e16\u754c\u3002 \uc548\ub155\ud558\uc138\uc694 \uc138\uacc4.
\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd \u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01
I'm sure you'll say it's fine. I'd rather they'd said so. It\u2019s what we do \u2014 \u201creally\u201d \u2026 \U0001f600 \U0001f600 \U0001f44d
""".split("\n") * 4

TEXTS = {
    "plain": "The quick brown fox jumps over the lazy dog.",
    "empty": "",
    "one space": " ",
    "spaces": "a  b   c    d          e ",
    "leading and trailing": "   hello   ",
    "long white space": " " * 200 + "x" + "\t" * 90 + "\n" * 70 + " " * 5,
    "white space of all kinds": "a\u00a0b\u1680c\u2003d\u2028e\u2029f\u202fg\u205fh\u3000i\u0085j\u180ek\u200bl\ufeffm\x0bn\x0co\x1cp",
    "newlines": "a\r\nb\n\nc\r\rd \n e\n \n  f\n\n\n   ",
    "new lines after punctuation": "end.\n\nnext!\r\n\r\n{\n\t}\n",
    "contractions": "I'm you're he's we've they'll I'd don't o'clock 'tis 's't're",
    "upper contractions": "I'M YOU'RE HE'S WE'VE THEY'LL I'D DON'T 'S 'LL",
    "long s contraction": "it'\u017f and IT'\u017f 'K '\u212a",
    "curly contraction": "it\u2019s don\u2019t",
    "digits": "1 12 123 1234 12345 123456 1234567 3.14159 1,000,000 0x1F 1e-10 2024-11-21",
    "other numbers": "\u00bd \u2460\u2461 \u0661\u0662\u0663\u0664 \u2163 \u00b2\u00b3 \u4e09\u5341 \U0001d7d8\U0001d7d9 \U00010d41\U00010d42",
    "emoji": "hi \U0001f600\U0001f44d\U0001f3fd \U0001f469\u200d\U0001f4bb \U0001f1eb\U0001f1f7 \u2764\ufe0f x\U0001f9ffy \U0001faf7",
    "combining marks": "Cafe\u0301 u\u0308\u0304 \u0301start a\u0301\u0302\u0303\u0304b q\u0323\u0307 \u0939\u093f\u0928\u094d\u0926\u0940",
    "mixed scripts": "\u041f\u0440\u0438\u0432\u0435\u0442world\u4e16\u754c\u0645\u0631\u062d\u0628\u0627\u05e9\u05dc\u05d5\u05dd123\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\uc548\ub155",
    "chinese": "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u300c\u5f15\u7528\u300d\u2014\u2014 \U00020000\U0002b81d\U0002ebf0\U00031350",
    "right to left": "\u05e9\u05c1\u05dc\u05d5\u05dd \u200f\u0645\u064e\u0631\u0652\u062d\u064e\u0628\u064b\u0627\u200e !",
    "letters of new unicode": "a\u1c89b \ua7cb\ua7da \U000105c0 \U00011f04 \U00016100 \U0001e5d0 \U00010d4a",
    "unassigned": "a\u0378b \U000e0041 \U0001fffe \uffff \ue000 \U000f0000",
    "control": "a\x00b\x01c\x1b[0md\x7fe",
    "replacement": "a\ufffdb\ufffd\ufffd",
    "punctuation": "a.b,c-d_e(f)[g]{h}<i>\"j\"`k`~^|\\/$+=@#%&*?!!! ... ??? --> != === :: ->",
    "code": "def f(x):\n    return x ** 2  # a\n\tif (x>0) {\n\t\ty[i] += 1;\n\t}\n",
    "accents": "\u00c5ngstr\u00f6m na\u00efve fa\u00e7ade \u00fcberraschung \u1ec7 \u01d6 \u0130stanbul Stra\u00dfe \u1e9e \ufb01ance",
    "turkish and kelvin": "\u0130 \u0131 \u212a \u212b \u2126",
    "long word": "pneumonoultramicroscopicsilicovolcanoconiosis" * 3,
    "repeats": "a" * 150 + "ab" * 100 + "the" * 60,
    "one character pieces": "- - - a b c . , ;",
    "special tokens": "<|endoftext|>hello<|endoftext|> world <|end|><|begin|><|endoftext|><|endoftext|>",
    "special tokens broken": "<|endoftext|<|endoftext|>> <|end of text|> <|ENDOFTEXT|>",
    "nested special tokens": "<a><ab><abc><abcd> x<ab>y <|mark|> <|mark|>s s<|mark|> a <|left|> b <|right|>  c <|both|>\n d",
    "special tokens at words": "word word2 aword worda word. \u00e9word word\u0301 word_ _word word",
    "special tokens with spaces": "  <|left|>  <|left|>x \u3000<|right|>\u3000\t y<|both|><|both|>  <|both|>",
    "without merging": " hello world hello worlds",
}
BYTES = {
    "stray bytes": "61ff62fe63c0c180",
    "cut characters": "61e4b8 62f09f98 63c3".replace(" ", ""),
    "surrogates": "61eda080edbfbf62",
    "overlong": "c0afe080aff08080af61",
    "beyond": "f4908080f5808080f88888888861",
    "half of two": "e4b8ade4b8e4f09f9880f09f98f09f",
    "latin 1": "436166e920e020cf20fc",
}


def texts():
    yield from ((name, text, text.encode()) for name, text in TEXTS.items())
    for name, code in BYTES.items():
        raw = bytes.fromhex(code)
        yield name, raw.decode("utf-8", errors="replace"), raw


def train(pre_tokenizer, size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(TRAINING, trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False))
    return tokenizer


def make_gpt2():
    folder = HERE / "gpt2"
    folder.mkdir(exist_ok=True)
    tokenizer = train(pre_tokenizers.ByteLevel(add_prefix_space=False), 560)
    model = json.loads(tokenizer.to_str())["model"]
    model["vocab"]["<|endoftext|>"] = len(model["vocab"])
    (folder / "vocab.json").write_text(json.dumps(model["vocab"], ensure_ascii=False))
    merges = "".join(f"{left} {right}\n" for left, right in model["merges"])
    (folder / "merges.txt").write_text("#version: 0.2\n" + merges, encoding="utf-8", newline="\n")
    made = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    made.add_special_tokens(["<|endoftext|>"])
    return made


def make_byte_level():
    tokenizer = train(pre_tokenizers.ByteLevel(add_prefix_space=True), 400)
    tokenizer.add_special_tokens(["<|endoftext|>", AddedToken("<|left|>", lstrip=True, special=True),
                                  AddedToken("<|right|>", rstrip=True, special=True),
                                  AddedToken("<|both|>", lstrip=True, rstrip=True, special=True)])
    tokenizer.add_tokens(["<a>", "<ab>", "<abc>", AddedToken("<ab", normalized=False), AddedToken("word", single_word=True),
                          "\u00e9word", AddedToken("<|mark|>", single_word=True, normalized=False)])
    return save(tokenizer, "byte_level", {"eos_token": "<|endoftext|>"})


def make_llama3():
    split = pre_tokenizers.Split(Regex(LLAMA3), behavior="isolated")
    tokenizer = train(pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), 620)
    made = json.loads(tokenizer.to_str())
    # Tokens that only ignore_merges reaches: the merges of the last ones are left out, and two are new.
    made["model"]["merges"] = made["model"]["merges"][:-40]
    for token in ("\u0120hello", "\u0120worlds", "123"):
        made["model"]["vocab"].setdefault(token, len(made["model"]["vocab"]))
    made["model"]["ignore_merges"] = True
    tokenizer = Tokenizer.from_str(json.dumps(made))
    tokenizer.add_special_tokens(["<|begin|>", "<|end|>", "<|endoftext|>", "<|mark|>"])
    return save(tokenizer, "llama3", {"bos_token": "<|begin|>", "eos_token": {"content": "<|end|>"}})


def save(tokenizer, name, config):
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "tokenizer_config.json").write_text(json.dumps(config) + "\n")
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def make_sentence_piece(kind, **options):
    path = HERE / "sentence" / f"{kind}.model"
    path.parent.mkdir(exist_ok=True)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(filter(None, TRAINING)), model_writer=model, model_type=kind,
                                             minloglevel=2, **options)
    path.write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def hugging_face_cases(tokenizer):
    for name, text, raw in texts():
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        yield name, raw, ids, tokenizer.decode(ids, skip_special_tokens=False)


def sentence_piece_cases(processor, unigram):
    for name, text, raw in texts():
        if "\x00" in text:
            continue  # the Python package ends a text at a zero byte
        ids = processor.encode(text)
        if unigram and ids:
            scores = [sum(map(processor.get_score, way)) for way in processor.nbest_encode(text, nbest_size=2, out_type=int)]
            if len(scores) > 1 and abs(scores[0] - scores[1]) < 1e-4:
                continue  # of two ways as good as each other, versions of the library take different ones
        yield name, raw, ids, processor.decode(ids)


def write_cases(groups):
    lines = []
    for tokenizer, cases in groups.items():
        for name, raw, ids, decoded in cases:
            lines.append(json.dumps({"tokenizer": tokenizer, "name": name, "bytes": raw.hex(), "ids": ids, "decoded": decoded}))
    (HERE / "cases.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


def ranges_of(pattern):
    split, ranges = pre_tokenizers.Split(Regex(pattern), "removed"), []
    for point in filter(lambda p: not 0xD800 <= p < 0xE000, range(0x110000)):
        if split.pre_tokenize_str(chr(point)):
            continue
        if ranges and ranges[-1][1] == point - 1:
            ranges[-1][1] = point
        else:
            ranges.append([point, point])
    return ranges


write_cases({"gpt2": hugging_face_cases(make_gpt2()), "byte_level": hugging_face_cases(make_byte_level()),
             "llama3": hugging_face_cases(make_llama3()),
             "sentence/unigram.model": sentence_piece_cases(make_sentence_piece("unigram", vocab_size=300, hard_vocab_limit=False), True),
             "sentence/bpe.model": sentence_piece_cases(make_sentence_piece("bpe", vocab_size=650, byte_fallback=True, split_digits=True, hard_vocab_limit=False, character_coverage=0.98,
                                                                                          normalization_rule_name="identity"), False)})
(HERE / "classes.json").write_text(json.dumps({p: ranges_of(p) for p in (r"\s", r"\p{L}", r"\p{N}")}) + "\n")
