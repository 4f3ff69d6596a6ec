"""Training steps of GPT-2 under one of PyTorch's pipeline schedules, a process a rank over Gloo; prints the seconds of each step as
JSON. With --empty the stages hand a tensor of four elements on and compute nothing: it prints the microseconds an action.

usage: pytorch_pipelines.py SCHEDULE --ranks N [--empty] [--hidden N --layers N --heads N --batch N --microbatches N --steps N]
"""
import argparse, json, os, socket, statistics
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.distributed.pipelining import PipelineStage, schedules

from pytorch_peer import Gpt, adamw, batch_of, loss_of, timed

# name: class, stages a rank, whether they go forth and back
SCHEDULES = {"1f1b": ("Schedule1F1B", 1, False), "interleaved_1f1b": ("ScheduleInterleaved1F1B", 2, False),
             "zb_v": ("ScheduleZBVZeroBubble", 2, True), "dualpipe_v": ("ScheduleDualPipeV", 2, True)}


class Empty(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x * self.weight


def stages_of(rank, ranks, chunks, forth_and_back):
    if forth_and_back:
        return [rank, 2 * ranks - 1 - rank]
    return [rank + chunk * ranks for chunk in range(chunks)]


def build(args, rank):
    name, chunks, forth_and_back = SCHEDULES[args.schedule]
    total = args.ranks * chunks
    held = stages_of(rank, args.ranks, chunks, forth_and_back)
    modules = [Empty() if args.empty else Gpt(args, args.layers // total, stage == 0, stage == total - 1) for stage in held]
    stages = [PipelineStage(module, stage, total, torch.device("cpu")) for module, stage in zip(modules, held)]
    loss = (lambda y, target: y.sum()) if args.empty else loss_of
    kind = getattr(schedules, name)
    return nn.ModuleList(modules), held, kind(stages[0] if chunks == 1 else stages, args.microbatches, loss_fn=loss), total


def run(args, rank):
    modules, held, schedule, total = build(args, rank)
    optimizer = adamw(modules)

    def step():
        x, y = (torch.ones(args.microbatches, 4),) * 2 if args.empty else batch_of(args.batch)
        inputs = (x,) if 0 in held else ()
        extra = dict(target=y, losses=[]) if total - 1 in held else {}
        schedule.step(*inputs, **extra)
        if not args.empty:
            torch.nn.utils.clip_grad_norm_(modules.parameters(), 1.0)
            optimizer.step()
        optimizer.zero_grad()

    seconds = timed(args.steps, step)
    if not args.empty:
        return seconds
    # Forward, backward, and what the rank sends and receives of each stage and microbatch.
    actions = sum(args.microbatches * (2 + 2 * (stage > 0) + 2 * (stage < total - 1)) for stage in held)
    return 1e6 * statistics.median(seconds[2:]) / actions


def worker(rank, args, port, queue):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    result = run(args, rank)
    if rank == 0:
        queue.put(result)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("schedule", choices=SCHEDULES)
    parser.add_argument("--empty", action="store_true")
    for name, value in dict(ranks=2, hidden=256, layers=8, heads=8, batch=16, microbatches=8, steps=6).items():
        parser.add_argument("--" + name, type=int, default=value)
    args = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    queue = mp.get_context("spawn").SimpleQueue()
    context = mp.spawn(worker, (args, port, queue), nprocs=args.ranks, join=False)
    while not context.join():  # raises what a worker raised
        pass
    print(json.dumps(queue.get()))


if __name__ == "__main__":
    main()
