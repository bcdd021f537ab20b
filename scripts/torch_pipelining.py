#!/usr/bin/env python3
"""Trains a plan of this program with torch.distributed.pipelining, and compares the losses with those of `pipedream train`.

    python3 scripts/torch_pipelining.py build/release/pipedream [--model cnn|gpt]

Needs torch >= 2.9 with Gloo; two processes on this machine. What happens, in the order in which a user would do it:
  1. a model is exported, and a data set of one mini-batch written (so that the order of samples does not matter);
  2. `pipedream train` measures, plans two stages and trains them with a schedule that flushes;
  3. `pipedream convert plan.json split.json --to torch-pipelining` writes the split points and the schedule;
  4. two processes build the stages with torch.distributed.pipelining.pipeline() from the same initial weights, run the same schedule, and step;
  5. the losses are compared.
"""
import argparse
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage, SplitPoint, pipeline
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime, get_schedule_class

RANKS, MICRO_BATCH, STEPS, RATE, TOLERANCE = 2, 8, 8, 0.1, 1e-5


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.heads = heads

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.attention(self.ln_1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        x = x + self.projection(y)
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    """Reads the rows of an image as tokens."""

    def __init__(self, width=48, heads=4, blocks=4):
        super().__init__()
        self.stem = nn.Linear(28, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(blocks)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, image):
        x = self.stem(image.squeeze(1))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


def cnn():
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


def make_model(name):
    torch.manual_seed(0)
    return (cnn() if name == "cnn" else Gpt()).train()


def write_idx(folder, images, labels):
    for part in ("train", "t10k"):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, len(images), 28, 28) + images.numpy().tobytes())
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, len(labels)) + labels.to(torch.uint8).numpy().tobytes())


def run(command):
    print("$", " ".join(str(word) for word in command), flush=True)
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)


def train_stage(rank, folder, name, images, labels, losses):
    """One process: one stage of the plan."""
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29611")
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    plan = json.loads((folder / "split.json").read_text())
    pipe = pipeline(make_model(name), mb_args=(images[:MICRO_BATCH],), split_spec={path: SplitPoint.BEGINNING for path in plan["split_points"]})
    stage = pipe.build_stage(rank, torch.device("cpu"), dist.group.WORLD)
    optimizer = torch.optim.SGD(stage.submod.parameters(), lr=RATE)
    if plan["schedule"] == "1f1b" or plan["schedule"] == "gpipe":
        schedule = get_schedule_class({"1f1b": "1F1B", "gpipe": "GPipe"}[plan["schedule"]])(stage, plan["micro_batches"], loss_fn=F.cross_entropy)
    else:  # any other: the actions themselves
        schedule = _PipelineScheduleRuntime([stage], plan["micro_batches"], loss_fn=F.cross_entropy)
        schedule._load_csv(str(folder / plan["csv"]), format="compute_only")
    for _ in range(STEPS):
        optimizer.zero_grad()
        of_step = []
        if rank == 0:
            schedule.step(images)
        else:
            schedule.step(target=labels, losses=of_step)
            losses.append(float(torch.stack(of_step).detach().mean()))
        optimizer.step()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--model", choices=["cnn", "gpt"], default="cnn")
    parser.add_argument("--schedule", choices=["1f1b", "gpipe", "zb-h1"], default="1f1b")
    options = parser.parse_args()
    program = options.program.resolve()
    micro_batches = 4
    generator = torch.Generator().manual_seed(1)
    raw = torch.randint(0, 256, (MICRO_BATCH * micro_batches, 28, 28), dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, 10, (len(raw),), generator=generator)
    images = raw.unsqueeze(1).float() / 255  # as the program does: mean 0 and deviation 1 over the training images
    images = (images - images.mean()) / images.std(correction=0)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_idx(folder, raw, labels)
        shapes = ({0: torch.export.Dim("batch")},)
        torch.export.save(torch.export.export(make_model(options.model), (images[:2],), dynamic_shapes=shapes), str(folder / "m.pt2"))
        run([program, "--quiet", "train", "--model", f"{folder}/m.pt2:granularity={'leaf' if options.model == 'cnn' else 'block'}", "--data",
             f"idx:{folder}", "--ranks", RANKS, "--schedule", options.schedule, "--micro-batch", MICRO_BATCH, "--micro-batches", micro_batches,
             "--steps", STEPS, "--optimizer", "sgd", "--lr", RATE, "--momentum", 0, "--no-baseline", "--run", folder / "run"])
        run([program, "convert", folder / "run" / "plan.json", folder / "split.json", "--to", "torch-pipelining"])
        plan = json.loads((folder / "split.json").read_text())
        ours = [json.loads(line)["loss"] for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
        context = torch.multiprocessing.get_context("spawn")
        with context.Manager() as manager:
            theirs = manager.list()
            workers = [context.Process(target=train_stage, args=(rank, folder, options.model, images, labels, theirs)) for rank in range(RANKS)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join(300)
            if any(worker.exitcode for worker in workers):
                sys.exit("torch.distributed.pipelining failed")
            theirs = list(theirs)
    print(f"{options.model}, {plan['schedule']}, split before {', '.join(plan['split_points'])}\n")
    print("step   pipedream  torch.distributed.pipelining  difference")
    for step, (a, b) in enumerate(zip(ours, theirs, strict=True), 1):
        print(f"{step:4}  {a:.8f}                    {b:.8f}    {a - b:8.1e}")
    worst = max(abs(a - b) for a, b in zip(ours, theirs))
    print(f"\nlargest difference {worst:.1e}, allowed {TOLERANCE:.0e}")
    sys.exit(worst > TOLERANCE)


if __name__ == "__main__":
    main()
