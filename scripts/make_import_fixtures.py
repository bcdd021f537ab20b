#!/usr/bin/env python3
"""Makes the model files that tests/import reads. Needs torch >= 2.9 and torchvision; neither the build nor the tests run it.

    python3 scripts/make_import_fixtures.py [NAME ...]

Every file is stripped (source paths, names of Python functions) and its JSON is compressed. NAME.safetensors beside NAME.pt2 holds what PyTorch
computed from it: inputs, target, loss and gradients in training mode ("train.*", where no dropout is active) and in evaluation mode ("eval.*"), and the
buffers after the training step ("after.*").
"""
import copy
import json
import pathlib
import struct
import sys
import tempfile
import zipfile

import torch
import torch.nn as nn
import torch.nn.functional as F

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "import" / "fixtures"
BATCH = torch.export.Dim("batch")
TYPES = {torch.float32: "F32", torch.int64: "I64", torch.bool: "BOOL", torch.float64: "F64"}


def save_safetensors(tensors, path):
    header, data, at = {}, b"", 0
    for name, tensor in tensors.items():
        tensor = tensor.detach().contiguous()
        raw = tensor.numpy().tobytes()
        header[name] = {"dtype": TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + len(raw)]}
        data += raw
        at += len(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def strip_trace(trace):
    """The last frame outside torch, with the name of the file only."""
    frames = trace.split("File \"")[1:]
    own = [f for f in frames if "/torch/" not in f and "/torchvision/" not in f and not f.startswith("<")]
    if not own:
        return ""
    path, rest = own[-1].split("\"", 1)
    return f'File "{pathlib.Path(path).name}"{rest.rstrip()}'


def strip_graph(graph):
    for node in graph["nodes"]:
        metadata = node.get("metadata", {})
        kept = {k: v for k, v in metadata.items() if k == "nn_module_stack"}
        trace = strip_trace(metadata.get("stack_trace", ""))
        if trace:
            kept["stack_trace"] = trace
        node["metadata"] = kept
        for item in node["inputs"]:
            if "as_graph" in item["arg"]:
                strip_graph(item["arg"]["as_graph"]["graph"])
    for value in graph["tensor_values"].values():
        value.pop("device", None)
    return graph


def rewrite(source, target, change=None, strip=True):
    """Copies an archive; `change(name, bytes) -> bytes or None` edits or drops entries."""
    root = "m/"
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            name, data = info.filename.split("/", 1)[1], old.read(info)
            if strip and (name.startswith("data/sample_inputs") or name.startswith(".data")):
                continue
            if strip and name.startswith("models/"):
                program = json.loads(data)
                strip_graph(program["graph_module"]["graph"])
                program["torch_version"] = program["torch_version"].split("+")[0]
                data = json.dumps(program, separators=(",", ":")).encode()
            if change:
                data = change(name, data)
            if data is None:
                continue
            entry = zipfile.ZipInfo(root + name, (2000, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED if name.endswith(".json") else zipfile.ZIP_STORED
            new.writestr(entry, data, compresslevel=9)


def save(name, model, inputs, dynamic=True, change=None, strip=True, export=torch.export.export, **options):
    shapes = tuple({0: BATCH} for _ in inputs) if dynamic is True else dynamic
    program = export(model, inputs, dynamic_shapes=shapes, **options)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "m.pt2"
        torch.export.save(program, str(path))
        rewrite(path, FOLDER / f"{name}.pt2", change, strip)
    return program


def loss_of(output, target):
    if output.dim() == 0:
        return output
    return F.cross_entropy(output.reshape(-1, output.shape[-1]), target.reshape(-1))


def reference(name, model, inputs, target, train=True):
    tensors = {f"input.{i}": x for i, x in enumerate(inputs)}
    tensors["target"] = target
    model = copy.deepcopy(model)
    for mode in (["train"] if train else []) + ["eval"]:
        model.train(mode == "train")
        model.zero_grad()
        loss = loss_of(model(*inputs), target)
        loss.backward()
        tensors[f"{mode}.loss"] = loss.reshape(1)
        for key, parameter in model.named_parameters():
            if parameter.grad is not None:
                tensors[f"{mode}.{key}"] = parameter.grad
        if mode == "train":
            for key, buffer in model.named_buffers():
                tensors[f"after.{key}"] = buffer.clone().reshape(-1)
    save_safetensors(tensors, FOLDER / f"{name}.safetensors")


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 10), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(10, 8), nn.GELU(), nn.Dropout(0.25), nn.Linear(8, 4))

    def forward(self, x):
        return self.net(x)


class DropoutInPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 10), nn.Hardswish(inplace=True), nn.Dropout(0.5, inplace=True), nn.Linear(10, 4))

    def forward(self, x):
        return self.net(x)


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x
        return self.relu(y)


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.layer1 = Block(4)
        self.layer2 = Block(4)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(4, 5)

    def forward(self, x):
        x = self.layer2(self.layer1(self.stem(x)))
        return self.fc(torch.flatten(self.pool(x), 1))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 5)
        self.lstm = nn.LSTM(5, 6, num_layers=2, dropout=0.3, batch_first=True)
        self.out = nn.Linear(6, 11)

    def forward(self, tokens):
        y, _ = self.lstm(self.embedding(tokens))
        return self.out(y)


class Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 5)
        self.gru = nn.GRU(5, 6, batch_first=True, bidirectional=True)
        self.out = nn.Linear(12, 4)

    def forward(self, tokens):
        y, _ = self.gru(self.embedding(tokens))
        return self.out(y[:, -1])


class Encoder(nn.Module):
    def __init__(self, dropout=0.1):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.out = nn.Linear(8, 3)

    def forward(self, tokens):
        return self.out(self.encoder(self.embedding(tokens)).mean(1))


class Attention(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.c_attn(x).split(c, dim=2)
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))


class GptBlock(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads, dropout)
        self.attn_drop = nn.Dropout(dropout)
        self.ln_2 = nn.LayerNorm(width)
        self.c_fc = nn.Linear(width, 4 * width)
        self.act = nn.GELU(approximate="tanh")
        self.c_proj = nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.attn_drop(self.attn(self.ln_1(x)))
        return x + self.drop(self.c_proj(self.act(self.c_fc(self.ln_2(x)))))


class Gpt(nn.Module):
    def __init__(self, vocabulary=13, width=8, heads=2, depth=2, length=6, dropout=0.1):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(length, width)
        self.drop = nn.Dropout(dropout)
        self.h = nn.ModuleList([GptBlock(width, heads, dropout) for _ in range(depth)])
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens):
        x = self.drop(self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1])))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class WithLoss(nn.Module):
    """Returns its loss; a frozen layer; a module called twice; a constant; an integer tensor between layers."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.frozen = nn.Linear(6, 6)
        self.frozen.requires_grad_(False)
        self.act = nn.Tanh()
        self.out = nn.Linear(6, 4)
        self.register_buffer("scale", torch.tensor([1.0, 0.5, 2.0, 1.5, 1.0, 0.25]))
        self.register_buffer("shift", torch.arange(6.0) / 10, persistent=False)

    def forward(self, x, target):
        x = self.act(self.first(x)) * self.scale + self.shift
        largest = x.argmax(1)
        x = self.act(self.first(self.frozen(x)))
        x = x + F.one_hot(largest, 6).to(x.dtype) * 0.1
        return F.cross_entropy(self.out(x), target)


class StochasticDepth(nn.Module):
    """Drops whole samples of a branch (as torchvision does), and features."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)
        self.alpha = nn.AlphaDropout(0.2)
        self.feature = nn.Dropout1d(0.3)
        self.out = nn.Linear(6, 4)

    def forward(self, x):
        y = self.a(x)
        if self.training:
            noise = torch.empty([y.shape[0], 1], dtype=y.dtype, device=y.device)
            noise = noise.bernoulli_(0.8).div_(0.8)
            y = y * noise
        x = x + y
        return self.out(self.feature(self.alpha(self.b(x)).unsqueeze(2)).squeeze(2))


class Views(nn.Module):
    """In-place work through views, sizes used far away, rms_norm, a list of results, constants made on the way."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.norm = nn.RMSNorm(8)
        self.out = nn.Linear(8, 4)

    def forward(self, x):
        n = x.shape[0]
        x = self.inner(x)
        y = x.clone()
        y[:, 2] = 0.5
        y.view(-1).add_(1.0)
        a, b = self.norm(y).chunk(2, dim=1)
        mask = torch.tril(torch.ones(4, 4)).sum(0)
        z = torch.cat([a * mask, b.sigmoid()], 1).view(n, 2, 4).transpose(1, 2).reshape(n, 8)
        return self.out(torch.where(z > 0.1, z, z * 0.25))


class SequenceFirst(nn.Module):
    """Attention on [length, batch, width] inside: the batch is not the first dimension there."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.2)
        self.drop = nn.Dropout(0.4)
        self.out = nn.Linear(8, 3)

    def forward(self, tokens):
        x = self.embedding(tokens).transpose(0, 1)
        y, _ = self.attention(x, x, x, need_weights=False)
        return self.out(self.drop(x + y).mean(0))


