"""PyTorch's own context parallel attention, forward and backward of one causal attention of 8 heads of 64 on the CPU over Gloo:
prints {"one": seconds, "shared": seconds} as JSON, or {"reason": what it said} where its CPU build does not run it.

usage: pytorch_context.py --tokens N --ranks N --steps N
"""
import argparse, json, os, statistics, tempfile, time
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel


def seconds(tokens, steps, mesh=None):
    """The median of a step."""
    parts = [torch.randn(1, 8, tokens, 64, requires_grad=True) for _ in range(3)]
    times = []
    for _ in range(steps + 1):
        begin = time.perf_counter()
        if mesh is None:
            F.scaled_dot_product_attention(*parts, is_causal=True).sum().backward()
        else:
            buffers = [part.detach().clone() for part in parts]
            with context_parallel(mesh, buffers=buffers, buffer_seq_dims=[2] * 3, no_restore_buffers=set(buffers)):
                mine = [buffer.requires_grad_() for buffer in buffers]
                F.scaled_dot_product_attention(*mine, is_causal=True).sum().backward()
            if mine[0].grad is None or mine[0].size(2) * mesh.size() != tokens:
                raise RuntimeError("it did not attend to parts of the sequence")
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


def rank_main(rank, given, path):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}/meet", rank=rank, world_size=given.ranks)
    try:
        result = {"shared": seconds(given.tokens, given.steps, init_device_mesh("cpu", (given.ranks,)))}
    except Exception as error:
        result = {"reason": str(error).strip().splitlines()[0]}
    if rank == 0:
        with open(f"{path}/result", "w") as file:
            json.dump(result, file)
    dist.destroy_process_group()


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    for name in ("tokens", "ranks", "steps"):
        arguments.add_argument(f"--{name}", type=int, required=True)
    given = arguments.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as path:
        mp.spawn(rank_main, (given, path), nprocs=given.ranks)
        with open(f"{path}/result") as file:
            result = json.load(file)
    print(json.dumps({"one": seconds(given.tokens, given.steps)} | result))


if __name__ == "__main__":
    main()
