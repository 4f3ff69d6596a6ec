"""Seconds from the start of `gantry train` with chats until its ranks have the data: without a cache, with an empty one, and again.

--lines N chats (100,000) are written, and read by --ranks N processes (2). --tokenizer DIR: another tokenizer.
--program PATH: another build of gantry beside this one, which may be one without data.cache.
"""
import argparse, json, os, pathlib, random, resource, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parent.parent
GANTRY = os.environ.get("GANTRY_BIN", str(ROOT / "build/release/bin/gantry"))
TOKENIZER = ROOT / "tests/golden/tokenizers/kinds/qwen2"


def write_chats(path, count):
    source = random.Random(0)
    words = ["".join(source.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(source.randint(2, 9))) for _ in range(5000)]
    text = lambda: " ".join(source.choice(words) for _ in range(source.randint(5, 60)))
    with open(path, "w") as file:
        for _ in range(count):
            messages = [{"role": role, "content": text()} for _ in range(source.randint(1, 3)) for role in ("user", "assistant")]
            file.write(json.dumps({"messages": messages}) + "\n")


def seconds_to_data(program, folder, ranks, sets):
    """Until rank 0 says what the data have."""
    command = [program, "launch", "-n", str(ranks), "--", program, "train", str(folder / "run.yaml")]
    for each in sets:
        command += ["--set", each]
    environment = dict(os.environ, XDG_CACHE_HOME=str(folder / "cache"), OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    started = time.perf_counter()
    found = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as job:
        lines = []
        for line in job.stdout:
            lines.append(line)
            if found is None and "data: " in line:
                found = time.perf_counter() - started
    if found is None or job.returncode != 0:
        sys.exit("error: the run failed:\n" + "".join(lines[-5:]))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokenizer", type=pathlib.Path, default=TOKENIZER)
    parser.add_argument("--vocabulary", type=int, default=1024)
    parser.add_argument("--program")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        write_chats(folder / "chats.jsonl", arguments.lines)
        model = dict(vocab_size=arguments.vocabulary, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
                     num_attention_heads=2, max_position_embeddings=4096)
        data = dict(format="jsonl", path=str(folder / "chats.jsonl"), tokenizer=str(arguments.tokenizer.resolve()),
                    chat_template="chatml", sequence_length=4096, batch_size=arguments.ranks)
        config = dict(model=dict(policy="llama", config=model), data=data, parallel=dict(data=arguments.ranks),
                      train=dict(steps=1), comm=dict(threads_per_rank=1))
        (folder / "run.yaml").write_text(json.dumps(config))
        names = (["other program"] if arguments.program else []) + ["no cache", "empty cache", "again"]
        times = {name: [] for name in names}
        for _ in range(arguments.rounds):
            if arguments.program:
                times["other program"].append(seconds_to_data(arguments.program, folder, arguments.ranks, []))
            times["no cache"].append(seconds_to_data(GANTRY, folder, arguments.ranks, ["data.cache=never"]))
            subprocess.run(["rm", "-rf", str(folder / "cache")], check=True)
            for name in ("empty cache", "again"):
                times[name].append(seconds_to_data(GANTRY, folder, arguments.ranks, []))
        base = min(times[names[0]])
        for name in names:
            print(f"{name:14} {min(times[name]):7.2f} s  {min(times[name]) / base:5.2f} of {names[0]}")
        stored = sum(file.stat().st_size for file in (folder / "cache").rglob("*.rows"))
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        print(f"{stored / 1e6:.0f} MB in the cache; largest process {peak / 1e3:.0f} MB, of which pages of the cache are shared")


if __name__ == "__main__":
    main()
