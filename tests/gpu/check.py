"""./dev gpu check: whether Gantry computes on this machine's GPU what it computes on the CPU, and how fast.

Every part is a process of its own with a deadline, and reports though another one fails. Parts that passed are not run
again for the same build unless --again is given. Leaves check.json and check.txt in --output, runs/gpu by default.
Ends with 0 where all parts passed, 1 where one failed, 3 where there is no device (after the parts that need none),
and 2 for a wrong call. --rehearse runs the device's parts on the CPU, small: it shows that the checks themselves work.
"""
import argparse, dataclasses, datetime, json, os, pathlib, signal, subprocess, sys, time

import packed

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = packed.BUILD / "tests/gantry_gpu_check"
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


def checks(name, about, pattern, seconds, **more):
    return Part(name, about, [PROGRAM, f"--gtest_filter={pattern}"], seconds, **more)


def speed(name, about, what, seconds, rehearse):
    more = ["--small", "--backend", "local"] if rehearse else []
    return Part(name, about, [sys.executable, HERE / "gpt2_speed.py", what, *more], seconds, needs_device=not rehearse,
                gives_figures=True)


def parts_of(rehearse):
    on_cpu = dict(needs_device=False, variables={"GANTRY_CHECK_BACKEND": "local"})
    on_device = on_cpu if rehearse else {}
    parts = [
        Part("facts", "the device as PyTorch sees it", [sys.executable, "-c", FACTS], 60, needs_device=False, gives_figures=True),
        Part("doctor", "gantry doctor", [GANTRY, "doctor"], 30, needs_device=False),
        Part("version", "gantry --version", [GANTRY, "--version"], 30, needs_device=False),
        checks("rehearsal", "the checks themselves, on the CPU alone", "-SharedDevice.*", 240, **on_cpu),
        checks("conformance", "the backend at one rank", "DeviceBackend.*", 60, **on_device),
        checks("models", "GPT-2, Llama and BERT, float64 and float32, against the CPU", "DeviceModels.*", 90, **on_device),
        checks("training", "20 steps in float32, bfloat16 and float16 against the CPU's", "DeviceTraining.*", 90, **on_device),
        checks("options", "ZeRO, recomputation, dropout, accumulation, split backwards", "DeviceOptions.*", 120, **on_device),
        checks("checkpoints", "saved on the device, loaded on the CPU, and back", "DeviceState.*", 60, **on_device),
        checks("generation", "greedy, beams and draws", "DeviceGeneration.*", 90, **on_device),
        Part("shared device", "two ranks on one device, as processes",
             ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2", PROGRAM, "--gtest_filter=SharedDevice.*"], 60,
             variables={"NCCL_MULTI_RANK_GPU_ENABLE": "1"}),
        speed("gantry", "GPT-2 124M in bfloat16, Gantry", "gantry", 120, rehearse),
        speed("eager", "the same in PyTorch, eager", "eager", 120, rehearse),
        speed("compiled", "the same in PyTorch, compiled", "compiled", 180, rehearse),
        speed("profile", "ten steps profiled", "profile", 120, rehearse),
    ]
    # A rehearsal is of every part but itself, of what takes two processes, and of a compiler's minute.
    return [part for part in parts if not rehearse or part.name not in ("rehearsal", "shared device", "compiled")]


def why_not(part, facts):
    """Why a part can't be run on this machine with this build; empty where it can."""
    if part.needs_device and not facts.get("devices"):
        return "no device"
    if part.name != "shared device":
        return ""
    if "mpi (Open MPI)" not in facts.get("gantry", ""):
        return "this build has no MPI, and ranks on one device are processes"
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


def ratios(results):
    """Gantry's tokens per second beside PyTorch's of the same run."""
    rates = {name: results.get(name, {}).get("figures", {}).get("tokens_per_second") for name in ("gantry", "eager", "compiled")}
    return {peer: round(rates["gantry"] / rates[peer], 3) for peer in ("eager", "compiled") if rates["gantry"] and rates[peer]}


