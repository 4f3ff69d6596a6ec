"""The cost of a build from nothing, as a ratio that holds on any machine: processor seconds of all compilations over those of
compiling one file that includes <torch/torch.h> and nothing else, with the same compiler and optimization.

usage: ./dev bench build [--targets library,demo,program,tests] [--keep]

Builds in build/cost without a compiler cache, which takes as long as the first build of everything. Prints a row for the
demo's programs, the library alone and the tests, and the twenty dearest compilations. "program" needs "demo" and measures
changes of programs of gantry_add_program with the installed library: the build of the program that `gantry init` writes,
with linking, and compilations alone, in user seconds: of the precompiled header and an empty source, and of a source with
two models. --keep continues a build that was stopped.
"""
import argparse, json, os, pathlib, re, resource, shutil, statistics, subprocess, sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/cost"
LOG = BUILD / "compilations.tsv"
TARGETS = {"library": ["gantry"], "demo": ["gantry_front"], "tests": ["gantry_tests"]}  # each needs those before it


def used_by(command, **more):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, **more)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def user_seconds(command, **more):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run(command, check=True, **more)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def configure():
    launcher = f"{sys.executable};{ROOT / 'bench/compile_cost.py'};{LOG}"
    subprocess.run(["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                    f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}", "-DCCACHE_PROGRAM="], check=True, stdout=subprocess.DEVNULL)


def unit_command():
    """Compiles <torch/torch.h> alone."""
    torch, = set(re.findall(r"-isystem (\S+/torch/include)\b", (BUILD / "compile_commands.json").read_text()))
    source = BUILD / "torch_alone.cpp"
    source.write_text("#include <torch/torch.h>\n")
    compiler = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M)[1]
    return [compiler, "-std=c++20", "-O2", "-DNDEBUG", "-fPIC", "-isystem", torch, "-isystem",
            f"{torch}/torch/csrc/api/include", "-c", source, "-o", BUILD / "torch_alone.o"]


def two_models():
    """A source of about 250 lines: the model of `gantry init` and examples/own_decoder.cpp."""
    own = (ROOT / "examples/own_decoder.cpp").read_text()
    start = "int main() {\n"
    assert start in own
    model = (ROOT / "cli/init/template/model.h").read_text().replace("#pragma once\n", "")
    return model + own.replace(start, start + "  register_next_byte();\n")


def source_costs(program, environment):
    """User seconds of compilations like that of the program's train.cpp, and of the unit, by turns."""
    compilation, = [one for one in json.loads((program / "build/compile_commands.json").read_text())
                    if one["file"].endswith("/train.cpp")]
    command = compilation["command"].split()
    command = command[next(i for i, word in enumerate(command) if re.search(r"(\+\+|clang)[^/]*$", word)):]  # without ccache
    sources = {"an empty source": "", "two models": two_models()}
    costs, units = {name: [] for name in sources}, []
    for _ in range(3):
        for name, text in sources.items():
            source = program / "measured.cpp"
            source.write_text(text)
            words = [str(source) if word == compilation["file"] else word for word in command]
            costs[name].append(user_seconds(words, cwd=compilation["directory"], env=environment))
        units.append(user_seconds(unit_command()))
    unit = statistics.median(units)
    return [(f"{name} ({sources[name].count(chr(10))} lines)", statistics.median(seconds), statistics.median(seconds) / unit)
            for name, seconds in costs.items()] + [("<torch/torch.h> alone", unit, 1)]


def program_cost():
    """Builds the program of `gantry init` again after a change, against an installation of BUILD."""
    installed, program = BUILD / "installed", BUILD / "programs/own"
    subprocess.run(["cmake", "--install", BUILD, "--prefix", installed], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(program.parent, ignore_errors=True)
    program.parent.mkdir()
    subprocess.run([installed / "bin/gantry", "init", program.name], cwd=program.parent, check=True, stdout=subprocess.DEVNULL)
    environment = {**os.environ, "CCACHE_DISABLE": "1"}
    subprocess.run(["cmake", "-S", program, "-B", program / "build", f"-DCMAKE_PREFIX_PATH={installed}",
                    "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"], check=True, stdout=subprocess.DEVNULL)
    build = ["cmake", "--build", program / "build", "--target", "train"]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL, env=environment)
    (program / "train.cpp").touch()
    return used_by(build, stdout=subprocess.DEVNULL, env=environment), source_costs(program, environment)


def compilations():
    rows = [line.split("\t") for line in LOG.read_text().splitlines()] if LOG.exists() else []
    return {target: float(seconds) for seconds, target, _ in rows}


def main():
    parser = argparse.ArgumentParser(prog="./dev bench build", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default="library,demo,program,tests")
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    if not args.keep:
        shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True, exist_ok=True)
    configure()
    # A busy machine needs more processor time for the same work, so the unit is measured again after each target.
    command = unit_command()
    units, rows, change, sources = [used_by(command), used_by(command)], [], None, []
    for name in args.targets.split(","):
        if name == "program":
            change, sources = program_cost()
            continue
        subprocess.run(["ninja", "-C", BUILD, "--quiet", *TARGETS[name]], check=True, stdout=subprocess.DEVNULL)
        units += [used_by(command), used_by(command)]
        costs = compilations()
        rows.append((name, len(costs), sum(costs.values())))
    unit = statistics.median(units)
    print(f"<torch/torch.h> alone: {unit:.1f} processor seconds ({min(units):.1f} to {max(units):.1f})")
    print("each row contains the rows above\n           compilations   seconds   ratio")
    for name, count, seconds in rows:
        print(f"{name:10} {count:12} {seconds:9.0f} {seconds / unit:7.1f}")
    if change:
        print(f"\na change of the program of gantry init: {change:.1f} seconds, ratio {change / unit:.2f}")
    for name, seconds, ratio in sources:
        print(f"{name}: {seconds:.2f} user seconds, ratio {ratio:.2f}")
    print("\nthe twenty dearest compilations, as ratios")
    for target, seconds in sorted(compilations().items(), key=lambda one: -one[1])[:20]:
        print(f"{seconds / unit:7.2f}  {target.replace('CMakeFiles/', '').replace('.dir/', '/')}")


if __name__ == "__main__":
    main()
