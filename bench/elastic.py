"""Samples of an elastic job that loses ranks again and again, as a share of those of the same job undisturbed.

Each of R replicas is a process of one thread, and a microbatch occupies its device for --device-ms, in which the process sleeps
(bench/elastic_bench.cpp): on a machine with few cores, a lost replica would otherwise leave its share of them to the others. A row is
one job of --minutes, counted from its first steps, with a fault every P seconds at a replica that takes part (--seed):

  kills P       SIGKILL
  mixed P       27 of 45 faults are SIGKILL, 18 are SIGSTOP for 20 s
  partitions P  as mixed P, and 17 of 62 faults are partitions: the network of the replica's host is down for 20 s. Each replica has a
                network namespace, where ranks do not share memory. Left out if this user may not create namespaces
  restarts P    the faults of kills P under `gantry launch --restarts`, in place of `elastic`

"kept" is samples per second, divided by those of an undisturbed row over the same network. "of living" divides both by the replicas
that took part, too: a replica is missing from its fault until it joins. Steps that were repeated count once, also steps that the
restarts repeat from their checkpoint. "busy" is the share of the undisturbed row in which the devices compute: far below 100%, the
processors of the machine are the limit, and the row shows little about faults.
"""
import argparse, contextlib, json, os, pathlib, random, signal, statistics, subprocess, sys, tempfile, threading, time

from communication import HOSTS, network

ROOT = pathlib.Path(__file__).resolve().parent.parent
GANTRY = ROOT / "build/release/bin/gantry"
PROGRAM = ROOT / "build/release/bench/elastic_bench"
KINDS = {"undisturbed": [], "kills": ["kill"], "restarts": ["kill"], "mixed": ["kill"] * 27 + ["stop"] * 18,
         "partitions": ["kill"] * 27 + ["stop"] * 18 + ["partition"] * 17}
OUTAGE = 20  # seconds of a stop or a partition
SEQUENCE = 16


def may_have_namespaces():
    with tempfile.TemporaryDirectory() as folder:
        name = f"probe{os.getpid() % 10000}"
        made = subprocess.run([HOSTS, "up", name, "1", folder], capture_output=True)
        if (pathlib.Path(folder) / "name").exists():
            subprocess.run([HOSTS, "down", folder], capture_output=True)
        return made.returncode == 0


