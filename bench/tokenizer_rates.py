"""Tokens a second of Gantry's tokenizers and of Hugging Face's, side by side on the same text, which is checked to give the same ids.

The text is Python's standard library, a document a file; the vocabularies (32000, split as GPT-2 and as Llama 3) are trained on it here.
--megabytes takes less of it, --json FILE keeps the figures. Hugging Face runs encode_batch_fast, the fastest that it has.
"""
import argparse, array, json, os, pathlib, subprocess, sys, sysconfig, tempfile, time

BENCH = pathlib.Path(__file__).resolve().parent.parent / "build/release/bench/tokenizer_bench"
PATTERNS = {
    "GPT-2": None,
    "Llama 3": (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"),
}


def write_documents(path, most_bytes):
    size = 0
    with path.open("w") as file:
        for source in sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
            text = source.read_text(errors="replace")
            file.write(json.dumps({"text": text}) + "\n")
            size += len(text.encode())
            if size > most_bytes:
                break
    return size


def read_documents(path):
    return [json.loads(line)["text"] for line in path.open()]


def train(path, pattern, documents):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE(ignore_merges=pattern is not None))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    split = [pre_tokenizers.Split(Regex(pattern), "isolated")] if pattern else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(split + [byte_level]) if split else byte_level
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(documents, trainers.BpeTrainer(vocab_size=32000, show_progress=False, special_tokens=["<|endoftext|>"],
                                                                 initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    tokenizer.save(str(path))


def hugging_face(tokenizer_path, documents_path, ids_path):
    """In a process of its own: the number of threads is fixed when the library starts."""
    from tokenizers import Tokenizer
    tokenizer, documents, seconds = Tokenizer.from_file(tokenizer_path), read_documents(pathlib.Path(documents_path)), []
    for _ in range(3):
        started = time.perf_counter()
        made = tokenizer.encode_batch_fast(documents, add_special_tokens=False)
        seconds.append(time.perf_counter() - started)
    ids = array.array("q")
    for encoding in made:
        ids.extend(encoding.ids)
    pathlib.Path(ids_path).write_bytes(ids.tobytes())
    print(json.dumps({"tokens": len(ids), "seconds": min(seconds)}))


def outcome(command, **environment):
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}).stdout
    return json.loads(out.splitlines()[-1])


def measure(folder, megabytes):
    documents = folder / "documents.jsonl"
    size, figures = write_documents(documents, megabytes * 1e6), []
    print(f"{size / 1e6:.1f} MB of text; million tokens per second\n\n{'tokenizer':10} {'threads':>7} {'Gantry':>8} {'HF':>8} {'ratio':>6}")
    for name, pattern in PATTERNS.items():
        tokenizer = folder / f"{name.replace(' ', '')}.json"
        train(tokenizer, pattern, read_documents(documents))
        for threads in sorted({1, os.cpu_count()}):
            ours = outcome([BENCH, tokenizer, documents, str(threads), folder / "ours"])
            theirs = outcome([sys.executable, __file__, "--child", tokenizer, documents, folder / "theirs"], RAYON_NUM_THREADS=str(threads),
                             TOKENIZERS_PARALLELISM="true" if threads > 1 else "false")
            if (folder / "ours").read_bytes() != (folder / "theirs").read_bytes():
                sys.exit(f"error: {name}: the ids differ")
            rates = [each["tokens"] / each["seconds"] / 1e6 for each in (ours, theirs)]
            figures.append(dict(tokenizer=name, threads=threads, gantry=rates[0], hugging_face=rates[1], ratio=rates[0] / rates[1]))
            print(f"{name:10} {threads:7} {rates[0]:8.2f} {rates[1]:8.2f} {rates[0] / rates[1]:6.2f}", flush=True)
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=12)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return hugging_face(*arguments.child)
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(pathlib.Path(folder), arguments.megabytes)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
