"""Runs the tests again and again on a busy machine, to find those that fail by chance.

usage: ./dev test shake [MINUTES] [--only REGEX] [--since COMMIT] [--again]

Three phases, of which each call continues the one before until MINUTES (60) are over:
  load     every test with threads, processes, sockets, deadlines or bitwise checks 50 times, next to four busy processes and
           one that writes and reads 2 GB in a loop
  quarter  the same tests 20 times at a quarter of the processor time of this machine
  suite    the whole suite three times
The tests of the first two phases are found in their sources. --since COMMIT takes only tests whose programs were built from
sources that changed since COMMIT, and --only those whose names match. Counts are kept in build/PRESET/shake/counts.json until
--again; outputs of failures are kept next to it. Prints which test failed how often. Exit code 1 if a test failed.
"""
import argparse, collections, json, os, pathlib, re, signal, subprocess, sys, time
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What makes a test depend on the machine: concurrency, time, other processes, or equal bits.
DELICATE = re.compile(r"std::j?thread|std::async|launch\(|launch_|run_ranks|run_case|fork\(|run_program|Background|socket|kill\(|"
                      r"steady_clock|deadline|timeout|torch::equal|memcmp|expect_bits|// ranks:")
RUNS = {"load": 50, "quarter": 20, "suite": 3}
BATCH = 16  # tests of one call of ctest
BUSY = "while True: pass"
DISK = """
import os, sys, tempfile
block = os.urandom(1 << 20)
with tempfile.TemporaryFile(dir=sys.argv[1]) as file:
    while True:
        file.seek(0)
        for _ in range(2048): file.write(block)
        file.flush(); file.seek(0)
        while file.read(1 << 20): pass
"""


class Load:
    """Processes that keep the machine busy, and end with the block."""

    def __init__(self, folder):
        self.commands = [[sys.executable, "-c", BUSY]] * 4 + [[sys.executable, "-c", DISK, str(folder)]]

    def __enter__(self):
        self.processes = [subprocess.Popen(command) for command in self.commands]

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


class Quarter:
    """A control group with a quarter of the machine's processor time, or one core beside three busy processes if this
    machine lets nobody make one. `prefix` starts a command in it."""

    GROUP = pathlib.Path("/sys/fs/cgroup/gantry_shake")

    def __enter__(self):
        self.busy = []
        try:
            self.GROUP.mkdir(exist_ok=True)
            (self.GROUP / "cpu.max").write_text(f"{max(1, os.cpu_count() * 25000)} 100000")
            self.prefix = ["sh", "-c", f'echo $$ >{self.GROUP}/cgroup.procs && exec "$@"', "sh"]
            subprocess.run([*self.prefix, "true"], check=True, stderr=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError):
            self.prefix = ["taskset", "-c", "0"]
            self.busy = [subprocess.Popen(["taskset", "-c", "0", sys.executable, "-c", BUSY]) for _ in range(3)]
        return self

    def __exit__(self, *_):
        for process in self.busy:
            process.kill()
            process.wait()
        try:
            self.GROUP.rmdir()
        except OSError:
            pass  # never made, or the system removes it once its processes are gone


def entries(build):
    """Names of all tests of ctest."""
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, stdout=subprocess.PIPE, text=True)
    return [test["name"] for test in json.loads(shown.stdout)["tests"]]


def source_of(name):
    """tests/comm/world_test.cpp of comm/world, comm/world_mpi_4 and devices/comm_world; None of scripts."""
    folder, _, rest = name.partition("/")
    rest = re.sub(r"(_mpi)_\d+$", r"\1", rest)
    places = [ROOT / "tests" / folder / f"{rest}_test.cpp"]
    if folder == "devices":
        of, _, test = rest.partition("_")
        places.append(ROOT / "tests" / of / f"{test}_test.cpp")
    return next((place for place in places if place.exists()), None)


def is_delicate(name):
    source = source_of(name)
    return source is None or name.startswith("devices/") or bool(DELICATE.search(source.read_text()))


def changed_since(commit, names):
    """Tests whose sources changed, and all delicate tests of the folders whose code did."""
    paths = subprocess.run(["git", "-C", ROOT, "diff", "--name-only", commit], check=True, stdout=subprocess.PIPE,
                           text=True).stdout.split()
    sources = {ROOT / path for path in paths}
    folders = {path.removeprefix("include/gantry/").split("/")[0] for path in paths if path.endswith((".cpp", ".h"))}
    in_folders = lambda name: name.split("/")[-1].split("_")[0] in folders or name.split("/")[0] in folders
    return [name for name in names if source_of(name) in sources or in_folders(name)]


