"""Where the parts of a packed folder are, for build.py and check.py. In an ordinary checkout nothing is packed."""
import os, pathlib, platform, sys, tarfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PREFIX = ROOT / "packed/usr"
BUILD = pathlib.Path(os.environ.get("GANTRY_GPU_BUILD") or ROOT / "build/gpu")
LIBRARIES = PREFIX / "lib" / f"{platform.machine()}-linux-gnu"


def unpack():
    """Once; a stop within it is made good by the next call."""
    archive, partly = ROOT / "packed/usr.tar.gz", ROOT / "packed/unpacking"
    if PREFIX.is_dir() or not archive.exists():
        return
    with tarfile.open(archive) as file:
        file.extractall(partly)
    (partly / "usr").rename(PREFIX)


def source_version():
    note = ROOT / "packed/source_version"
    return note.read_text().strip() if note.exists() else "this checkout"


def has_mpi():
    return (PREFIX / "bin/mpirun").exists() and not os.environ.get("GANTRY_GPU_WITHOUT_MPI")


class Torch:
    """The torch of the Python that runs this: its folder and versions, without loading it."""

    def __init__(self):
        import importlib.util
        spec = importlib.util.find_spec("torch")
        if not spec:
            sys.exit(f"error: gpu: {sys.executable} has no torch: run ./dev gpu with PYTHON=, a Python that has it")
        self.folder = pathlib.Path(spec.origin).parent
        values = {}
        exec((self.folder / "version.py").read_text(), values)
        self.version, self.cuda = values["__version__"], values.get("cuda")


def environment():
    """What the build and the programs of the packed folder are run with: its headers, which come after LibTorch's as those
    of /usr would (LibTorch has an fmt of its own), its libraries, and Open MPI's home."""
    found = dict(os.environ)
    if PREFIX.is_dir():
        before = found.get("LD_LIBRARY_PATH")
        found["LD_LIBRARY_PATH"] = str(LIBRARIES) + (f":{before}" if before else "")
        found["C_INCLUDE_PATH"] = found["CPLUS_INCLUDE_PATH"] = str(PREFIX / "include")
    if has_mpi():
        found.update(OPAL_PREFIX=str(PREFIX), PMIX_INSTALL_PREFIX=str(PREFIX), PATH=f"{PREFIX}/bin:{found['PATH']}",
                     OMPI_MCA_mca_base_component_path=str(LIBRARIES / "openmpi/lib/openmpi3"),
                     PMIX_MCA_mca_base_component_path=str(LIBRARIES / "pmix2/lib/pmix"),
                     OMPI_MCA_plm="isolated",  # one host: ssh may be missing
                     OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return found
