"""Training runs of the benches: tokens that mean nothing, a configuration in a folder, and what a run writes of its steps."""
import json, struct, subprocess


def tokens_section(folder, count, words, sequence, batch):
    """The `data` section of samples of so many tokens below `words`, out of a file of `count` and one that is made once."""
    path = folder / f"tokens_{count}_{words}.bin"
    if not path.exists():
        path.write_bytes(b"".join(struct.pack("<H", i * i % words) for i in range(count + 1)))
    return {"format": "tokens", "path": str(path), "sequence_length": sequence, "batch_size": batch, "shuffle": False}


def write_config(folder, sections):
    """The file, whose run writes into `folder`/out."""
    config = folder / "config.yaml"
    config.write_text(json.dumps(sections | {"output": str(folder / "out")}))
    return config


def run_steps(program, config, *flags):
    """Trains; the metrics of each step."""
    subprocess.run([program, "train", config, *flags], check=True, stdout=subprocess.DEVNULL)
    return [json.loads(line) for line in (config.parent / "out/metrics.jsonl").read_text().splitlines()]
