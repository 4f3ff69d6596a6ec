"""One training run of GPT-2 in PyTorch, in the layout asked for; prints the seconds of each step as JSON, or with --memory
the most bytes that rank 0's tensors took at once.

usage: pytorch_peer.py MODE --hidden N --layers N --heads N --batch N --microbatches N --steps N --threads N [--precision P] [--memory]
MODE is one, pp (1F1B), tp (DTensor), sp (the same, sequence parallel), dp (DDP) or fsdp; all but the first start two processes
over Gloo.
"""
import argparse, json, os, pathlib, socket, tempfile, time
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor import DTensor

VOCABULARY, SEQUENCE = 256, 128


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.head_size = heads, width // heads
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.split = False  # tp shards three projections; one device fuses them

    def forward(self, x):
        b, s, _ = x.shape
        parts = (self.q(x), self.k(x), self.v(x)) if self.split else self.qkv(x).chunk(3, -1)
        q, k, v = (t.reshape(b, s, -1, self.head_size).transpose(1, 2) for t in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, s, -1))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """A stage of GPT-2: the whole when first and last."""

    def __init__(self, args, layers, first, last, split=False):
        super().__init__()
        self.first, self.last = first, last
        if first:
            self.wte, self.wpe = nn.Embedding(VOCABULARY, args.hidden), nn.Embedding(SEQUENCE, args.hidden)
        self.h = nn.ModuleList(Block(args.hidden, args.heads) for _ in range(layers))
        for block in self.h:
            block.attn.split = split
            for name in (("qkv",) if split else ("q", "k", "v")):
                delattr(block.attn, name)
        if last:
            self.ln_f, self.lm_head = nn.LayerNorm(args.hidden), nn.Linear(args.hidden, VOCABULARY, bias=False)
        if first and last:
            self.lm_head.weight = self.wte.weight

    def forward(self, x):
        if self.first:
            x = self.wte(x) + self.wpe(torch.arange(x.shape[1], device=x.device))
        x = self.to_shard(x)
        for block in self.h:
            x = block(x)
        return self.lm_head(self.to_whole(self.ln_f(x))) if self.last else x

    def to_shard(self, x):
        return x

    def to_whole(self, x):
        return x


def loss_of(logits, labels):
    return F.cross_entropy(logits.reshape(-1, VOCABULARY), labels.reshape(-1))


def batch_of(samples):
    tokens = torch.randint(0, VOCABULARY, (samples, SEQUENCE + 1))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def timed(steps, step):
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return seconds


def microbatched(args, model, optimizer, samples, microbatches, context=None):
    """Gradient accumulation over microbatches, as the pipelines do it."""
    import contextlib

    def step():
        x, y = batch_of(samples)
        parts = list(zip(x.chunk(microbatches), y.chunk(microbatches)))
        for i, (a, b) in enumerate(parts):
            with (context() if context and i + 1 < len(parts) else contextlib.nullcontext()):
                (loss_of(model(a), b) / len(parts)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return timed(args.steps, step)


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)


def run_one(args):
    model = Gpt(args, args.layers, True, True)
    return microbatched(args, model, adamw(model), args.batch, 1)


def run_dp(args, rank):
    model = nn.parallel.DistributedDataParallel(Gpt(args, args.layers, True, True))
    return microbatched(args, model, adamw(model), args.batch // 2, 1)


def clip_split(parameters, max_norm=1.0):
    """clip_grad_norm_ refuses a model that is split in part: the two kinds of gradients are measured each on its own."""
    gradients = [p.grad for p in parameters]
    split = [g for g in gradients if isinstance(g, DTensor)]
    whole = [g for g in gradients if not isinstance(g, DTensor)]
    squares = torch.nn.utils.get_total_norm(split, foreach=False).full_tensor() ** 2 + torch.nn.utils.get_total_norm(whole) ** 2
    factor = min(1.0, max_norm / (squares.sqrt().item() + 1e-6))
    for gradient in gradients:
        gradient.mul_(factor)


def run_tp(args, rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(0)
    model = Gpt(args, args.layers, True, True, split=True)
    for block in model.h:
        parallelize_module(block, mesh, {"attn.q": ColwiseParallel(), "attn.k": ColwiseParallel(), "attn.v": ColwiseParallel(),
                                         "attn.proj": RowwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)

    def step():
        x, y = batch_of(args.batch)
        loss_of(model(x), y).backward()
        clip_split(model.parameters())
        optimizer.step()
        optimizer.zero_grad()

    return timed(args.steps, step)


def run_sp(args, rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                                   parallelize_module)

    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(0)
    model = Gpt(args, args.layers, True, True, split=True)
    whole = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    for block in model.h:
        parallelize_module(block, mesh, {"ln_1": SequenceParallel(), "ln_2": SequenceParallel(), "attn": whole,
                                         "attn.q": ColwiseParallel(), "attn.k": ColwiseParallel(), "attn.v": ColwiseParallel(),
                                         "attn.proj": RowwiseParallel(output_layouts=Shard(1)),
                                         "up": ColwiseParallel(input_layouts=Shard(1)), "down": RowwiseParallel(output_layouts=Shard(1))})
    parallelize_module(model, mesh, {"ln_f": SequenceParallel()})
    model.to_shard = lambda x: DTensor.from_local(x, mesh, [Replicate()]).redistribute(placements=[Shard(1)]).to_local()
    model.to_whole = lambda x: x.redistribute(placements=[Replicate()]).to_local()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)

    def step():
        x, y = batch_of(args.batch)
        loss_of(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    return timed(args.steps, step)


def run_fsdp(args, rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh("cpu", (2,))
    model = Gpt(args, args.layers, True, True)
    low = args.precision == "bfloat16"
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if low else MixedPrecisionPolicy()
    for block in model.h:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return microbatched(args, model, torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False), args.batch // 2, 1)


def peak_bytes(work):
    """Of this process's tensors while `work` runs: the profiler sees every allocation."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    return max(e["args"]["Total Allocated"] for e in events if e.get("name") == "[memory]")


def run_pp(args, rank):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    module = Gpt(args, args.layers // 2, rank == 0, rank == 1)
    optimizer = adamw(module)
    stage = PipelineStage(module, rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, args.microbatches, loss_fn=loss_of)

    def step():
        x, y = batch_of(args.batch)
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=y, losses=[])
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return timed(args.steps, step)


def worker(rank, args, port, queue):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(args.threads)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    run = {"pp": run_pp, "tp": run_tp, "sp": run_sp, "dp": run_dp, "fsdp": run_fsdp}[args.mode]
    result = peak_bytes(lambda: run(args, rank)) if args.memory else run(args, rank)
    if rank == 0:
        queue.put(result)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["one", "pp", "tp", "sp", "dp", "fsdp"])
    for name, value in dict(hidden=256, layers=8, heads=8, batch=16, microbatches=8, steps=6, threads=1).items():
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")  # of fsdp
    parser.add_argument("--memory", action="store_true")
    args = parser.parse_args()
    if args.mode == "one":
        torch.set_num_threads(args.threads)
        print(json.dumps(peak_bytes(lambda: run_one(args)) if args.memory else run_one(args)))
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    queue = mp.get_context("spawn").SimpleQueue()
    context = mp.spawn(worker, (args, port, queue), nprocs=2, join=False)
    while not context.join():  # raises what a worker raised
        pass
    print(json.dumps(queue.get()))


if __name__ == "__main__":
    main()
