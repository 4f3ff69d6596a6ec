"""Gantry's sends and collectives on threads (local) and processes (mpi) beside Gloo, plain Open MPI and memcpy, at 2 and 4 ranks.

Each program runs several times, in turn; a figure is the least of all their rounds (a round is the mean of many calls), or with
--median the median of the programs' medians. `bytes` is the size of the whole tensor: bandwidth is bytes / seconds, and memcpy's is
of copying as many bytes on every rank at the same time. --json FILE keeps all figures. --hosts N measures mpi beside plain Open MPI
across N hosts instead: network namespaces with an address each (as root; iproute2).
"""
import argparse, contextlib, json, os, pathlib, re, socket, statistics, subprocess, sys, tempfile, time, warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/release/bench/comm_bench"
HOSTS = ROOT / "tests/support/network_hosts.sh"
SIZES = [4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20]
OPERATIONS = ["send", "all_reduce", "all_gather", "reduce_scatter"]
PEERS = ["local", "mpi", "openmpi", "gloo", "memcpy"]
ROUNDS = 5


def gloo_rank(rank, ranks, port):
    import torch
    import torch.distributed as dist
    warnings.simplefilter("ignore", FutureWarning)  # new names of the same operations
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    for size in SIZES:
        tensor, whole, part = torch.zeros(size // 4), torch.zeros(size // 4), torch.zeros(size // 4 // ranks)

        def ping_pong():
            if rank < 2:
                first, second = (dist.send, dist.recv) if rank == 0 else (dist.recv, dist.send)
                first(tensor, 1 - rank)
                second(tensor, 1 - rank)

        calls = {"send": ping_pong, "all_reduce": lambda: dist.all_reduce(tensor), "all_gather": lambda: dist.all_gather_into_tensor(whole, part),
                 "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole)}
        for name, call in calls.items():
            repeats = 2 if size > 4 << 20 else 10 if size > 128 << 10 else 50
            seconds = []
            try:
                for round in range(ROUNDS + 1):
                    dist.barrier()
                    start = time.perf_counter()
                    for _ in range(repeats):
                        call()
                    seconds.append((time.perf_counter() - start) / repeats / (2 if name == "send" else 1))
            except RuntimeError:
                continue  # this Gloo has no such operation
            if rank == 0:
                seconds = sorted(seconds[1:])
                print(json.dumps(dict(backend="gloo", op=name, ranks=ranks, bytes=size, median=seconds[len(seconds) // 2], least=seconds[0])), flush=True)
    dist.destroy_process_group()


def run_gloo(ranks):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    workers = [subprocess.Popen([sys.executable, __file__, "--gloo", f"{rank},{ranks},{port}"], stdout=subprocess.PIPE, text=True) for rank in range(ranks)]
    outputs = [worker.communicate()[0] for worker in workers]
    return outputs[0].splitlines()


def run_gantry(ranks):
    lines = subprocess.run([PROGRAM, str(ranks)], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    mpirun = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", str(ranks), PROGRAM, str(ranks)]
    return lines + subprocess.run(mpirun, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


@contextlib.contextmanager
def network(hosts):
    """Namespaces and the names of the hosts in them; gives the folder that `network_hosts.sh run` wants and the first host."""
    name = f"bench{os.getpid() % 10000}"
    with tempfile.TemporaryDirectory() as folder:
        try:
            subprocess.run([HOSTS, "up", name, str(hosts), folder], check=True)
            yield folder, [f"{name}-{host}" for host in range(hosts)]
        finally:
            subprocess.run([HOSTS, "down", folder], check=True)


def run_over_hosts(ranks, hosts):
    with network(hosts) as (folder, names):
        each = ",".join(f"{name}:{ranks // hosts}" for name in names)
        launch = [ROOT / "build/release/bin/gantry", "launch", "--hosts", each, "--interface", "eth0", "--log-dir", f"{folder}/logs", "--", PROGRAM, ranks]
        environment = dict(os.environ, OMPI_MCA_plm_rsh_agent=f"{folder}/agent")
        output = subprocess.run([HOSTS, "run", folder, names[0], *map(str, launch)], check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    return re.findall(r"\{.*\}", output)  # behind the ranks' names


def print_hosts_table(figures, ranks, hosts):
    print(f"\n{ranks} ranks on {hosts} hosts, microseconds on {os.cpu_count()} cores")
    print(f"{'operation':14} {'bytes':>9} {'mpi':>10} {'openmpi':>10} {'openmpi/mpi':>12}")
    for op in OPERATIONS:
        for size in SIZES:
            mpi, plain = (figures.get((peer, op, ranks, size)) for peer in ("mpi", "openmpi"))
            print(f"{op:14} {size:9} {text_of(mpi)} {text_of(plain)} {ratio(plain, mpi)}", flush=True)


def text_of(seconds):
    return f"{1e6 * seconds:10.1f}" if seconds else f"{'-':>10}"


def ratio(a, b):
    return f"{a / b:12.2f}" if a and b else f"{'':12}"


def print_table(figures, ranks):
    print(f"\n{ranks} ranks, microseconds on {os.cpu_count()} cores")
    print(f"{'operation':14} {'bytes':>9} " + " ".join(f"{peer:>10}" for peer in PEERS) + f" {'gloo/local':>12} {'memcpy/local':>12} {'openmpi/mpi':>12} {'gloo/mpi':>12}")
    for op in OPERATIONS:
        for size in SIZES:
            row = {peer: figures.get((peer, "copy" if peer == "memcpy" else op, ranks, size)) for peer in PEERS}
            print(f"{op:14} {size:9} " + " ".join(text_of(row[peer]) for peer in PEERS) + f" {ratio(row['gloo'], row['local'])} "
                  f"{ratio(row['memcpy'], row['local'])} {ratio(row['openmpi'], row['mpi'])} {ratio(row['gloo'], row['mpi'])}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="runs of each program")
    parser.add_argument("--ranks", type=lambda text: [int(n) for n in text.split(",")], default=[2, 4])
    parser.add_argument("--median", action="store_true")
    parser.add_argument("--no-gloo", action="store_true")
    parser.add_argument("--hosts", type=int, help="across so many")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--gloo", help=argparse.SUPPRESS)  # a rank of the peer: rank,ranks,port
    args = parser.parse_args()
    if args.gloo:
        return gloo_rank(*[int(number) for number in args.gloo.split(",")])
    found = []
    for ranks in args.ranks:
        for _ in range(args.repeats):
            if args.hosts:
                lines = run_over_hosts(ranks, args.hosts)
            else:
                lines = run_gantry(ranks) + ([] if args.no_gloo else run_gloo(ranks))
            found += [json.loads(line) for line in lines]
        figures = {}
        for f in found:
            figures.setdefault((f["backend"], f["op"], f["ranks"], f["bytes"]), []).append(f)
        shown = {key: statistics.median(f["median"] for f in rows) if args.median else min(f["least"] for f in rows) for key, rows in figures.items()}
        print_hosts_table(shown, ranks, args.hosts) if args.hosts else print_table(shown, ranks)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
