"""Writes parts.json beside this file: every normalizer, pre-tokenizer, model, post-processor and decoder of Hugging Face's
tokenizers, and its results for hard texts.

"base" is a byte-level BPE without merges whose tokens show where pieces end. "splits" has normalizers and pre-tokenizers,
to be put into it (a ByteLevel step without pattern follows), and the pieces that they make of each of "texts". "files"
are complete tokenizers with ids (without and with special tokens) and decoded texts.

    pip install tokenizers==0.23.3 && python make_parts.py
"""

import json
import pathlib

from tokenizers import Tokenizer, pre_tokenizers

HERE = pathlib.Path(__file__).parent
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
END = "</w>"
TEXTS = [
    "Hello, world!  It's 12345 o'clock.", "  two  blanks ", "a--b...c??! (x_y) $5 100%", "\tTabs\r\nand\n\n lines \n", "x\u00b2 \u00bd \u2167 \u0663\u0664 \u096a 1a2",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u092d\u093e\u0937\u093e \u0964 \u0915\u094d\u0937", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0e0a\u0e32\u0e27", "e\u0301 \u00e9 cafe\u0301 A\u030a \u212b q\u0307\u0323",
    "\u6f22\u5b57\u304b\u306a\u30ab\u30ca\u30fc\u3001\ud55c\uad6d\uc5b4\u3002", "\ufb01 \uff21\uff22 \u2460 \u0130\u0131 \u1e9e\u00df \u03a3\u03c3\u03c2", "\U0001f469\u200d\U0001f4bb \U0001f1e9\U0001f1ea \u2764\ufe0f\u200d",
    "a\u200bb\u200dc\ufeffd\u00ade\u2028f\u0085g\u3000h\u180ei", "\u0001\u0008\u000b\u001b\u007f\u008f\u009f\ufffd\u2581", "DON'T don\u2019t we'LL I'\u017f 'S's 'l 're'VE", "\u0627\u0644\u0639\u0631\u0628\u064a\u0629\u060c \u05e2\u05d1\u05e8\u05d9\u05ea 12\u066b5",
    "camelCase HTTPServer X1y2 __init__", "\U00010d4a\U0001e4f0\u1c89\U0001611a \U00031350\U0002ebf0 \ua7cb\u0897", "<s>a</s> [MASK] <unk> <0x41>", "", " ", "\n", "1", "\u0301", "a|b||c|", "\u2581a\u2581\u2581b",
]


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
KIMI = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+"
BLOOM = r" ?[^(\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"
REGEXES = [GPT2, LLAMA3, LLAMA3.replace("{1,3}", ""), O200K, KIMI, BLOOM, r"\w+|[^\w\s]+", r"^\s*|\bl", r"[[:punct:]]", r"\h+", r"\P{L}+", r"[^\P{L}a-z]", r"(?<=\s)\S", r"x*", r"(?:\p{Lu}\p{Ll}+)+", r"\R|\d\K\.", r"\p{^N}\d"]
ALL = ["Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"]
PRE_TOKENIZERS = (
    [split({"Regex": regex}, "Isolated") for regex in REGEXES]
    + [split({"String": " "}, behavior, invert) for behavior in ALL for invert in (False, True)]
    + [split({"Regex": r"\d|\s+"}, behavior, invert) for behavior in ALL for invert in (False, True)]
    + [split({"Regex": r"[aeo]*"}, behavior) for behavior in ALL]
    + [{"type": "Punctuation", "behavior": behavior} for behavior in ALL]
    + [{"type": "Digits", "individual_digits": each} for each in (False, True)]
    + [{"type": name} for name in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer", "UnicodeScripts")]
    + [{"type": "CharDelimiterSplit", "delimiter": "|"}]
    + [{"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": each} for scheme in ("always", "first", "never") for each in (True, False)]
    + [{"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex} for prefix in (True, False) for regex in (True, False)]
    + [{"type": "Sequence", "pretokenizers": [{"type": "Punctuation", "behavior": "Contiguous"}, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
                                              {"type": "Digits", "individual_digits": False}, split({"Regex": "[0-9][0-9][0-9]"}, "Isolated")]},
       {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "split": True}]}]
)
NORMALIZERS = (
    [{"type": name} for name in ("NFC", "NFD", "NFKC", "NFKD", "Nmt", "Lowercase", "StripAccents", "ByteLevel")]
    + [{"type": "Strip", "strip_left": left, "strip_right": right} for left in (True, False) for right in (True, False)]
    + [{"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}, {"type": "Replace", "pattern": {"Regex": r"\s+|\d"}, "content": "<\\0>"},
   {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}]}]
    + [{"type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": chinese, "strip_accents": accents, "lowercase": lower}
       for clean, chinese, accents, lower in ((True, True, None, True), (True, False, False, True), (False, True, None, False), (False, False, True, False))]
)