def page(report):
    facts = report["parts"].get("facts", {}).get("figures", {})
    lines = [f"Gantry on a GPU: {report['date']}, {report['outcome']}",
             f"source {report['source']}; " + ", ".join(f"{key} {value}" for key, value in facts.items()), ""]
    for name, result in report["parts"].items():
        figures = result.get("figures") if name != "facts" else None
        detail = result.get("why") or (json.dumps(figures) if figures else "")
        lines.append(f"{name:14} {result['state']:9} {result.get('seconds', 0):6.1f} s  {detail}".rstrip())
    for peer, ratio in report["ratios"].items():
        lines.append(f"tokens per second of PyTorch, {peer}: Gantry has {ratio} times as many")
    failed = [name for name, result in report["parts"].items() if result["state"] == "failed"]
    if failed:
        lines += ["", f"first failure: {failed[0]}", report["parts"][failed[0]]["error"]]
    return "\n".join(lines) + "\n"


def write(report, output):
    report["ratios"] = ratios(report["parts"])
    (output / "check.json").write_text(json.dumps(report, indent=1))
    (output / "check.txt").write_text(page(report))


def earlier_results(output, stamp):
    """Of the parts that passed with the same build."""
    try:
        report = json.loads((output / "check.json").read_text())
    except (OSError, ValueError):
        return {}
    if report.get("build") != stamp:
        return {}
    return {name: result for name, result in report["parts"].items() if result["state"] == "passed" and name not in ("facts", "version")}


def run_parts(parts, kept, report, output):
    """Fills report["parts"], which is written after each, and gives what is known of the machine."""
    ends = time.monotonic() + WHOLE_SECONDS
    facts = {}
    for part in parts:
        left = ends - time.monotonic()
        if why := why_not(part, facts):
            result = dict(state="left out", why=why)
        elif part.name in kept:
            result = kept[part.name]
        elif left < 5:
            result = dict(state="left out", why=f"{WHOLE_SECONDS} s are over; the next ./dev gpu check goes on from here")
        else:
            result = run(part, min(part.seconds, left), output / "parts")
        report["parts"][part.name] = result
        if part.name == "facts":
            facts.update(result.get("figures", {}))
        if part.name == "version":
            facts["gantry"] = result.get("said", "")
        print(f"{part.name:14} {result['state']:9} {result.get('seconds', 0):6.1f} s  {result.get('why', part.about)}", flush=True)
        write(report, output)
    return facts


def main():
    parser = argparse.ArgumentParser(prog="./dev gpu check", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, default=packed.ROOT / "runs/gpu")
    parser.add_argument("--again", action="store_true", help="run parts again that passed before")
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, small")
    args = parser.parse_args()
    if not PROGRAM.exists():
        parser.exit(2, "error: gpu check: nothing is built here; run ./dev gpu build\n")
    output = args.output.absolute()
    (output / "parts").mkdir(parents=True, exist_ok=True)
    report = dict(date=datetime.datetime.now().isoformat(timespec="seconds"), outcome="under way", build=stamp_of(PROGRAM),
                  source=packed.source_version(), parts={}, ratios={})
    kept = {} if args.again or args.rehearse else earlier_results(output, report["build"])
    facts = run_parts(parts_of(args.rehearse), kept, report, output)
    states = [result["state"] for result in report["parts"].values()]
    failed = states.count("failed")
    code = 1 if failed else 3 if not facts.get("devices") and not args.rehearse else 0
    report["outcome"] = {0: "all parts passed", 1: f"{failed} of {len(states)} parts failed", 3: "no device"}[code]
    write(report, output)
    if failed:
        first = next(name for name, result in report["parts"].items() if result["state"] == "failed")
        print(f"\n== {first}\n{report['parts'][first]['error']}")
    print(f"== {report['outcome']}: {output / 'check.txt'}, {output / 'check.json'}", flush=True)
    if code == 3:
        print("error: gpu check: PyTorch sees no CUDA device here; the parts that need none have passed", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