class Shake:
    def __init__(self, build, only, since):
        self.build, self.folder = build, build / "shake"
        self.folder.mkdir(exist_ok=True)
        self.file = self.folder / "counts.json"
        self.counts = json.loads(self.file.read_text()) if self.file.exists() else {}
        names = [name for name in entries(build) if re.search(only, name)]
        if since:
            names = changed_since(since, names)
        self.tests = {"suite": names, "load": [name for name in names if is_delicate(name)]}
        self.tests["quarter"] = self.tests["load"]

    def of(self, phase, name):
        return self.counts.setdefault(phase, {}).setdefault(name, {"runs": 0, "failures": 0})

    def next_batch(self, phase):
        """The tests that ran least often, so that counts grow evenly."""
        due = [name for name in self.tests[phase] if self.of(phase, name)["runs"] < RUNS[phase]]
        due.sort(key=lambda name: self.of(phase, name)["runs"])
        return due[:BATCH]

    def run(self, phase, batch, prefix, ends):
        report = self.folder / "report.xml"
        report.unlink(missing_ok=True)
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        ctest = ["ctest", "--test-dir", self.build, "-j", str(os.cpu_count()), "--output-junit", report, "-R",
                 "^(" + "|".join(map(re.escape, batch)) + ")$"]
        process = subprocess.Popen([*prefix, *map(str, ctest)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   env=environment, start_new_session=True)
        try:
            process.wait(timeout=max(1.0, ends - time.monotonic()))
        except subprocess.TimeoutExpired:  # the time is over: this batch does not count
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return
        for case in xml.parse(report).getroot().iter("testcase"):
            count = self.of(phase, case.get("name"))
            if case.get("status") == "notrun":  # skipped
                count["runs"] = RUNS[phase]
                continue
            count["runs"] += 1
            if case.get("status") == "fail":
                count["failures"] += 1
                log = self.folder / f"{phase}-{case.get('name').replace('/', '-')}-{count['runs']}.log"
                log.write_text(case.findtext("system-out") or "")
                print(f"{phase}: {case.get('name')} failed in run {count['runs']}: {log}", flush=True)
        self.file.write_text(json.dumps(self.counts, indent=1))

    def phase(self, phase, prefix, ends):
        while time.monotonic() < ends and (batch := self.next_batch(phase)):
            self.run(phase, batch, prefix, ends)

    def summary(self):
        """Prints what ran how often, and returns how many tests failed."""
        failed = collections.Counter()
        for phase in RUNS:
            counts = [self.of(phase, name) for name in self.tests[phase]]
            least = min((count["runs"] for count in counts), default=0)
            print(f"{phase}: {len(counts)} tests, {sum(count['runs'] for count in counts)} runs, each at least {least} of "
                  f"{RUNS[phase]} times, {sum(count['failures'] for count in counts)} failures")
            for name in self.tests[phase]:
                if self.of(phase, name)["failures"]:
                    failed[name] += self.of(phase, name)["failures"]
        for name, failures in failed.most_common():
            print(f"{failures:4} failures of {sum(self.of(phase, name)['runs'] for phase in RUNS)} runs: {name}")
        return len(failed)


def main():
    parser = argparse.ArgumentParser(prog="./dev test shake", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("minutes", nargs="?", type=float, default=60)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", help=argparse.SUPPRESS)
    parser.add_argument("--only", default="")
    parser.add_argument("--since")
    parser.add_argument("--again", action="store_true", help="forget earlier counts")
    args = parser.parse_args()
    if args.again:
        (args.build / "shake/counts.json").unlink(missing_ok=True)
    shake = Shake(args.build.absolute(), args.only, args.since)
    ends = time.monotonic() + 60 * args.minutes
    with Load(shake.folder):
        shake.phase("load", [], ends)
    with Quarter() as quarter:
        shake.phase("quarter", quarter.prefix, ends)
    shake.phase("suite", [], ends)
    return 1 if shake.summary() else 0


if __name__ == "__main__":
    sys.exit(main())