def special(content, id, **flags):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True, **flags}


def whole(model, **parts):
    made = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": model}
    return {**made, **parts}


def bpe(vocab, merges, **settings):
    return {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": False, "vocab": {token: id for id, token in enumerate(vocab)}, "merges": merges, **settings}


SPACED = {"type": "WhitespaceSplit"}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
BASE = whole(bpe([end for byte in BYTES for end in (byte, byte + END)], [], end_of_word_suffix=END))
FALLBACK = [f"<0x{byte:02X}>" for byte in range(256)]
TEMPLATE = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}},
                                                    {"SpecialToken": {"id": "</s>", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}, "</s>": {"id": "</s>", "ids": [2, 3], "tokens": ["</s>", "x"]}}}
WORDS = ["<unk>", "<s>", "</s>", "a", "b", "c", "Hello", ",", "world", "!", "It's", "two", "blanks", "\u00e9", "a--b...c??!"]
ADDED = [special("<s>", 1, lstrip=True), special("</s>", 2, rstrip=True, special=False), special("[MASK]", 15, single_word=True), special("Two", 16, normalized=True, special=False)]
FILES = {
    "WordLevel": whole({"type": "WordLevel", "vocab": {w: i for i, w in enumerate(WORDS)}, "unk_token": "<unk>"}, pre_tokenizer={"type": "Whitespace"}, post_processor=TEMPLATE, added_tokens=ADDED),
    "WordLevel without a type": whole({"vocab": {w: i for i, w in enumerate(WORDS)}, "unk_token": "<unk>"}, pre_tokenizer=SPACED, added_tokens=ADDED, normalizer={"type": "Lowercase"}),
    "WordPiece": whole({"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "@@", "max_input_chars_per_word": 12,
                        "vocab": {t: i for i, t in enumerate(["[UNK]", "Hel", "@@lo", "@@l", "@@o", "H", "e", "@@e", "two", "bl", "@@an", "@@ks", "12", "@@3", "@@4", "@@5", "\u6f22", "@@\u5b57", "."])}},
                       pre_tokenizer={"type": "BertPreTokenizer"}, decoder={"type": "WordPiece", "prefix": "@@", "cleanup": True}),
    "Unigram without a type": whole({"unk_id": 0, "vocab": [["<unk>", 0.0], ["\u2581", -2.0], ["a", -3.0], ["aa", -6.0], ["l", -3.0], ["ll", -5.5], ["lo", -4.0], ["o", -3.0], ["\u2581He", -4.0], ["--", -7.0], ["1", -3.0], ["12", -5.0], ["23", -5.0], ["345", -6.0]]},
                                     pre_tokenizer={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}, decoder={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}),
    "Unigram with bytes": whole({"type": "Unigram", "unk_id": 0, "byte_fallback": True, "vocab": [["<unk>", 0.0], ["a", -1.0], ["b", -1.0], ["ab", -2.0]] + [[t, -9.0] for t in FALLBACK]},
                                decoder={"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}),
    "Unigram with some bytes": whole({"type": "Unigram", "unk_id": 0, "byte_fallback": True, "vocab": [["<unk>", 0.0], ["a", -1.0]] + [[t, -9.0] for t in FALLBACK[:128]]}),
    "BPE with a suffix": whole(bpe(["<unk>", "l", "o", "l</w>", "o</w>", "lo</w>", "H", "e", "He", "ll", "llo</w>", "a</w>", "b</w>"], ["l o</w>", "H e", "l l", "l lo</w>"], unk_token="<unk>", end_of_word_suffix="</w>"),
                               pre_tokenizer={"type": "Whitespace"}, decoder={"type": "BPEDecoder", "suffix": "</w>"}),
    "BPE with a prefix": whole(bpe(["<unk>", "l", "##l", "##o", "##lo", "H", "##e", "He", "Hel", "##llo"], [["##l", "##o"], ["H", "##e"], ["He", "##l"]], unk_token="<unk>", continuing_subword_prefix="##", fuse_unk=True), pre_tokenizer=SPACED),
    "BPE with bytes": whole(bpe(["<unk>", "a", "b", "ab", "\u2581", "\u2581a"] + FALLBACK, ["a b", "\u2581 a"], unk_token="<unk>", fuse_unk=True, byte_fallback=True), normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
                            decoder={"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
                            post_processor={"type": "RobertaProcessing", "sep": ["b", 2], "cls": ["a", 1], "trim_offsets": True, "add_prefix_space": True}),
    "BPE with some bytes": whole(bpe(["<unk>", "a", "b"] + FALLBACK[:160], [], unk_token="<unk>", byte_fallback=True)),
    "BPE without unknown": whole(bpe(["a", "b", "ab"], ["a b"])),
    "BPE of bytes with an empty token": whole(bpe(BYTES + ["", "\u0120t", "\u0120tw", "\u0120two", "He", "ll"], ["\u0120 t", "\u0120t w", "\u0120tw o", "H e", "l l"]), pre_tokenizer=BYTE_LEVEL, decoder={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
                                               post_processor={"type": "Sequence", "processors": [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, {"type": "BertProcessing", "sep": ["a", 2], "cls": ["b", 1]}]}),
    "BPE of some bytes": whole(bpe(BYTES[:190], []), pre_tokenizer=BYTE_LEVEL),
    "BPE of some bytes and unknown": whole(bpe(["<unk>"] + BYTES[:190], [], unk_token="<unk>"), pre_tokenizer=BYTE_LEVEL),
    "BPE of whole words": whole(bpe(BYTES + ["Hello", "\u0120two", "\u0120world", "\u00c3\u00a9"], [], ignore_merges=True), pre_tokenizer=BYTE_LEVEL, decoder={"type": "Sequence", "decoders": [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, {"type": "Replace", "pattern": {"Regex": "[lo]+"}, "content": "L"}]}),
    "bytes by the normalizer": whole(bpe(BYTES + ["He", "\u0120w"], ["H e", "\u0120 w"]), normalizer={"type": "ByteLevel"}, pre_tokenizer=split({"Regex": "\u0120?[A-Za-z]+|[^A-Za-z]"}, "Isolated"), decoder={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}),
    "CTC": whole({"type": "WordLevel", "vocab": {w: i for i, w in enumerate(["<pad>", "<unk>", "|", "H", "e", "l", "o", "w", "r", "d", " "])}, "unk_token": "<unk>"}, pre_tokenizer=split({"Regex": "."}, "Isolated"),
                 decoder={"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True}),
    "WordPiece bytes": whole({"type": "WordPiece", "unk_token": "!", "continuing_subword_prefix": "", "max_input_chars_per_word": 100, "vocab": {t: i for i, t in enumerate(BYTES)}}, pre_tokenizer=BYTE_LEVEL),
}


def pieces_of(tokenizer, text):
    try:
        encoded = tokenizer.encode(text)
    except BaseException:  # tokenizers 0.23.3 itself fails for some removed characters
        return None
    tokens = "".join(token if token.endswith(END) else token + "\0" for token in encoded.tokens)
    return " ".join(piece.replace("\0", "") for piece in tokens.split(END)[:-1])


def splits():
    for part, parts in (("pre_tokenizer", PRE_TOKENIZERS), ("normalizer", NORMALIZERS)):
        for each in parts:
            made = json.loads(json.dumps(BASE))
            last = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
            made["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": ([each] if part == "pre_tokenizer" else []) + [last]}
            if part == "normalizer":
                made["normalizer"] = each
            tokenizer = Tokenizer.from_str(json.dumps(made))
            yield {"part": part, "settings": each, "pieces": [pieces_of(tokenizer, text) for text in TEXTS]}


def files():
    for name, file in FILES.items():
        tokenizer = Tokenizer.from_str(json.dumps(file))
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
        surrounded = [tokenizer.encode(text).ids for text in TEXTS]
        yield {"name": name, "file": file, "ids": ids, "surrounded": surrounded[:1], "decoded": [tokenizer.decode(each, skip_special_tokens=False) for each in surrounded],
               "without_specials": [tokenizer.decode(each) for each in surrounded]}


def main():
    lines = [f'"base": {json.dumps(BASE)}', f'"texts": {json.dumps(TEXTS)}']
    lines.append('"splits": [\n' + ",\n".join(map(json.dumps, splits())) + "\n]")
    lines.append('"files": [\n' + ",\n".join(map(json.dumps, files())) + "\n]")
    (HERE / "parts.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


main()
