#!/usr/bin/env python3
"""Time of a training step: a model imported from PyTorch against the same one built in, and against PyTorch's eager mode.

    bench/import/step_time.py PROGRAM [--rounds 3] [--only vgg11,resnet18,gpt]

Needs torch >= 2.9. One rank, one thread, SGD with momentum. The imported model starts from the weights of the built-in one (their parameters have the same names)
and must have its losses; the rounds of the three alternate, each counts with its median. For a fair third column PROGRAM is built with the same libtorch
(scripts/test_with_torch.sh makes build/torch/pipedream). The last line is the import of a GPT-2 sized file (150 layers, 500 MB of weights): time of
`inspect`, and the largest resident memory.
"""
import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError:
    print("skipped: this python3 has no torch")
    sys.exit(77)


class Vgg11(nn.Module):
    def __init__(self):
        super().__init__()
        layers, channels = [], 1
        for out in [64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0]:
            layers += [nn.Conv2d(channels, out, 3, padding=1), nn.ReLU()] if out else [nn.MaxPool2d(2, 2)]
            channels = out or channels
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(512, 10)

    def forward(self, image):
        return self.classifier(torch.flatten(self.avgpool(self.features(image)), 1))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1, self.relu = nn.Conv2d(1, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()
        for i, (a, b) in enumerate([(64, 64), (64, 128), (128, 256), (256, 512)], 1):
            setattr(self, f"layer{i}", nn.Sequential(Block(a, b, 1 if i == 1 else 2), Block(b, b, 1)))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(512, 10)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.num_batches_tracked = None  # the built-in one does not count them

    def forward(self, image):
        x = self.relu(self.bn1(self.conv1(image)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.c_attn, self.c_proj, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.c_attn(x).split(c, dim=2))
        return self.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc, self.gelu, self.c_proj = nn.Linear(width, 4 * width), nn.GELU(GELU), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(self.gelu(self.c_fc(x)))


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn, self.ln_2, self.mlp = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width), Mlp(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, vocabulary=64, context=64, blocks=6, width=256, heads=8):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.h = nn.ModuleList(GptBlock(width, heads) for _ in range(blocks))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


GELU = "none"
MODELS = {
    "vgg11": dict(make=Vgg11, builtin="vgg11", data="synthetic-images:channels=1,size=32,classes=10", batch=16, steps=24, image=True),
    "resnet18": dict(make=ResNet18, builtin="resnet18", data="synthetic-images:channels=1,size=32,classes=10", batch=16, steps=12, image=True),
    "gpt": dict(make=Gpt, builtin="gpt:blocks=6,width=256,heads=8,context=64", data="synthetic-tokens", batch=16, steps=24, image=False),
}


def call(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return done.stdout


def train(program, folder, model, setting, weights, steps, run, rate=0.01):
    call([program, "--quiet", "train", "--model", model, "--data", setting["data"], "--ranks", 1, "--threads", 1, "--micro-batch", setting["batch"], "--steps", steps,
          "--optimizer", "sgd", "--lr", rate, "--momentum", 0.9, "--no-baseline", "--no-evaluation", "--profile-iterations", 3, "--run", folder / run]
         + (["--weights", weights] if weights else []))
    summary = json.loads((folder / run / "summary.json").read_text())
    losses = [json.loads(line)["loss"] for line in (folder / run / "metrics.jsonl").read_text().splitlines()]
    return summary["period_ms"], losses


def eager(setting, steps):
    model = setting["make"]().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = torch.randn(setting["batch"], 1, 32, 32) if setting["image"] else torch.randint(0, 64, (setting["batch"], 64))
    y = torch.randint(0, 10, (setting["batch"],)) if setting["image"] else torch.randint(0, 64, (setting["batch"], 64))
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(model(x).flatten(0, -2), y.flatten()).backward()
        optimizer.step()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times[2:])


def gpt2_import(program, folder):
    global GELU
    GELU = "tanh"
    model = Gpt(50257, 1024, 12, 768, 12).train()
    torch.export.save(torch.export.export(model, (torch.zeros(2, 64, dtype=torch.long),), dynamic_shapes=({0: torch.export.Dim("batch")},)), str(folder / "gpt2.pt2"))
    megabytes = sum(p.numel() * 4 for p in model.parameters()) / 1e6
    del model
    start = time.perf_counter()
    call([program, "inspect", folder / "gpt2.pt2"])
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3
    print(f"\nimport of a GPT-2 sized file ({megabytes:.0f} MB of weights): {seconds:.2f} s")
    return peak


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__} in Python; {options.program}\n")
    print("model     built in  imported  eager     imported/built in  imported/eager  largest difference of a loss")
    for name, setting in MODELS.items():
        if options.only and name not in options.only.split(","):
            continue
        with tempfile.TemporaryDirectory() as text:
            folder = pathlib.Path(text)
            torch.manual_seed(0)
            x = torch.randn(2, 1, 32, 32) if setting["image"] else torch.zeros(2, 64, dtype=torch.long)
            torch.export.save(torch.export.export(setting["make"]().train(), (x,), dynamic_shapes=({0: torch.export.Dim("batch")},)), str(folder / "m.pt2"))
            train(options.program, folder, setting["builtin"], setting, None, 1, "start", rate=0)
            weights = folder / "start" / "checkpoints" / "final.safetensors"
            built, imported, python, worst = [], [], [], 0
            for i in range(options.rounds):
                a, ours = train(options.program, folder, setting["builtin"], setting, weights, setting["steps"], f"b{i}")
                b, theirs = train(options.program, folder, folder / "m.pt2", setting, weights, setting["steps"], f"i{i}")
                worst = max([worst] + [abs(p - q) for p, q in zip(ours, theirs, strict=True)])
                built.append(a)
                imported.append(b)
                python.append(eager(setting, setting["steps"]))
            if not worst < 1e-3:
                sys.exit(f"{name}: losses differ by {worst}")
            a, b, c = map(statistics.median, (built, imported, python))
            print(f"{name:8}  {a:5.1f} ms  {b:5.1f} ms  {c:5.1f} ms  {b / a:17.3f}  {b / c:14.3f}  {worst:.1e}", flush=True)
    with tempfile.TemporaryDirectory() as text:
        gpt2_import(options.program, pathlib.Path(text))


if __name__ == "__main__":
    main()