def tokens(batch=3, length=5, vocabulary=11):
    return torch.randint(0, vocabulary, (batch, length))


def numeric(name, model, inputs, target, train=True, dynamic=True, strip=True):
    model.train()
    save(name, model, inputs, dynamic, strip=strip)
    reference(name, model, inputs, target, train)


def make_numeric():
    labels = lambda n, batch=3: torch.randint(0, n, (batch,))
    return {
        "mlp": lambda: numeric("mlp", Mlp(), (torch.randn(3, 6),), labels(4), train=False),
        "dropout_in_place": lambda: numeric("dropout_in_place", DropoutInPlace(), (torch.randn(3, 6),), labels(4), train=False),
        "cnn": lambda: numeric("cnn", Cnn(), (torch.randn(3, 3, 6, 6),), labels(5)),
        "cnn_static": lambda: numeric("cnn_static", Cnn(), (torch.randn(3, 3, 6, 6),), labels(5), dynamic=None),
        "cnn_channels_last": lambda: numeric("cnn_channels_last", Cnn().to(memory_format=torch.channels_last), (torch.randn(3, 3, 6, 6),), labels(5)),
        "lstm": lambda: numeric("lstm", Lstm(), (tokens(),), tokens(), train=False),
        "lstm_static": lambda: numeric("lstm_static", Lstm(), (tokens(),), tokens(), train=False, dynamic=None),
        "gru": lambda: numeric("gru", Gru(), (tokens(),), labels(4)),
        "encoder": lambda: numeric("encoder", Encoder(), (tokens(),), labels(3), train=False),
        "gpt": lambda: numeric("gpt", Gpt(), (tokens(3, 6, 13),), tokens(3, 6, 13), train=False),
        "gpt_no_dropout": lambda: numeric("gpt_no_dropout", Gpt(depth=1, dropout=0.0), (tokens(3, 6, 13),), tokens(3, 6, 13)),
        "with_loss": lambda: numeric("with_loss", WithLoss(), (torch.randn(3, 6), labels(4)), labels(4)),
        "stochastic_depth": lambda: numeric("stochastic_depth", StochasticDepth(), (torch.randn(3, 6),), labels(4), train=False),
        "views": lambda: numeric("views", Views(), (torch.randn(3, 8),), labels(4)),
        "sequence_first": lambda: numeric("sequence_first", SequenceFirst(), (tokens(),), labels(3), train=False),
    }


def eval_export():
    torch.manual_seed(0)
    save("cnn_eval", Cnn().eval(), (torch.randn(3, 3, 6, 6),))


def weightless(name, build, inputs, dynamic=True):
    with torch.device("meta"):
        model = build().train()
    save(name, model, tuple(x.to("meta") for x in inputs), dynamic)


def make_weightless():
    import torchvision.models as models
    image = lambda side: (torch.randn(2, 3, side, side),)
    gpt2 = lambda: Gpt(50257, 768, 12, 12, 1024)
    return {
        "meta_mlp": lambda: weightless("meta_mlp", Mlp, (torch.randn(2, 6),)),
        "meta_vgg16": lambda: weightless("meta_vgg16", models.vgg16, image(224)),
        "meta_resnet50": lambda: weightless("meta_resnet50", models.resnet50, image(224)),
        "meta_inception_v3": lambda: weightless("meta_inception_v3", lambda: models.inception_v3(aux_logits=False, init_weights=False), image(299)),
        "meta_gpt2": lambda: weightless("meta_gpt2", gpt2, (torch.zeros(2, 1024, dtype=torch.long),)),
    }


# --- files that must be refused -------------------------------------------------------------------------------------------------------


class Fc(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(x)


class Cond(Fc):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda y: self.fc(y), lambda y: y * 2, (x,))


class Autocast(Fc):
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.fc(x)
        return y.float()


