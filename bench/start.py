"""Milliseconds from the start of `gantry --help` and of its engine, which loads LibTorch, to their ends, with those of other
programs that only start and print a line, and of a Python that imports torch, in one run.

Each round runs every program once, so that a machine whose speed drifts is fair to all. --rounds N, --json FILE keeps the figures.
"""
import argparse, json, os, pathlib, statistics, subprocess, sys, time

GANTRY = os.environ.get("GANTRY_BIN", str(pathlib.Path(__file__).resolve().parent.parent / "build/release/bin/gantry"))
ENGINE = str(pathlib.Path(GANTRY).parent.parent / "libexec/gantry/gantry-engine")
PYTHON = str(pathlib.Path(__file__).resolve().parent.parent / ".deps/venv/bin/python3")
OURS = [[GANTRY, "--help"], [GANTRY, "--version"], [GANTRY, "help", "schedule", "draw"], [ENGINE, "--help"]]
PEERS = [["git", "--version"], ["python3", "-c", "pass"], *([[PYTHON, "-c", "import torch"]] if os.path.exists(PYTHON) else [])]
LIMIT = 50  # milliseconds, of `gantry --help`


def milliseconds(command):
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return 1e3 * (time.perf_counter() - started)


def name_of(command):
    return " ".join([pathlib.Path(command[0]).name, *command[1:]])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    commands = OURS + PEERS
    for command in commands:  # from the disk into memory
        milliseconds(command)
    times = [[] for _ in commands]
    for _ in range(arguments.rounds):
        for command, mine in zip(commands, times):
            mine.append(milliseconds(command))
    medians = [statistics.median(mine) for mine in times]
    peers = [name_of(peer) for peer in PEERS]
    print(f"{'':26} {'ms':>7} {'slowest':>8}" + "".join(f" {'of ' + peer:>20}" for peer in peers))
    figures = []
    for command, mine, median in zip(commands, times, medians):
        ratios = [median / peer for peer in medians[len(OURS):]]
        figures.append(dict(command=name_of(command), milliseconds=median, slowest=max(mine), ratios=dict(zip(peers, ratios))))
        print(f"{name_of(command):26} {median:7.1f} {max(mine):8.1f}" + "".join(f" {ratio:20.2f}" for ratio in ratios))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    if medians[0] >= LIMIT:
        sys.exit(f"error: gantry --help takes {medians[0]:.1f} ms; expected under {LIMIT}")


if __name__ == "__main__":
    main()
