"""Saving and loading checkpoints: Gantry, torch.distributed.checkpoint and safetensors beside plain writes and reads of the
same bytes on the same disk, in turn. Prints one table; --json FILE keeps the figures.
"""
import argparse, json, pathlib, statistics, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def lines_of(command):
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=480)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build", help="on the disk to measure")
    parser.add_argument("--pause", type=float, default=5, help="seconds between programs")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    figures = []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for _ in range(args.rounds):  # in turn, so that a disk whose speed drifts is fair to both; first saves warm up
            for command in ([ROOT / "build/release/bench/checkpoint_bench"], [sys.executable, "-W", "ignore", ROOT / "bench/checkpoint_peer.py"]):
                time.sleep(args.pause)  # for the disk to come to rest
                lines = lines_of([*command, folder, str(args.megabytes), "4"])
                figures += lines[len(lines) // 4:]
    rows = {}
    for figure in figures:
        rows.setdefault(figure["what"], []).append(figure["seconds"])
    size = figures[0]["bytes"]
    seconds = {what: statistics.median(all_) for what, all_ in rows.items()}
    print(f"{'':38} {'s':>8} {'MB/s':>8} {'of plain':>9}")
    for what in sorted(seconds, key=lambda w: ("read" in w or "load" in w, w)):
        plain = seconds["plain read" if "read" in what or "load" in what else "plain write"]
        rate = size / seconds[what] / 1e6
        print(f"{what:38} {seconds[what]:8.3f} {rate:8.0f} {100 * plain / seconds[what]:8.0f}%")
    share = seconds["asynchronous save, blocked"] / seconds["save"]
    print(f"an asynchronous save blocks for {100 * share:.1f}% of a synchronous one")
    if args.json:
        args.json.write_text(json.dumps(dict(bytes=size, seconds=rows), indent=1))


if __name__ == "__main__":
    main()