class NoGrad(Fc):
    def forward(self, x):
        with torch.no_grad():
            mean = x.mean()
        return self.fc(x - mean)


class Item(Fc):
    def forward(self, x):
        return self.fc(x) * x.max().item()


class Custom(Fc):
    def forward(self, x):
        return torch.ops.mylib.twice(self.fc(x))


class Grouped(Fc):
    """Uses an operator that no supported libtorch has a differentiable form of."""

    def forward(self, x):
        return torch.special.airy_ai(self.fc(x))


class Mutates(Fc):
    def forward(self, x):
        x.add_(1)
        return self.fc(x)


class SharedStatistics(nn.Module):
    """One batch norm called in two places: two layers would change the same buffer."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.bn = nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x):
        return self.bn(self.b(self.bn(self.a(x))))


class BatchSecond(Fc):
    def forward(self, x):
        return self.fc(x.t())


def save_script(name, model, inputs, target, script=False, freeze=False, train=False):
    """A file of torch.jit.save without the debug files that name the author's paths."""
    model.train()
    module = torch.jit.script(model) if script else torch.jit.trace(model, inputs, check_trace=False)
    if freeze:
        module = torch.jit.freeze(module.eval())
    with tempfile.TemporaryDirectory() as folder:
        torch.jit.save(module, folder + "/m.pt")
        rewrite(folder + "/m.pt", FOLDER / f"{name}.pt", lambda entry, data: None if entry.endswith(".debug_pkl") or entry.startswith("traced_inputs") else data, strip=False)
    if target is not None:
        reference(name, model, inputs, target, train)


class BakedBatch(Fc):
    def forward(self, x):
        return self.fc(x).view(int(x.shape[0]), 2, 2)[:, :, 0]


class IgnoresBatch(Fc):
    def forward(self, x):
        return torch.stack([self.fc(x[i]) for i in range(len(x))])


class ValueDependent(Fc):
    def forward(self, x):
        if x.sum() > 0:
            return self.fc(x)
        return x


def make_scripts():
    labels = lambda n, batch=3: torch.randint(0, n, (batch,))
    image = lambda: (torch.randn(3, 3, 6, 6),)
    x = (torch.randn(2, 4),)
    return {
        "traced_mlp": lambda: save_script("traced_mlp", Mlp(), (torch.randn(3, 6),), labels(4)),
        "scripted_mlp": lambda: save_script("scripted_mlp", Mlp(), (torch.randn(3, 6),), labels(4), script=True),
        "traced_cnn": lambda: save_script("traced_cnn", Cnn(), image(), labels(5), train=True),
        "scripted_cnn": lambda: save_script("scripted_cnn", Cnn(), image(), labels(5), script=True, train=True),
        "traced_lstm": lambda: save_script("traced_lstm", Lstm(), (tokens(),), tokens()),
        "scripted_lstm": lambda: save_script("scripted_lstm", Lstm(), (tokens(),), tokens(), script=True),
        "traced_gpt": lambda: save_script("traced_gpt", Gpt(), (tokens(3, 6, 13),), tokens(3, 6, 13)),
        "traced_encoder": lambda: save_script("traced_encoder", Encoder(), (tokens(),), labels(3)),
        "refused_baked": lambda: save_script("refused_baked", BakedBatch(), x, None),
        "refused_ignores_batch": lambda: save_script("refused_ignores_batch", IgnoresBatch(), x, None),
        "refused_value_dependent": lambda: save_script("refused_value_dependent", ValueDependent(), x, None, script=True),
        "refused_frozen": lambda: save_script("refused_frozen", Fc(), x, None, freeze=True),
    }


def edit_program(edit):
    def change(name, data):
        if not name.startswith("models/"):
            return data
        program = json.loads(data)
        edit(program)
        return json.dumps(program, separators=(",", ":")).encode()
    return change


