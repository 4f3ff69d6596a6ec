"""What ./dev gpu check and bench have in common: parts that are processes of their own with a deadline, of which one
reports though another fails, and which are not run again once they have passed with the same build. After each part
NAME.json has all results and NAME.txt has them as a page."""
import argparse, dataclasses, datetime, json, os, pathlib, signal, subprocess, sys, time

import packed

HERE = pathlib.Path(__file__).resolve().parent
GANTRY = packed.BUILD / "bin/gantry"
WHOLE_SECONDS = 570

FACTS = """
import json, torch
count = torch.cuda.device_count()
facts = dict(torch=torch.__version__, cuda=torch.version.cuda, devices=count)
if torch.version.cuda:
    facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
if count:
    at = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info(0)
    facts.update(name=at.name, capability=f"{at.major}.{at.minor}", multiprocessors=at.multi_processor_count,
                 memory_gib=round(total / 2**30, 1), free_gib=round(free / 2**30, 1))
print(json.dumps(facts))
"""


@dataclasses.dataclass
class Part:
    name: str
    about: str
    command: list
    seconds: int  # its deadline
    needs_device: bool = True
    variables: dict = dataclasses.field(default_factory=dict)
    gives_figures: bool = False  # its last line is JSON
    shares_device: str = ""  # the backend by which several ranks are on one device, as processes


def facts_parts():
    return [
        Part("facts", "the device as PyTorch sees it", [sys.executable, "-c", FACTS], 60, needs_device=False, gives_figures=True),
        Part("version", "gantry --version", [GANTRY, "--version"], 30, needs_device=False)]


def why_not(part, facts):
    """Why a part can't be run on this machine with this build; empty where it can."""
    if part.needs_device and not facts.get("devices"):
        return "no device"
    if not part.shares_device or not part.needs_device:
        return ""
    if "mpi (Open MPI)" not in facts.get("gantry", ""):
        return "this build has no MPI, and ranks on one device are processes"
    if part.shares_device == "ipc":
        return "" if "ipc (" in facts["gantry"] else "this build has no kernels for CUDA"
    if tuple(int(number) for number in facts.get("nccl", "0").split(".")) < (2, 30):
        return f"NCCL {facts.get('nccl', '?')} has one rank a device; 2.30 and newer allow more"
    return ""


def run(part, seconds, logs):
    """Its result: passed or failed, its seconds, and what it said."""
    environment = packed.environment() | part.variables
    begin = time.monotonic()
    log = logs / f"{part.name.replace(' ', '_')}.log"
    with open(log, "w") as out:
        process = subprocess.Popen(part.command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                   env=environment, cwd=packed.ROOT, start_new_session=True)
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:  # whatever it has started ends with it
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
    said = log.read_text(errors="replace")
    result = dict(state="passed" if code == 0 else "failed", seconds=round(time.monotonic() - begin, 1))
    if code is None:
        result["error"] = f"not done after {seconds:.0f} s\n{said}"
    elif code:
        result["error"] = f"ended with {code}\n{said}"
    elif part.gives_figures:
        result["figures"] = json.loads(said.strip().splitlines()[-1])
    else:
        result["said"] = said[-4000:]
    return result


def stamp_of(path):
    state = path.stat()
    return f"{state.st_size} {state.st_mtime_ns}"


