"""./dev gpu build: builds the programs and the checks beside this machine's torch, CUDA and NCCL, into build/gpu.

It needs no network and writes nowhere else. What was built before a stop is not built again. GANTRY_GPU_WITHOUT_MPI=1
leaves Open MPI out, which is not packed everywhere.
"""
import os, shutil, subprocess, sys

import packed


def fail(what):
    sys.exit(f"error: gpu build: {what}")


def nvcc():
    """Where CMake will find it, too."""
    return shutil.which("nvcc") or next((home for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda")
                                         if home and os.path.exists(f"{home}/bin/nvcc")), None)


def configure(torch):
    flags = [f"-DTorch_DIR={torch.folder}", "-DGANTRY_WARNINGS_AS_ERRORS=OFF", "-DGANTRY_BENCH=OFF", "-DGANTRY_EXAMPLES=OFF",
             f"-DGANTRY_WITH_NCCL={'ON' if torch.cuda else 'OFF'}"]
    if packed.PREFIX.is_dir():
        flags += [f"-DCMAKE_PREFIX_PATH={packed.PREFIX}", f"-DGANTRY_WITH_MPI={'ON' if packed.has_mpi() else 'OFF'}"]
    if packed.PREFIX.is_dir() and packed.has_mpi():  # compiler wrappers have the paths of the machine that packed it
        home = packed.LIBRARIES / "openmpi"
        for language in ("C", "CXX"):
            flags += [f"-DMPI_{language}_HEADER_DIR={home}/include", f"-DMPI_{language}_LIB_NAMES=mpi"]
        flags += ["-DMPI_SKIP_COMPILER_WRAPPER=ON", f"-DMPI_mpi_LIBRARY={home}/lib/libmpi.so",
                  f"-DMPIEXEC_EXECUTABLE={packed.PREFIX}/bin/mpirun"]
    command = ["cmake", "-S", packed.ROOT, "-B", packed.BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", *flags]
    # Configured once by the same words: ninja itself sees when the files of CMake change.
    stamp, words = packed.BUILD / "configured", "\n".join(map(str, command))
    if stamp.exists() and stamp.read_text() == words:
        return
    if subprocess.run(command, env=packed.environment(), stdout=subprocess.DEVNULL).returncode:
        fail("cmake could not configure; its words are above")
    stamp.write_text(words)


def main():
    packed.unpack()
    torch = packed.Torch()
    missing = [name for name in ("g++", "cmake", "ninja") if not shutil.which(name)]
    if torch.cuda and not (nvcc() or os.environ.get("GANTRY_GPU_CONFIGURE_ONLY")):
        missing.append("nvcc 13")
    if missing:
        fail(f"{', '.join(missing)} not found: install what is missing, or set CUDA_HOME")
    print(f"== LibTorch {torch.version} in {torch.folder}, {'CUDA ' + torch.cuda if torch.cuda else 'no CUDA'}", flush=True)
    configure(torch)
    if os.environ.get("GANTRY_GPU_CONFIGURE_ONLY"):  # what a test of the packed files wants
        return
    done = subprocess.run(["ninja", "-C", packed.BUILD, "gantry_front", "gantry_gpu_check"], env=packed.environment())
    if done.returncode:
        fail("the build failed; its first error is above. The next ./dev gpu build goes on from here")
    print(f"== built: {packed.BUILD / 'bin/gantry'}; next ./dev gpu check", flush=True)


if __name__ == "__main__":
    main()
