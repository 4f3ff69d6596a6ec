"""The cost of starting many ranks on one host: processor seconds of `gantry launch --backend tcp` for ranks without LibTorch that meet,
gather a text of each and leave, as a ratio to those of as many /bin/true in the same run. Each round starts both, in turn.

--ranks N (1000), --rounds N (3), --json FILE keeps the figures.
"""
import argparse, json, os, pathlib, statistics, subprocess, sys, time

BUILD = pathlib.Path(__file__).resolve().parent.parent / "build/release"
GANTRY = os.environ.get("GANTRY_BIN", str(BUILD / "bin/gantry"))
PROGRAMS = {"/bin/true": ["/bin/true"], "ranks that meet": [str(BUILD / "bench/control_bench"), "rank"]}
LIMIT = 3  # the ratio


def start(ranks, program):
    """Seconds of the clock and of the processors, of the launch and all its children."""
    before, clock = os.times(), time.perf_counter()
    subprocess.run([GANTRY, "launch", "--backend", "tcp", "--start-seconds", "300", "-n", str(ranks), "--", *program], check=True,
                   stdout=subprocess.DEVNULL)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - clock, used


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    times = {name: [] for name in PROGRAMS}
    for _ in range(arguments.rounds):
        for name, program in PROGRAMS.items():
            times[name].append(start(arguments.ranks, program))
    print(f"{arguments.ranks} ranks      {'wall s':>8} {'processor s':>12}")
    medians = {}
    for name, mine in times.items():
        wall, medians[name] = (statistics.median(column) for column in zip(*mine))
        print(f"{name:16} {wall:8.1f} {medians[name]:12.1f}")
    ratio = medians["ranks that meet"] / medians["/bin/true"]
    print(f"ratio of the processor seconds: {ratio:.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(dict(ranks=arguments.ranks, processor_seconds=medians, ratio=ratio), indent=2) + "\n")
    if ratio > LIMIT:
        sys.exit(f"error: the ratio is {ratio:.2f}; expected at most {LIMIT}")


if __name__ == "__main__":
    main()
