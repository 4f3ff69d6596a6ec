"""./dev gpu pack OUT: one folder with the sources, and the headers and libraries that a machine with a GPU may lack.

The machine has g++, CMake, ninja and a Python with torch, and no network. OUT gets the sources, and as
OUT/packed/usr.tar.gz the parts of Debian's packages that the build uses, laid out as below /usr. Nothing of LibTorch,
CUDA or NCCL travels: they are found beside the machine's torch. Run it where ./dev setup has installed the packages.
"""
import pathlib, re, shutil, subprocess, sys, tarfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LIMIT = 60 << 20
# What no check reads, and the models of tests/golden that do travel.
LEFT_OUT = re.compile(r"tests/fuzz/corpus|docs/|tests/golden/(?!gpt2/|llama/|generation/)")
HEADERS = ["fmt", "yaml-cpp", "CLI", "nlohmann", "gtest", "gmock", "xxhash.h", "xxh3.h", "oniguruma.h", "sentencepiece_processor.h",
           "sentencepiece_trainer.h", "jpeglib.h", "jconfig.h", "jmorecfg.h", "jerror.h", "png.h", "pngconf.h", "pnglibconf.h",
           "zlib.h", "zconf.h", "zstd.h"]
LARGE = "boost|unicode"  # of these only the headers in use
LIBRARIES = ["fmt", "yaml-cpp", "icuuc", "icudata", "onig", "sentencepiece", "sentencepiece_train", "xxhash", "jpeg", "png16", "z",
             "zstd"]
ARCHIVES = ["gtest", "gtest_main", "gmock", "gmock_main"]
PACKAGES = ["fmt", "yaml-cpp", "CLI11", "nlohmann_json", "GTest"]  # folders of CMake's package files


def fail(what):
    sys.exit(f"error: gpu pack: {what}")