def configuration(folder, replicas, arguments, elastic):
    text = folder / "text.txt"
    text.write_text("".join(chr(97 + i * i % 23) for i in range(20000)))
    config = {
        "model": {"policy": "gpt2", "config": {"n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 256, "n_positions": SEQUENCE}},
        "schedule": {"microbatch_size": 1},
        "data": {"format": "text", "path": str(text), "sequence_length": SEQUENCE, "batch_size": replicas * (replicas - 1)},
        "comm": {"threads_per_rank": 1, "timeout_seconds": 60}, "optimizer": {"name": "adamw", "clip_grad_norm": 1.0},
        "checkpoint": {"path": str(folder / "checkpoints"), "every": arguments.save_every, "async": True, "keep": 2},
        "output": str(folder / "output"), "train": {"steps": 10_000_000, "log_every": 1_000_000}}
    if elastic:
        config["elastic"] = {"min_replicas": 1, "heartbeat": arguments.heartbeat}
    (folder / "run.yaml").write_text(json.dumps(config))
    return folder / "run.yaml"


class Job:
    """A job under `gantry launch`, and what its ranks and its launch have reported."""

    def __init__(self, folder, replicas, arguments, elastic, hosts):
        self.folder, self.replicas, self.elastic, self.hosts = folder, replicas, elastic, hosts
        self.moments = folder / "moments"
        self.moments.mkdir()
        config = configuration(folder, replicas, arguments, elastic)
        launch = [GANTRY, "launch", "--backend", "tcp"]
        launch += [] if elastic else ["--restarts", "1000", "--checkpoints", folder / "checkpoints"]
        environment = dict(os.environ)
        if hosts:
            space, names = hosts
            launch += ["--hosts", ",".join(f"{name}:1" for name in names[1:]), "--interface", "eth0"]
            launch = [HOSTS, "run", space, names[0], "exec", *launch]
            environment["GANTRY_REMOTE_SHELL"] = f"{space}/agent"
        else:
            launch += ["-n", str(replicas)]
        command = [str(word) for word in [*launch, "--", PROGRAM, config, arguments.device_ms, self.moments]]
        self.lines = []  # (time, line)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.rstrip()))

    def output(self):
        return "\n".join(line for _, line in self.lines[-40:])

    def events(self, rank):
        file = self.moments / f"{rank}.jsonl"
        if not file.exists():
            return []
        return [json.loads(line) for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def all_events(self):
        events = [dict(event, rank=rank) for rank in range(self.replicas) for event in self.events(rank)]
        return sorted(events, key=lambda event: event["at"])

    def last_event(self, rank):
        file = self.moments / f"{rank}.jsonl"
        if not file.exists() or file.stat().st_size == 0:
            return None
        with open(file, "rb") as stream:
            stream.seek(max(0, file.stat().st_size - 4096))
            lines = stream.read().split(b"\n")
        return json.loads(lines[-2]) if len(lines) > 1 and lines[-2].startswith(b"{") else None

    def step(self):
        found = [self.last_event(rank) for rank in range(self.replicas)]
        return max((event["step"] for event in found if event), default=0)

    def wait_for_step(self, step, seconds):
        end = time.monotonic() + seconds
        while self.step() < step:
            if time.monotonic() > end or self.process.poll() is not None:
                sys.exit(f"error: the job did not reach step {step}:\n{self.output()}")
            time.sleep(0.05)

    def trains(self, rank):
        """The process of a rank that takes part in the job."""
        event = self.last_event(rank)
        if not event or event["moment"] != "step" or time.monotonic() - event["at"] > 10:
            return None
        return event["process"] if pathlib.Path(f"/proc/{event['process']}").exists() else None

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(90)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            sys.exit(f"error: the job did not end on SIGTERM:\n{self.output()}")
        return code


def send(process, number):
    try:
        os.kill(process, number)
    except ProcessLookupError:
        pass  # the launch has ended it


def disturb(job, kind, rank, process):
    """Causes the fault, and returns the function that ends it."""
    if kind == "kill":
        send(process, signal.SIGKILL)
        return lambda: None
    if kind == "stop":
        send(process, signal.SIGSTOP)
        return lambda: send(process, signal.SIGCONT)
    host = job.hosts[1][rank + 1]
    subprocess.run([HOSTS, "cut", job.hosts[0], host], check=True)
    return lambda: subprocess.run(["ip", "-n", host, "link", "set", "eth0", "up"], check=True)


def run_faults(job, kinds, period, begin, end, source):
    """A fault every `period` seconds, at a rank that takes part. Returns (time, kind, rank) of each; None: no rank took part."""
    faults, ends = [], []
    due = begin + period if period else end
    while (now := time.monotonic()) < end:
        for when, act in [one for one in ends if one[0] <= now]:
            act()
            ends.remove((when, act))
        if now >= due and due < end:
            due += period
            ranks = {rank: process for rank in range(job.replicas) if (process := job.trains(rank))}
            kind = source.choice(kinds)
            if len(ranks) < 2:
                faults.append(None)
            else:
                rank = source.choice(sorted(ranks))
                ends.append((now + OUTAGE, disturb(job, kind, rank, ranks[rank])))
                faults.append((now, kind, rank))
        if job.process.poll() is not None:
            sys.exit(f"error: the job has ended:\n{job.output()}")
        time.sleep(max(0.0, min(0.05, end - time.monotonic())))
    for _, act in ends:
        act()
    return faults


def first_after(events, when, wanted):
    return next((event["at"] - when for event in events if event["at"] > when and wanted(event)), None)


def timelines(job, faults, events):
    """For each fault, seconds from it to: the launch's word, the end of the body, the next body, its first step, the join."""
    found = []
    for when, kind, rank in faults:
        before = max((event["generation"] for event in events if event["at"] <= when and event["moment"] == "step"), default=0)
        others = [event for event in events if event["rank"] != rank]
        newer = lambda name: (lambda event: event["moment"] == name and event["generation"] > before)
        word = next((at - when for at, line in job.lines if at > when and "the job continues" in line), None)
        left = first_after(others, when, lambda event: event["moment"] == "left")
        joined = first_after([event for event in events if event["rank"] == rank], when, newer("step"))
        found.append(dict(kind=kind, detected=word, left=left, body=first_after(others, when, newer("body")),
                          start=first_after(others, when, newer("start")), step=first_after(others, when, newer("step")), joined=joined))
    return found


def missing_seconds(faults, found, end):
    """Replica-seconds from the faults until the replicas joined."""
    return sum(min(line["joined"] if line["joined"] is not None else end, end - when) for (when, _, _), line in zip(faults, found))


def check_metrics(folder):
    steps = [json.loads(line) for line in (folder / "output/metrics.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in steps if "loss" in line]
    if steps != list(range(1, len(steps) + 1)):
        sys.exit("error: metrics.jsonl does not have each step once, in order")


def size_of(process):
    status = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{process}/status").read_text().splitlines() if ":" in line)
    return dict(rss_mb=int(status["VmRSS"].split()[0]) / 1024, threads=int(status["Threads"]), files=len(os.listdir(f"/proc/{process}/fd")))


def run_row(row, replicas, arguments, hosts):
    name, _, period = row.partition(" ")
    period = float(period or 0)
    elastic = name != "restarts"
    source = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        job = Job(folder, replicas, arguments, elastic, hosts)
        try:
            job.wait_for_step(5, 180)
            begin, first = time.monotonic(), job.step()
            end = begin + 60 * arguments.minutes
            oldest = {rank: (process, size_of(process)) for rank in range(replicas) if (process := job.trains(rank))}
            drawn = run_faults(job, KINDS[name], period, begin, end, source)
            last = job.step()
            sizes = [(size, size_of(process)) for rank, (process, size) in oldest.items() if job.trains(rank) == process]
            code = job.stop()
        finally:
            if job.process.poll() is None:
                os.killpg(job.process.pid, signal.SIGKILL)
        if elastic:
            check_metrics(folder)
            if code != 75:
                sys.exit(f"error: exit code {code} of the job, expected 75:\n{job.output()}")
        events = [event for event in job.all_events() if event["at"] <= end]
        last = max(event["step"] for event in events if event["moment"] == "step")
        faults = [fault for fault in drawn if fault]
        found = timelines(job, faults, events) if elastic else []
        if arguments.verbose:
            for (when, kind, rank), line in zip(faults, found):
                print(f"  {when - begin:7.1f} s rank {rank}", json.dumps({key: round(v, 3) if isinstance(v, float) else v for key, v in line.items()}))
            print("\n".join(f"  {at - begin:7.2f} {line}" for at, line in job.lines))
        batch = replicas * (replicas - 1)
        samples = (last - first) * batch
        living = replicas * (end - begin) - missing_seconds(faults, found, end)
        return dict(row=row, replicas=replicas, seconds=end - begin, steps=last - first, samples=samples, rate=samples / (end - begin),
                    rate_of_living=samples / living, busy=(last - first) * batch / replicas * arguments.device_ms / 1000 / (end - begin), faults=len(faults), skipped=len(drawn) - len(faults), timelines=found,
                    load=os.getloadavg()[1], sizes=sizes)


def print_row(figure, undisturbed):
    kept = figure["rate"] / undisturbed["rate"]
    living = figure["rate_of_living"] / undisturbed["rate_of_living"]
    is_elastic = not figure["row"].startswith("restarts")
    print(f"{figure['replicas']:8} {figure['row']:14} {figure['seconds']:7.0f} {figure['faults']:6} {figure['rate']:10.1f} {100 * kept:8.1f}%"
          + (f" {100 * living:8.1f}%" if is_elastic else f" {'':9}") + f" {100 * figure['busy']:5.0f}% {figure['load']:6.1f}", flush=True)
    for kind in ("kill", "stop", "partition"):
        lines = [line for line in figure["timelines"] if line["kind"] == kind]
        if not lines:
            continue
        medians = []
        for key in ("detected", "left", "body", "start", "step", "joined"):
            known = [line[key] for line in lines if line[key] is not None]
            medians.append(f"{key} {statistics.median(known):.2f}" if known else f"{key} -")
        print(f"{'':9}{len(lines)} of kind {kind}, median seconds: " + ", ".join(medians), flush=True)
    if figure["skipped"]:
        print(f"{'':9}{figure['skipped']} faults found no job that trained", flush=True)
    for before, after in figure["sizes"][:1]:
        print(f"{'':9}oldest process: " + ", ".join(f"{key} {before[key]:.0f} -> {after[key]:.0f}" for key in before), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="of each row")
    parser.add_argument("--replicas", type=int, nargs="+", default=[8], help="number of replicas, of each table")
    parser.add_argument("--rows", default="kills 29;kills 15;mixed 29;restarts 29;partitions 29", help="separated by semicolons")
    parser.add_argument("--device-ms", type=float, default=40, help="time of a microbatch of one sample")
    parser.add_argument("--heartbeat", type=float, default=0.3, help="elastic.heartbeat")
    parser.add_argument("--save-every", type=int, default=50, help="checkpoint.every, in steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="print each fault, and the lines of the launch")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    rows = [row for row in arguments.rows.split(";") if row]
    if any(row.startswith("partitions") for row in rows) and not may_have_namespaces():
        rows = [row for row in rows if not row.startswith("partitions")]
        print("left out: partitions, because this user may not create network namespaces")
    print(f"{os.cpu_count()} cores, {arguments.minutes:g} minutes a row, a microbatch takes {arguments.device_ms:g} ms, heartbeat "
          f"{arguments.heartbeat:g} s, a checkpoint every {arguments.save_every} steps")
    print(f"{'replicas':>8} {'row':14} {'seconds':>7} {'faults':>6} {'samples/s':>10} {'kept':>9} {'of living':>9} {'busy':>6} {'load':>6}", flush=True)
    figures = []
    for replicas in arguments.replicas:
        for has_spaces in (False, True):
            mine = [row for row in rows if row.startswith("partitions") == has_spaces]
            undisturbed = None
            for row in ["undisturbed", *mine] if mine else []:
                with network(replicas + 1) if has_spaces else contextlib.nullcontext() as hosts:
                    figures.append(run_row(row, replicas, arguments, hosts))
                undisturbed = undisturbed or figures[-1]
                print_row(figures[-1], undisturbed)
                if arguments.json:
                    arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
