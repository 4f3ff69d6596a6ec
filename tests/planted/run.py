"""Plants every fault of faults.tsv, one at a time, and sees the named tests fail on it, and pass without it.

run.py BUILD_FOLDER SOURCE_FOLDER [FAULT...]
"""
import concurrent.futures
import functools
import os
import pathlib
import re
import subprocess
import sys

SECONDS = 300  # a fault may make ranks wait for ever


def faults_of(page):
    rows = [line.split("\t") for line in page.read_text().splitlines() if not line.startswith("#")]
    return {fault: (program, tests) for fault, program, tests in rows}


def asked_in(source):
    """The names that the code asks for."""
    names = set()
    for room in source.iterdir():
        if room.is_dir() and room.name not in ("build", "tests") and not room.name.startswith("."):
            for file in list(room.rglob("*.cpp")) + list(room.rglob("*.h")):
                names.update(re.findall(r'planted\("([^"]+)"\)', file.read_text()))
    return names


class Runner:
    def __init__(self, build):
        self.build = build

    def run(self, program, tests, fault=None):
        """None where all tests passed, else the first failure."""
        environment = dict(os.environ, LD_LIBRARY_PATH=str(self.build / "planted"), OMP_NUM_THREADS="1")
        if fault:
            environment["GANTRY_FAULT"] = fault
        command = [self.build / "tests" / program, f"--gtest_filter={tests}"]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return f"no end within {SECONDS} s"
        if "[==========] Running 0 tests" in done.stdout:
            sys.exit(f"{program} has no tests {tests}")
        if done.returncode == 0:
            return None
        failed = re.findall(r"^\[  FAILED  \] (\S+)", done.stdout, re.MULTILINE)
        return failed[0] if failed else f"ends with {done.returncode}"

    @functools.cache
    def passes(self, program, tests):
        return self.run(program, tests) is None

    def look(self, row):
        fault, (program, tests) = row
        if not self.passes(program, tests):
            return f"NOT SEEN  {fault}: {tests} fails without it"
        failed = self.run(program, tests, fault)
        return f"caught    {fault}: {failed}" if failed else f"MISSED    {fault}: {tests} passes with it"


def main():
    build, source = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    faults = faults_of(source / "tests/planted/faults.tsv")
    if asked_in(source) != set(faults):
        sys.exit(f"faults.tsv and the code differ in {sorted(asked_in(source) ^ set(faults))}")
    wanted = {name: faults[name] for name in sys.argv[3:] or faults}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        lines = list(pool.map(Runner(build).look, wanted.items()))
    print("\n".join(lines))
    sys.exit(any(not line.startswith("caught") for line in lines))


if __name__ == "__main__":
    main()
