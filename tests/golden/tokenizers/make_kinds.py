"""Makes, in kinds/ beside this file, a small tokenizer of each kind that models come with, and what Hugging Face makes of hard
text with it:

    llama2/        tokenizer.json as Llama 2's: BPE with byte fallback, Prepend and Replace        llama2_model/  its *.model alone
    t5/            tokenizer.json as T5's: Unigram with SentencePiece's table of replacements      t5_model/      its *.model alone
    mistral/       as Llama 2's newer ones: Metaspace before the first word alone                  bert/          WordPiece
    qwen2/         byte-level BPE behind NFC                                                       cases.json     ids and decoded text

The folders with a *.model alone are read by AutoTokenizer; the others by tokenizers, which AutoTokenizer must agree with.

    pip install tokenizers==0.23.3 transformers==5.23.0 sentencepiece==0.2.3 protobuf && python make_kinds.py

The texts are those of cases.json and the ones below.
"""

import io
import json
import os
import pathlib
import shutil
import tempfile

os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer

HERE = pathlib.Path(__file__).parent
KINDS = HERE / "kinds"
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TRAINING = """The quick brown fox jumps over the lazy dog. The dogs don't mind; they're asleep, and we've seen it all before.
A pipeline has stages, and each stage holds layers. The first stage reads tokens, the last one gives the loss.
In 1984 there were 365 days, 12 months and 1,000,000 reasons to stay at home. It cost 3.14 or 42.50, about 100%.
for (int i = 0; i < 10; ++i) { return x ** 2; }  hello world
Le caf\u00e9 est ferm\u00e9 \u00e0 No\u00ebl; na\u00efve fa\u00e7ade, d\u00e9j\u00e0 vu. \u00dcber die Stra\u00dfe gehen gr\u00f6\u00dfere H\u00e4user.
\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u4f60\u597d\uff0c\u4e16\u754c\u3002 \u3053\u3093\u306b\u3061\u306f\u4e16\u754c\u3002 \uc548\ub155\ud558\uc138\uc694
""".split("\n") * 4
# From and to, as code points: what SentencePiece's own tables do, in small. The last ones are of several characters.
RULES = ["FB01\t66 69", "FB03\t66 66 69", "FF21\t41", "FF0C\t2C", "3002\t2E", "2026\t2E 2E 2E", "A0\t20", "3000\t20", "200B\t", "AD\t",
         "9\t20", "A\t20", "D\t20", "65 301\tE9", "75 308\tFC", "41 30A\tC5", "212B\tC5", "BD\t31 2F 32", "2460\t31", "130\t49 307", "D A\t20"]
MORE = {
    "marks of sentence pieces": "<s>hello</s> world<unk></s></s>x <pad> [CLS] the dogs[SEP][MASK]  [UNK] [cls]",
    "added in words": "a<mark>b <mark> c  <left>  d  <right>  e<both>f <extra_id_0><extra_id_1> <extra_id_2> NEWword new newword.",
    "added beside numbers": "NEWword\u00b9 NEWword\u0663 NEWword\u200d NEWword\u2163 NEWword\u0301 \u00bdNEWword _NEWword",
    "one added": "<mark>",
    "added at the start": "<mark>hello hello<mark> hello",
    "blank character": "a\u2581b \u2581 \u2581\u2581c",
    "composed and not": "e\u0301 \u00e9 A\u030a \u212b \uac00 \u1100\u1161 \u0344 \u1e9b\u0323 q\u0307\u0323 \u0958 \ufb2c e\u0301\u0301",
    "table": "\ufb01nd \ufb03 \uff21\uff0c\u3002 a\u00a0b\u3000c\u200bd\u00ade \u2026 \u00bd\u2460\u0130 e\u0301x u\u0308 \r\n",
    "bytes in text": "<0x41><0xE4>\x01\x02",
    "words": "unhappiness The DOGS' quick-brown f\u00d6x, don't (really)! \u4f60\u597d world",
}


def texts():
    for case in json.loads((HERE / "cases.json").read_text()):
        if case["tokenizer"] == "gpt2":
            raw = bytes.fromhex(case["bytes"])
            yield case["name"], raw.decode("utf-8", errors="replace"), raw
    yield from ((name, text, text.encode()) for name, text in MORE.items())