class Job:
    """A command of ./dev gpu: its parts, and where their results go. `lines_of` gives a page's lines of the results, after
    one line a part."""

    def __init__(self, name, about, program, lines_of):
        self.name, self.program, self.lines_of = name, program, lines_of
        parser = argparse.ArgumentParser(prog=f"./dev gpu {name}", description=about,
                                         formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--output", type=pathlib.Path, default=packed.ROOT / "runs/gpu")
        parser.add_argument("--again", action="store_true", help="run parts again that passed before")
        parser.add_argument("--rehearse", action="store_true", help="on the CPU, small")
        self.args = parser.parse_args()
        if not program.exists():
            parser.exit(2, f"error: gpu {name}: nothing is built here; run ./dev gpu build\n")
        self.rehearses = self.args.rehearse
        self.output = self.args.output.absolute()
        (self.output / "parts").mkdir(parents=True, exist_ok=True)
        self.report = dict(date=datetime.datetime.now().isoformat(timespec="seconds"), outcome="under way",
                           build=stamp_of(program), source=packed.source_version(), parts={})

    def page(self):
        report = self.report
        facts = report["parts"].get("facts", {}).get("figures", {})
        how = " (rehearsed: small, on the CPU)" if self.rehearses else ""
        lines = [f"gpu {self.name} of Gantry{how}: {report['date']}, {report['outcome']}",
                 f"source {report['source']}; " + ", ".join(f"{key} {value}" for key, value in facts.items()), ""]
        for name, result in report["parts"].items():
            figures = result.get("figures") if name != "facts" else None
            detail = result.get("why") or (json.dumps(figures) if figures else "")
            lines.append(f"{name:18} {result['state']:9} {result.get('seconds', 0):6.1f} s  {detail}".rstrip())
        lines += self.lines_of(report["parts"])
        failed = [name for name, result in report["parts"].items() if result["state"] == "failed"]
        if failed:
            lines += ["", f"first failure: {failed[0]}", report["parts"][failed[0]]["error"]]
        return "\n".join(lines) + "\n"

    def write(self):
        (self.output / f"{self.name}.json").write_text(json.dumps(self.report, indent=1))
        (self.output / f"{self.name}.txt").write_text(self.page())

    def earlier_results(self):
        """Of the parts that passed with the same build."""
        try:
            report = json.loads((self.output / f"{self.name}.json").read_text())
        except (OSError, ValueError):
            return {}
        if report.get("build") != self.report["build"]:
            return {}
        return {name: result for name, result in report["parts"].items()
                if result["state"] == "passed" and name not in ("facts", "version")}

    def run_parts(self, parts):
        """Fills the report, which is written after each part, and gives what is known of the machine."""
        kept = {} if self.args.again or self.rehearses else self.earlier_results()
        ends = time.monotonic() + WHOLE_SECONDS
        facts = {}
        for part in parts:
            left = ends - time.monotonic()
            if why := why_not(part, facts):
                result = dict(state="left out", why=why)
            elif part.name in kept:
                result = kept[part.name]
            elif left < 5:
                result = dict(state="left out", why=f"{WHOLE_SECONDS} s are over; the next ./dev gpu {self.name} goes on from here")
            else:
                result = run(part, min(part.seconds, left), self.output / "parts")
            self.report["parts"][part.name] = result
            if part.name == "facts":
                facts.update(result.get("figures", {}))
            if part.name == "version":
                facts["gantry"] = result.get("said", "")
            print(f"{part.name:18} {result['state']:9} {result.get('seconds', 0):6.1f} s  {result.get('why', part.about)}", flush=True)
            self.write()
        return facts

    def run(self, parts):
        """The exit code: 0 where all parts passed, 1 where one failed, 3 where there is no device."""
        facts = self.run_parts(parts)
        states = [result["state"] for result in self.report["parts"].values()]
        failed = states.count("failed")
        code = 1 if failed else 3 if not facts.get("devices") and not self.rehearses else 0
        self.report["outcome"] = {0: "all parts passed", 1: f"{failed} of {len(states)} parts failed", 3: "no device"}[code]
        self.write()
        if failed:
            first = next(name for name, result in self.report["parts"].items() if result["state"] == "failed")
            print(f"\n== {first}\n{self.report['parts'][first]['error']}")
        print(f"== {self.report['outcome']}: {self.output / self.name}.txt, {self.output / self.name}.json", flush=True)
        if code == 3:
            print(f"error: gpu {self.name}: PyTorch sees no CUDA device here; the parts that need none have passed", file=sys.stderr)
        return code
