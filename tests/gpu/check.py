"""./dev gpu check: whether Gantry computes on this machine's GPU what it computes on the CPU. How fast: ./dev gpu bench.

Every part is a process of its own with a deadline, and reports though another one fails. Parts that passed are not run
again for the same build unless --again is given. Leaves check.json and check.txt in --output, runs/gpu by default.
Ends with 0 where all parts passed, 1 where one failed, 3 where there is no device (after the parts that need none),
and 2 for a wrong call. --rehearse runs the device's parts on the CPU, small: it shows that the checks themselves work.
"""
import sys

import packed
from parts import GANTRY, Job, Part, facts_parts

PROGRAM = packed.BUILD / "tests/gantry_gpu_check"


def checks(name, about, pattern, seconds, **more):
    return Part(name, about, [PROGRAM, f"--gtest_filter={pattern}"], seconds, **more)


def shared(name, backend):
    return Part(name, f"two ranks on one device, as processes, by {backend}",
                ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2", PROGRAM, "--gtest_filter=SharedDevice.*"], 60,
                variables={"NCCL_MULTI_RANK_GPU_ENABLE": "1", "GANTRY_CHECK_BACKEND": backend}, shares_device=backend)


def parts_of(rehearse):
    on_cpu = dict(needs_device=False, variables={"GANTRY_CHECK_BACKEND": "local"})
    on_device = on_cpu if rehearse else {}
    parts = facts_parts() + [
        Part("doctor", "gantry doctor", [GANTRY, "doctor"], 30, needs_device=False),
        checks("rehearsal", "the checks themselves, on the CPU alone", "-SharedDevice.*", 240, **on_cpu),
        checks("kernels", "our own kernels against the CPU", "DeviceKernels.*", 60, **on_device),
        checks("conformance", "the backend at one rank", "DeviceBackend.*", 60, **on_device),
        checks("models", "GPT-2, Llama and BERT, float64 and float32, against the CPU", "DeviceModels.*", 90, **on_device),
        checks("training", "20 steps in float32, bfloat16 and float16 against the CPU's", "DeviceTraining.*", 90, **on_device),
        checks("options", "ZeRO, recomputation, dropout, accumulation, split backwards, recorded stages", "DeviceOptions.*", 120, **on_device),
        checks("checkpoints", "saved on the device, loaded on the CPU, and back", "DeviceState.*", 60, **on_device),
        checks("generation", "greedy, beams and draws", "DeviceGeneration.*", 90, **on_device),
        shared("shared device", "ipc"), shared("shared by nccl", "nccl"),
    ]
    # A rehearsal is of every part but itself, and of what takes two processes.
    return [part for part in parts if not rehearse or part.name not in ("rehearsal", "shared device", "shared by nccl")]


def main():
    job = Job("check", __doc__, PROGRAM, lambda parts: [])
    return job.run(parts_of(job.rehearses))


if __name__ == "__main__":
    sys.exit(main())
