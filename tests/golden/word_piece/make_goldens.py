"""Makes vocab.txt, tokens.json and windows.json beside this file: what Hugging Face's BertTokenizerFast makes of hard text.

    pip install transformers==5.23.0 && python make_goldens.py

Offsets are bytes of the text in UTF-8.
"""

import json
import pathlib

from transformers import BertTokenizerFast

HERE = pathlib.Path(__file__).parent
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = """the a an of in on is was who what where when did does quick brown fox jump over lazy dog un ##aff ##able ##able
##s ##ed ##ing ##er ##est play work paris france capital city river sei ##ne eiffel tower is ##tan ##bul strasse hello world
caf ##e na ##ive uber ##raschung office fi ##ance 19 ##84 18 ##89 ##00 million peop ##le grand ##mother new york""".split()
UNKNOWN = set("\u2603\u05d0\U0001f9ff\uac01\ud7a3")  # characters that the vocabulary lacks

TEXTS = {
    "plain": "The quick brown fox jumped over the lazy dogs.",
    "empty": "",
    "only space": " \t\n\r\u00a0\u2003\u3000 ",
    "pieces": "unaffable playing worked, works; worker?workest!",
    "unknown word": "hello \u2603world wor\u2603ld",
    "accents": "Caf\u00e9 na\u00efve \u00dcberraschung \u00c5ngstr\u00f6m \u1ec7 \u01d6",
    "combining marks": "Cafe\u0301 u\u0308\u0304 \u0301start a\u0301\u0302\u0303\u0304b q\u0323\u0307",
    "marks out of order": "a\u0301\u0323b o\u0304\u0328 x\u302e\u0323y e\u0345\u0301",
    "later marks": "a\u1ac0b a\u08d4 \u1885\u1886 \ua9bd\u1734 \u111c9",
    "chinese": "\u4f60\u597d\uff0cworld\u4e16\u754c\u3002 \uf900\ufa0e \U00020000\U0002b81d\U0002b900\U0002b950",
    "japanese": "\u3053\u3093\u306b\u3061\u306f \u30d1\u30ea\u306f\u82b1 \uff8a\uff9f\uff98 \u30ac",
    "hangul": "\ud55c\uad6d\uc5b4 \uac00\uac01 \u1112\u1161\u11ab \ud7a3",
    "emoji": "hi \U0001f600 \U0001f469\u200d\U0001f4bb \U0001f1eb\U0001f1f7 \u2764\ufe0f \U0001f44d\U0001f3fd \U0001f9ff",
    "zero width": "zero\u200bwidth joi\u200dner\u200c soft\u00adhyphen \ufeffbom \u2060",
    "turkish": "\u0130stanbul I\u0131i\u0130 DI\u0307S",
    "sharp s": "Stra\u00dfe STRASSE \u1e9e",
    "ligatures": "\ufb01ance o\ufb03ce \u0133 \u01c6 \u01c5 \u00e6 \u0152",
    "greek": "\u039f\u0394\u03a5\u03a3\u03a3\u0395\u03a5\u03a3 \u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2 \u03a3 \u1fb3 \u1f88",
    "greek question mark": "what\u037e \u0387 \u1fef",
    "cyrillic": "\u0419\u043e\u0434 \u0401\u043b\u043a\u0430 \u0439 \u0457",
    "right to left": "\u0645\u0631\u062d\u0628\u0627 \u0645\u064e\u0631\u0652\u062d \u05e9\u05dc\u05d5\u05dd \u05e9\u05c1 \u05d0 \u200fx\u200e \u060c\u061f",
    "indic": "\u0928\u092e\u0938\u094d\u0924\u0947 \u0964 \u0915\u093c \u0bb5\u0ba3\u0b95\u0bcd \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "punctuation": "a.b,c-d_e(f)[g]{h}<i>\"j\"'k'`l`~m~^n^|o|\\p/q$r+s=t@u#v%w&x*y!z?",
    "unicode punctuation": "\u2018a\u2019 \u201cb\u201d \u00abc\u00bb \u2013 \u2014 \u2026 \u00bf \u00a1 \u3001 \u300c \uff01 \u2e52 \u166d \u00a7 \u00b6 \u20ac \u00d7",
    "control": "a\x00b\x01c\x07d\x1be\x7ff\x80g\x85h\x9fi\ufffdj\ue000k\U000f0000l\u2028m\u2029n\x0bo\x0cp",
    "unassigned": "a\u0378b \U000e0041 \U0001fffe \uffff",
    "numbers": "In 1984 and 1889, 1,000.50 \u00bd \u2460 \u0661\u0662 \u2163",
    "mixed case": "HeLLo WORLD \U00010400\U00010428 \U0001e900 \uff21\uff41",
    "special tokens": "[CLS] hello[MASK]world [SEP] [UNK][PAD] [MASK [cls] [[SEP]] [ MASK ] x[CLS]",
    "special across marks": "[MASK]\u0301 e[SEP]\u0301 [MA\u0301SK] [MASK\u200b]",
    "99 characters": "a" * 99,
    "100 characters": "a" * 100,
    "101 characters": "a" * 101,
    "100 with accents": "\u00e9" * 100 + " " + "\u00e9" * 101,
    "101 Hangul parts": "\ud55c" * 33 + " " + "\ud55c" * 34,
    "long with controls": "a\u200b" * 100,
}
SETTINGS = [
    {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True},
    {"do_lower_case": False, "strip_accents": None, "tokenize_chinese_chars": True},
    {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": True},
    {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False},
]
CONTEXT = "The Eiffel Tower is in Paris, the capital of France. Caf\u00e9 \ud55c\uad6d 1889 " * 3
PAIRS = [
    {"first": "Where is the tower?", "second": CONTEXT, "max_length": 24, "stride": 5},
    {"first": "Where is the tower?", "second": CONTEXT, "max_length": 24, "stride": 0},
    {"first": "Where is the tower?", "second": CONTEXT, "max_length": 24, "stride": 15},
    {"first": "Where is the tower?", "second": CONTEXT, "max_length": 96, "stride": 32},
    {"first": "", "second": "paris [SEP] france", "max_length": 8, "stride": 2},
    {"first": "Where?", "second": " ", "max_length": 8, "stride": 2},
]


def write_vocabulary(path):
    """The special tokens, the words above, and each character that the normalised texts have, beginning and going on."""
    tokens = list(dict.fromkeys(SPECIAL + WORDS))
    characters = set(map(chr, range(0x21, 0x7F))) - UNKNOWN
    for setting in SETTINGS:
        normalizer = BertTokenizerFast(vocab={t: i for i, t in enumerate(tokens)}, **setting).backend_tokenizer.normalizer
        for text in [*TEXTS.values(), CONTEXT]:
            characters.update(c for c in normalizer.normalize_str(text) if c not in UNKNOWN and not c.isspace())
    for character in sorted(characters):
        tokens += [t for t in (character, "##" + character) if t not in tokens]
    path.write_text("".join(token + "\n" for token in tokens), encoding="utf-8", newline="\n")


def byte_offsets(text, offsets):
    places = [0]
    for character in text:
        places.append(places[-1] + len(character.encode()))
    return [[places[begin], places[end]] for begin, end in offsets]


def token_cases(vocabulary):
    groups = []
    for setting in SETTINGS:
        tokenizer = BertTokenizerFast(vocab=str(vocabulary), **setting)
        cases = []
        for name, text in TEXTS.items():
            made = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
            offsets = byte_offsets(text, made["offset_mapping"])
            cases.append({"name": name, "text": text, "ids": made["input_ids"], "offsets": offsets})
        groups.append({**setting, "cases": cases})
    return groups


def window_cases(vocabulary):
    tokenizer = BertTokenizerFast(vocab=str(vocabulary))
    cases = []
    for pair in PAIRS:
        made = tokenizer(pair["first"], pair["second"], truncation="only_second", max_length=pair["max_length"],
                         stride=pair["stride"], padding="max_length", return_overflowing_tokens=True,
                         return_offsets_mapping=True)
        windows = []
        for i, ids in enumerate(made["input_ids"]):
            spans = zip(made["offset_mapping"][i], made.sequence_ids(i))
            offsets = [byte_offsets(pair["second"] if s else pair["first"], [o])[0] for o, s in spans]
            windows.append({"ids": ids, "token_types": made["token_type_ids"][i],
                            "attention_mask": made["attention_mask"][i], "offsets": offsets})
        cases.append({**pair, "windows": windows})
    return cases


def write_json(name, rows):
    (HERE / name).write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


write_vocabulary(HERE / "vocab.txt")
write_json("tokens.json", token_cases(HERE / "vocab.txt"))
write_json("windows.json", window_cases(HERE / "vocab.txt"))
