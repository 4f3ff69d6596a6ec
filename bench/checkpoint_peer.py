"""Saves and loads the tensors of checkpoint_bench with torch.distributed.checkpoint and with safetensors.

usage: checkpoint_peer.py FOLDER MEGABYTES ROUNDS; prints one JSON object a line.
"""
import json, os, pathlib, shutil, sys, time
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file


def report(what, size, body):
    start = time.perf_counter()
    body()
    print(json.dumps(dict(what=what, bytes=size, seconds=time.perf_counter() - start)), flush=True)


def each_file(path):
    return [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]


def sync(path):
    for file in each_file(path):
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def forget(path):
    for file in each_file(path):
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def main():
    folder, megabytes, rounds = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    state = {f"{kind}/layers.{i}.weight": torch.rand(1024, 1024)
             for i in range(max(1, megabytes // 12)) for kind in ("model", "exp_avg", "exp_avg_sq")}
    size = sum(t.nbytes for t in state.values())
    for _ in range(rounds):
        shutil.rmtree(folder / "dcp", ignore_errors=True)
        report("save, torch.distributed.checkpoint", size, lambda: dcp.save(state, checkpoint_id=folder / "dcp", no_dist=True))
        file = folder / "peer.safetensors"
        file.unlink(missing_ok=True)
        report("save, safetensors", size, lambda: (save_file(state, file), sync(file)))
        forget(folder / "dcp")
        report("load, torch.distributed.checkpoint", size, lambda: dcp.load(state, checkpoint_id=folder / "dcp", no_dist=True))
        forget(file)
        report("load, safetensors", size, lambda: [t.copy_(loaded) for t, loaded in zip(
            (state[k] for k in sorted(state)), (v for _, v in sorted(load_file(file).items())))])


if __name__ == "__main__":
    main()
