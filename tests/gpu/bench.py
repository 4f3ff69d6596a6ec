"""./dev gpu bench: how fast Gantry trains and generates on this machine's GPU, beside PyTorch and transformers in the
same run.

Every part is a process of its own with a deadline. All of them end within ten minutes; what was not reached, or was
stopped, the next call goes on with, and parts that passed are not run again for the same build unless --again is given.
Leaves bench.json and bench.txt in --output, runs/gpu by default. Ends with 0 where all parts passed, 1 where one
failed, 3 where there is no device, and 2 for a wrong call. --rehearse runs all on the CPU with tiny models: it shows
that the bench itself works.
"""
import sys

from parts import GANTRY, HERE, Job, Part, facts_parts

NAMES = {"gpt2": "GPT-2 124M", "llama": "Llama 1B", "llama_long": "Llama 1B at 8,192 tokens", "lora": "Llama 8B with LoRA",
         "lora_long": "Llama 8B with LoRA at 8,192 tokens"}


def parts_of(rehearse):
    def part(what, model, about, seconds, layout=None, graphs=False):
        backend = ["--small", "--backend", "local"] if rehearse else ["--backend", "ipc"] if layout else []
        more = [*backend, *(["--layout", layout] if layout else []), *(["--graphs"] if graphs else [])]
        return Part(f"{model} {layout or ('graphs' if graphs else what)}", f"{NAMES[model]}, {about}",
                    [sys.executable, HERE / "speed.py", what, "--model", model, *more], seconds, needs_device=not rehearse,
                    gives_figures=True, shares_device="ipc" if layout else "")

    def training(what, about, seconds):
        # With the tiny models of the rehearsal, the long sequences are those of the part before.
        return [part(what, model, about, seconds) for model in NAMES if not (rehearse and model.endswith("_long"))]

    graphs = [] if rehearse else [part("gantry", "gpt2", "trained by Gantry with train.device_graphs", 90, graphs=True)]
    measured = [*training("gantry", "trained by Gantry", 120), *graphs, part("profile", "gpt2", "ten steps profiled", 90),
                part("profile", "llama", "ten steps profiled", 90), part("generate", "gpt2", "new tokens by Gantry", 60),
                part("gantry", "gpt2", "two stages as processes on one device", 90, "pp2"),
                part("gantry", "gpt2", "two tensor-parallel ranks as processes on one device", 90, "tp2"),
                *training("eager", "by PyTorch, eager", 90), part("transformers", "gpt2", "new tokens by transformers", 60),
                *training("compiled", "by PyTorch, compiled", 150)]
    # The rehearsal skips the compiler, which takes a minute.
    return facts_parts() + [one for one in measured if not rehearse or not one.name.endswith(" compiled")]


def lines_of(parts):
    """What the figures say beside each other."""
    def rate(name, key="tokens_per_second"):
        return (parts.get(name, {}).get("figures") or {}).get(key)

    def beside(text, one, other, key="tokens_per_second"):
        return [f"{text}: {rate(one, key) / rate(other, key):.3f}"] if rate(one, key) and rate(other, key) else []

    lines = [""]
    for model, name in NAMES.items():
        for peer in ("compiled", "eager"):
            lines += beside(f"{name}, tokens per second, Gantry / PyTorch {peer}", f"{model} gantry", f"{model} {peer}")
        if share := rate(f"{model} gantry", "share_of_peak"):
            lines.append(f"{name}, Gantry's share of the device's dense peak: {share:.1%}")
    lines += beside("GPT-2 124M, tokens per second, Gantry with train.device_graphs / PyTorch compiled", "gpt2 graphs", "gpt2 compiled")
    lines += beside("GPT-2 124M, new tokens per second, Gantry / transformers", "gpt2 generate", "gpt2 transformers",
                    "new_tokens_per_second")
    for layout in ("pp2", "tp2"):
        lines += beside(f"GPT-2 124M, tokens per second, {layout} as processes on one device / one rank", f"gpt2 {layout}", "gpt2 gantry")
        losses = rate(f"gpt2 {layout}", "last_loss"), rate("gpt2 gantry", "last_loss")
        if None not in losses:
            lines.append(f"GPT-2 124M, last loss, {layout} less one rank's: {losses[0] - losses[1]:.2e}")
    return lines


def main():
    job = Job("bench", __doc__, GANTRY, lines_of)
    return job.run(parts_of(job.rehearses))


if __name__ == "__main__":
    sys.exit(main())
