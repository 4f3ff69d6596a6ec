"""Checks that the tests notice each fault of this folder.

run.py SOURCE_FOLDER                          every row of mutations.tsv has a patch, and every patch applies
run.py SOURCE_FOLDER BUILD_FOLDER [NAME...]   applies the patches, one at a time, to a copy of the sources, builds the
                                              libraries, and runs the tests that must fail on them

BUILD_FOLDER has the test programs; the copy and its build are in BUILD_FOLDER/mutations.
"""
import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys

SECONDS = 300  # a fault may make ranks wait for ever
KEPT = ("Torch_DIR", "CMAKE_PREFIX_PATH", "GANTRY_WITH_NCCL", "CMAKE_BUILD_TYPE")  # of the build's CMake cache
HERE = pathlib.Path(__file__).parent


def mutations():
    rows = [line.split("\t") for line in (HERE / "mutations.tsv").read_text().splitlines() if not line.startswith("#")]
    found = {name: (program, tests) for name, program, tests in rows}
    if differing := {patch.stem for patch in HERE.glob("*.patch")} ^ set(found):
        sys.exit(f"mutations.tsv and the patches differ in {sorted(differing)}")
    return found


def apply(tree, name, *flags):
    """Whether the patch could be applied. Line numbers and the outermost lines of context may have changed."""
    command = ["git", "apply", "-C2", *flags, str(HERE.resolve() / f"{name}.patch")]
    outside = dict(os.environ, GIT_CEILING_DIRECTORIES=str(tree.resolve().parent))
    return subprocess.run(command, cwd=tree, env=outside, capture_output=True, text=True)


def check(source, names):
    stale = {name: done.stderr.strip() for name in names if (done := apply(source, name, "--check")).returncode}
    for name, why in stale.items():
        print(f"{name}.patch does not apply: {why}; make it anew for today's sources")
    sys.exit(bool(stale))


def kept_settings(build):
    lines = (build / "CMakeCache.txt").read_text().splitlines()
    values = dict(re.match(r"(\w+):\w+=(.*)", line).groups() for line in lines if re.match(r"\w+:\w+=", line))
    return [f"-D{key}={values[key]}" for key in KEPT if values.get(key)]


class Tree:
    """A copy of the sources with its build. Sources are compiled one by one, so that a patch costs one compilation."""

    def __init__(self, source, build):
        self.source, self.programs = source, build / "tests"
        self.tree, self.build = build / "mutations/source", build / "mutations/build"

    def prepare(self, settings):
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=self.source, check=True,
                                capture_output=True, text=True).stdout.split("\n")
        for name in filter(None, listed):
            if (self.source / name).is_file():
                self.restore(name)
        if not (self.tree / ".deps").exists():
            (self.tree / ".deps").symlink_to(self.source / ".deps")
        flags = ["-DGANTRY_JOIN_SOURCES=OFF", "-DGANTRY_WARNINGS_AS_ERRORS=OFF", "-DGANTRY_TESTS=OFF", "-DGANTRY_BENCH=OFF",
                 "-DGANTRY_EXAMPLES=OFF"]
        subprocess.run(["cmake", "-G", "Ninja", "-S", self.tree, "-B", self.build, *flags, *settings], check=True,
                       stdout=subprocess.DEVNULL)
        self.make(check=True)

    def restore(self, name):
        """The file as it is in the sources; one that is so already keeps its time."""
        to, wanted = self.tree / name, (self.source / name).read_bytes()
        if to.exists() and to.read_bytes() == wanted:
            return
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.source / name, to)
        shutil.copymode(self.source / name, to)

    def make(self, check=False):
        return subprocess.run(["cmake", "--build", self.build, "--target", "gantry"], check=check, capture_output=not check,
                              text=True)

    def run(self, program, tests, libraries=None):
        """None if all tests passed, otherwise the first failure."""
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        if libraries:
            environment["LD_LIBRARY_PATH"] = str(libraries)
        command = [self.programs / program, f"--gtest_filter={tests}"]
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
        return self.run(program, tests, self.build / "lib") is None

    def look(self, name, program, tests):
        if not self.passes(program, tests):
            return f"NOT SEEN  {name}: {tests} fails without it"
        if (done := apply(self.tree, name)).returncode:
            return f"STALE     {name}: {done.stderr.strip()}"
        made = self.make()
        failed = self.run(program, tests, self.build / "lib") if made.returncode == 0 else None
        for changed in re.findall(r"^\+\+\+ b/(\S+)", (HERE / f"{name}.patch").read_text(), re.MULTILINE):
            self.restore(changed)
        self.make(check=False)
        if made.returncode:
            return f"NOT BUILT {name}: {made.stdout[-400:]}"
        return f"caught    {name}: {failed}" if failed else f"MISSED    {name}: {tests} passes with it"


def main():
    source = pathlib.Path(sys.argv[1]).resolve()
    found = mutations()
    if len(sys.argv) == 2:
        check(source, found)
    build = pathlib.Path(sys.argv[2]).resolve()
    tree = Tree(source, build)
    tree.prepare(kept_settings(build))
    lines = []
    for name in sys.argv[3:] or found:
        lines.append(tree.look(name, *found[name]))
        print(lines[-1], flush=True)
    sys.exit(any(not line.startswith("caught") for line in lines))


if __name__ == "__main__":
    main()