def make_refused():
    @torch.library.custom_op("mylib::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @twice.register_fake
    def _(x):
        return torch.empty_like(x)

    x = (torch.randn(2, 4),)

    def decomposed():
        torch.manual_seed(0)
        program = torch.export.export(SharedStatistics(), x, dynamic_shapes=({0: BATCH},)).run_decompositions({})
        with tempfile.TemporaryDirectory() as folder:
            torch.export.save(program, folder + "/m.pt2")
            rewrite(folder + "/m.pt2", FOLDER / "refused_decomposed.pt2")

    def frozen_model():
        torch.manual_seed(0)
        save_script("refused_torchscript", Fc(), x, None)

    def state_dict():
        torch.save({"fc.weight": torch.ones(1)}, str(FOLDER / "refused_state_dict.pt"))

    def drop(prefix):
        return lambda name, data: None if name.startswith(prefix) else data

    def several(name, data):
        return data

    def two_models():
        save("refused_two_models", Fc(), x)
        path = FOLDER / "refused_two_models.pt2"
        with zipfile.ZipFile(path) as archive:
            text, weights = archive.read("m/models/model.json"), archive.read("m/data/weights/model_weights_config.json")
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(zipfile.ZipInfo("m/models/other.json", (2000, 1, 1, 0, 0, 0)), text)
            archive.writestr(zipfile.ZipInfo("m/data/weights/other_weights_config.json", (2000, 1, 1, 0, 0, 0)), weights)

    def older():
        with zipfile.ZipFile(FOLDER / "refused_older.pt2", "w") as archive:
            for name in ("version", "serialized_exported_program.json", "serialized_state_dict.pt", "serialized_constants.pt"):
                archive.writestr(zipfile.ZipInfo(name, (2000, 1, 1, 0, 0, 0)), "6")

    def unknown_variant(program):
        program["graph_module"]["graph"]["nodes"][0]["inputs"][0]["arg"] = {"as_quantum": 1}

    def custom_object(program):
        program["graph_module"]["graph"]["nodes"][0]["inputs"][2]["arg"] = {"as_custom_obj": {"name": "o", "class_fqn": "C"}}

    def pickled(name, data):
        if not name.endswith("weights_config.json"):
            return data
        config = json.loads(data)
        config["config"]["fc.bias"]["use_pickle"] = True
        return json.dumps(config).encode()

    def mutation(program):
        program["graph_module"]["signature"]["output_specs"].append(
            {"parameter_mutation": {"arg": {"name": "linear"}, "parameter_name": "fc.weight"}})
        program["graph_module"]["graph"]["outputs"].append({"as_tensor": {"name": "linear"}})

    return {
        "refused_cond": lambda: save("refused_cond", Cond(), x),
        "refused_autocast": lambda: save("refused_autocast", Autocast(), x),
        "no_grad": lambda: save("no_grad", NoGrad(), x),
        "refused_item": lambda: save("refused_item", Item(), x),
        "refused_custom": lambda: save("refused_custom", Custom(), x),
        "refused_mutates": lambda: save("refused_mutates", Mutates(), x),
        "refused_shared_statistics": lambda: save("refused_shared_statistics", SharedStatistics(), x),
        "refused_batch_second": lambda: save("refused_batch_second", BatchSecond(), (torch.randn(4, 2),), ({1: BATCH},)),
        "refused_decomposed": decomposed,
        "refused_torchscript": frozen_model,
        "refused_state_dict": state_dict,
        "refused_schema": lambda: save("refused_schema", Fc(), x, change=edit_program(lambda p: p["schema_version"].update(major=9))),
        "refused_variant": lambda: save("refused_variant", Fc(), x, change=edit_program(unknown_variant)),
        "refused_object": lambda: save("refused_object", Fc(), x, change=edit_program(custom_object)),
        "refused_mutation": lambda: save("refused_mutation", Fc(), x, change=edit_program(mutation)),
        "refused_unknown_operator": lambda: save("refused_unknown_operator", Fc(), x, change=edit_program(
            lambda p: p["graph_module"]["graph"]["nodes"][0].update(target="torch.ops.aten.quantum_linear.default"))),
        "refused_pickled": lambda: save("refused_pickled", Fc(), x, change=pickled),
        "refused_aborted": lambda: save("refused_aborted", Fc(), x, change=drop("models/")),
        "refused_two_models": two_models,
        "refused_older": older,
    }


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    makers = {**make_numeric(), **make_weightless(), **make_refused(), **make_scripts(), "cnn_eval": eval_export}
    for name in sys.argv[1:] or makers:
        torch.manual_seed(1)
        try:
            makers[name]()
            print(name, [path.stat().st_size for path in FOLDER.glob(f"{name}.pt*")])
        except Exception as error:  # report, go on with the others
            print(f"{name}: FAILED {type(error).__name__}: {str(error)[:1000]}")


if __name__ == "__main__":
    main()