def train_sentences(kind, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(filter(None, TRAINING)), model_writer=model, model_type=kind,
                                             minloglevel=2, hard_vocab_limit=False, **options)
    return model.getvalue()


def folder(name, config, **files):
    path = KINDS / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    for file, content in {"tokenizer_config.json": json.dumps(config) + "\n", **files}.items():
        file = file.replace("__", ".")
        (path / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def json_of(model_folder):
    """The tokenizer.json that Hugging Face makes of a folder with a *.model."""
    with tempfile.TemporaryDirectory() as made:
        AutoTokenizer.from_pretrained(model_folder).save_pretrained(made)
        return json.loads((pathlib.Path(made) / "tokenizer.json").read_text())


def added(content, **flags):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False, **flags}


ADDED = [added("<mark>", normalized=True), added("<left>", lstrip=True), added("<right>", rstrip=True), added("<both>", lstrip=True, rstrip=True),
         added("NEWword", single_word=True)]
FAST = "PreTrainedTokenizerFast"


def save_json(name, made, config):
    path = folder(name, config, tokenizer__json=json.dumps(made, ensure_ascii=False))
    return path


def with_added(made):
    first = 1 + max(token["id"] for token in made["added_tokens"] + [{"id": len(made["model"]["vocab"]) - 1}])
    made["added_tokens"] += [{"id": first + i, **token} for i, token in enumerate(ADDED)]
    return made


def make_llama():
    sentences = train_sentences("bpe", vocab_size=420, byte_fallback=True, split_digits=True, character_coverage=0.99,
                                normalization_rule_name="identity", remove_extra_whitespaces=False)
    config = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "legacy": False}
    model = folder("llama2_model", config, tokenizer__model=sentences)
    names = {"tokenizer_class": FAST, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    made = with_added(json_of(model))
    made["model"]["unk_token"] = "<unk>"
    # The settings of one token are tokenizer_config.json's own.
    decoder = {"2": added("</s>", rstrip=True, special=True)}
    mistral = save_json("mistral", made, {**names, "added_tokens_decoder": decoder})
    made = json.loads(json.dumps(made))
    made["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
                                                              {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}
    made["pre_tokenizer"] = None
    return [model, mistral, save_json("llama2", made, names)]


def make_t5():
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        rules.write("".join(rule + "\n" for rule in RULES))
        rules.flush()
        sentences = train_sentences("unigram", vocab_size=260, normalization_rule_tsv=rules.name, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    config = {"tokenizer_class": "T5Tokenizer", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "extra_ids": 3}
    model = folder("t5_model", config, spiece__model=sentences)
    names = {"tokenizer_class": FAST, "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    made = with_added(json_of(model))
    made["normalizer"] = {"type": "Sequence", "normalizers": [made["normalizer"], {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]}
    return [model, save_json("t5", made, names)]


def make_bert():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=40))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(TRAINING, trainers.WordPieceTrainer(vocab_size=300, special_tokens=special, show_progress=False))
    names = {"tokenizer_class": FAST, "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]"}
    return [save_json("bert", with_added(json.loads(tokenizer.to_str())), names)]


def make_qwen():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(QWEN2), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(TRAINING, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False))
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.add_tokens([AddedToken("\u00c5word", normalized=True)])
    return [save_json("qwen2", with_added(json.loads(tokenizer.to_str())), {"tokenizer_class": FAST, "eos_token": "<|endoftext|>"})]


def cases(path):
    auto = AutoTokenizer.from_pretrained(path)
    has_json = (path / "tokenizer.json").exists()
    whole = Tokenizer.from_file(str(path / "tokenizer.json")) if has_json else None
    changed = "added_tokens_decoder" in (path / "tokenizer_config.json").read_text()
    for name, text, raw in texts():
        ids = auto.encode(text, add_special_tokens=False)
        if whole and not changed:
            assert ids == whole.encode(text, add_special_tokens=False).ids, (path, name)
        decoded = auto.backend_tokenizer.decode(ids, skip_special_tokens=False)
        yield {"tokenizer": path.name, "name": name, "bytes": raw.hex(), "ids": ids, "decoded": decoded}


lines = [json.dumps(case) for path in make_llama() + make_t5() + make_bert() + make_qwen() for case in cases(path)]
(KINDS / "cases.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
