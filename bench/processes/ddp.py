#!/usr/bin/env python3
"""Our synchronous data parallelism against PyTorch's DistributedDataParallel over Gloo: same model, same batch, same link, one core a rank, in turns.

    bench/processes/ddp.py [--program build/release/pipedream] [--python PYTHON] [--rate 1gbit] [--rounds 3]

PYTHON has torch installed; where it has not, this says so and ends with code 77, as where namespaces are not to be had (scripts/hosts.sh, root).
A step is one batch on each of two ranks. The time of one rank alone (no communication) stands beside, because the two are built with other
libraries for matrix products and convolutions.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# our model, our data, samples of a rank's batch, steps
CASES = {
    "mlp": ("mlp:layers=6,width=1024", "synthetic-images:samples=20000,size=28", 32, 20),
    "vgg11": ("vgg11:classifier=small", "synthetic-images:samples=20000,channels=3,size=32", 16, 20),
}


def make_model(name):
    from torch import nn

    if name == "mlp":
        layers, width = [nn.Flatten(), nn.Linear(784, 1024), nn.ReLU()], 1024
        for _ in range(5):
            layers += [nn.Linear(width, width), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(width, 10)), (1, 28, 28)
    layers, channels = [], 3
    for width in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()] if width else [nn.MaxPool2d(2, 2)]
        channels = width or channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)), (3, 32, 32)


def work(name, batch, steps):
    """One rank of DistributedDataParallel; alone where the world is one. Rank 0 prints the median time of a step in ms and the parameters."""
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    model, shape = make_model(name)
    if size > 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "eth0")
        distributed.init_process_group("gloo", rank=rank, world_size=size)
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
    else:
        wrapped = model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    times = []
    for _ in range(steps + 3):
        images, targets = torch.rand(batch, *shape), torch.randint(0, 10, (batch,))
        start = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(wrapped(images), targets).backward()
        optimizer.step()
        times.append((time.perf_counter() - start) * 1e3)
    if rank == 0:
        print(json.dumps({"ms": statistics.median(times[3:]), "parameters": sum(p.numel() for p in model.parameters())}))
    if size > 1:
        distributed.destroy_process_group()


def run(command, environment=None):
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode == 77:
        print(done.stderr.strip())
        sys.exit(77)
    if done.returncode != 0:
        sys.exit(f"code {done.returncode}: {' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build/release/pipedream"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if subprocess.run([arguments.python, "-c", "import torch"], capture_output=True).returncode != 0:
        print(f"skipped: {arguments.python} has no PyTorch (--python names one that has)")
        sys.exit(77)
    hosts = [str(ROOT / "scripts/hosts.sh"), "2", arguments.rate]
    print(f"a step of two ranks over {arguments.rate}, medians of {arguments.rounds} rounds in turns; alone: one rank, nothing sent")
    print(f"{'model':<6} {'parameters':>10} {'batch':>5} {'DDP':>10} {'ours':>10} {'DDP / ours':>10} {'alone, torch':>13} {'alone, ours':>12}")
    for name, (model, data, batch, steps) in CASES.items():
        worker = [arguments.python, str(pathlib.Path(__file__).resolve()), "--work", name, str(batch), str(steps)]
        ours = [arguments.program, "--quiet", "train", "--model", model, "--data", data, "--micro-batch", str(batch), "--threads", "1",
                "--no-baseline", "--no-evaluation", "--json", "--steps", str(steps), "--profile-iterations", "2"]
        times = {"ddp": [], "ours": [], "torch alone": [], "ours alone": []}
        parameters = 0
        for _ in range(arguments.rounds):
            found = run(hosts + worker)
            parameters = found["parameters"]
            times["ddp"].append(found["ms"])
            times["ours"].append(2 * run(hosts + ours + ["--ranks", "2", "--schedule", "data-parallel", "--micro-batches", "2"])["period_ms"])
            times["torch alone"].append(run(worker, dict(os.environ, RANK="0", WORLD_SIZE="1"))["ms"])
            times["ours alone"].append(run(ours + ["--ranks", "1", "--schedule", "data-parallel", "--micro-batches", "1"])["period_ms"])
        medians = {key: statistics.median(values) for key, values in times.items()}
        print(f"{name:<6} {parameters:>10} {batch:>5} {medians['ddp']:>7.1f} ms {medians['ours']:>7.1f} ms {medians['ddp'] / medians['ours']:>10.3f} "
              f"{medians['torch alone']:>10.1f} ms {medians['ours alone']:>9.1f} ms", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] == "--work":
        work(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