def output_of(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        fail(f"{' '.join(map(str, command))} failed: {done.stderr.strip()}")
    return done.stdout


def copy(source, target):
    """A file or folder; links become what they point to."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)


def copy_sources(out):
    listed = output_of("git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for name in filter(None, listed):
        if not LEFT_OUT.match(name) and (ROOT / name).is_file():
            copy(ROOT / name, out / name)
    version = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], stdout=subprocess.PIPE, text=True)
    (out / "packed/source_version").write_text(version.stdout)


def headers_in_use():
    """Those of the large libraries that the sources include, by the preprocessor."""
    sources = output_of("git", "-C", ROOT, "grep", "-lE", f"#include <({LARGE})/", "--", "*.cpp").split()
    units = sorted(str(ROOT / name) for name in sources)
    # Private headers are found through a link, as in the build.
    link = ROOT / "build/gpu_pack/gantry"
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(ROOT)
    found = set()
    for extra in ([], ["-DNDEBUG", "-O2"]):  # debug and release builds
        text = output_of("g++", "-std=c++20", "-M", "-I", ROOT / "include", "-I", link.parent, *extra, *units)
        found |= set(re.findall(rf"/usr/include/(?:{LARGE})/\S+", text))
    return [pathlib.Path(path) for path in sorted(found)]


def library_folder():
    return pathlib.Path("/usr/lib") / output_of("g++", "-print-multiarch").strip()


def libraries_of(path):
    """What a library or program loads, but for the C and C++ libraries of every machine, as (name, path or None)."""
    everywhere = re.compile(r"(linux-vdso|ld-linux|libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+|libutil|libz)[.-]")
    for line in output_of("ldd", path).splitlines():
        match = re.match(r"\s*(\S+) => (\S+)", line)
        if match and not everywhere.match(match[1]):
            yield match[1], None if match[2] == "not" else pathlib.Path(match[2])


class Prefix:
    """The packed folder that stands for /usr."""

    def __init__(self, folder):
        self.folder, self.libraries = folder, library_folder()

    def place(self, path):
        return self.folder / path.relative_to("/usr")

    def add(self, path):
        copy(path, self.place(path))

    def link(self, path, target):
        self.place(path).parent.mkdir(parents=True, exist_ok=True)
        self.place(path).symlink_to(target)

    def add_library(self, path):
        """A library by the name that programs load it by, and all that it loads."""
        if self.place(path).exists():
            return
        copy(path.resolve(), self.place(path))
        for name, where in libraries_of(path):
            if where is None:
                fail(f"{path} needs {name}, which is not installed")
            self.add_library(self.libraries / name)

    def add_linked_library(self, name):
        """libNAME.so for the linker too."""
        link = self.libraries / f"lib{name}.so"
        if not link.exists():
            fail(f"{link} is not there: run ./dev setup first")
        loaded = re.search(r"SONAME\s+(\S+)", output_of("objdump", "-p", link))[1]
        self.add_library(self.libraries / loaded)
        self.link(link, loaded)

    def add_package_files(self, name):
        """CMake's files of a package. Those of Debian name a library by its whole version: a link to what is here."""
        for folder in (self.libraries / "cmake" / name, pathlib.Path("/usr/share/cmake") / name):
            if not folder.is_dir():
                continue
            self.add(folder)
            for file in self.place(folder).glob("*.cmake"):
                for wanted in re.findall(r"\$\{_IMPORT_PREFIX\}/(lib/\S+?\.so[.0-9]*)\"", file.read_text()):
                    missing = self.folder / wanted
                    there = sorted(missing.parent.glob(missing.name.split(".so")[0] + ".so.*"))
                    if there and not missing.exists():
                        missing.symlink_to(there[0].name)


def add_dependencies(prefix):
    include = pathlib.Path("/usr/include")
    machine = include / library_folder().name  # Debian has jconfig.h there
    for path in [folder / name for folder in (include, machine) for name in HEADERS] + headers_in_use():
        if path.exists():
            prefix.add(path)
    for name in LIBRARIES:
        prefix.add_linked_library(name)
    for name in ARCHIVES:
        prefix.add(prefix.libraries / f"lib{name}.a")
    for name in PACKAGES:
        prefix.add_package_files(name)


def add_mpi(prefix):
    """Open MPI, which finds its parts below OPAL_PREFIX: the library, its launcher, and plugins but for those of networks
    and batch systems, whose libraries are large and of no use on one host."""
    libraries = prefix.libraries
    home = libraries / "openmpi"
    if not (home / "include/mpi.h").exists():
        fail("Open MPI is not installed: run ./dev setup first")
    for name in ("mpi.h", "mpi_portable_platform.h", "mpi-ext.h"):
        if (home / "include" / name).exists():
            prefix.add(home / "include" / name)
    prefix.add_library(libraries / "libmpi.so.40")
    prefix.link(home / "lib/libmpi.so", "../../libmpi.so.40")
    travels = re.compile(r"lib(mpi|open-rte|open-pal|pmix|munge|hwloc|event|mca_common_(sm|ompio)|udev|cap)")
    for plugin in [*home.glob("lib/openmpi3/mca_*.so"), *libraries.glob("pmix2/lib/pmix/*.so")]:
        if all(where and travels.match(name) for name, where in libraries_of(plugin)):
            prefix.add_library(plugin)
    copy(pathlib.Path("/usr/bin/orterun"), prefix.folder / "bin/mpirun")
    prefix.add(pathlib.Path("/usr/bin/orted"))
    for share in sorted(pathlib.Path("/usr/share").glob("openmpi/*.txt")) + sorted(pathlib.Path("/usr/share").glob("pmix*/*.txt")):
        prefix.add(share)


def size_of(folder):
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def write_archive(prefix, out):
    with tarfile.open(out / "packed/usr.tar.gz", "w:gz", compresslevel=6) as archive:
        archive.add(prefix.folder, "usr")
    shutil.rmtree(prefix.folder)


def main():
    if len(sys.argv) != 2:
        fail("one folder is wanted: ./dev gpu pack OUT")
    out = pathlib.Path(sys.argv[1]).absolute()
    if out.exists() and any(out.iterdir()) and not (out / "packed/source_version").exists():
        fail(f"{out} is not empty and no packed folder: name another one")
    shutil.rmtree(out, ignore_errors=True)
    (out / "packed").mkdir(parents=True)
    copy_sources(out)
    prefix = Prefix(out / "packed/usr")
    add_dependencies(prefix)
    add_mpi(prefix)
    write_archive(prefix, out)
    size = size_of(out)
    if size > LIMIT:
        fail(f"{out} has {size / 2**20:.1f} MiB, and {LIMIT >> 20} are allowed")
    print(f"{out}: {size / 2**20:.1f} MiB. There: ./dev gpu build, then ./dev gpu check")


if __name__ == "__main__":
    main()
