#!/usr/bin/env python3
"""Time to an accuracy on Fashion-MNIST over a slow link, by method: one table.

    bench/processes/time_to_accuracy.py [--program build/release/pipedream] [--rate 1gbit] [--accuracy 0.83] [--limit 180s] [--only stash,asp]

Two pretended hosts (scripts/hosts.sh: network namespaces, root) with a rate-limited link between them, one core each. Every method starts from the
same weights with the same learning rate and takes 64 samples a step; where a step has several micro-batches, they share the 64. Time is that of
training passes; evaluations are left out. Ends with code 77 where namespaces are not to be had.
"""
import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# name, hosts, samples of a micro-batch, options
METHODS = [
    ("one device", 1, 64, ["--schedule", "model-parallel", "--micro-batches", "1"]),
    ("pipeline, stash", 2, 64, ["--stages", "1-1"]),
    ("  one more in flight", 2, 64, ["--stages", "1-1", "--extra-in-flight", "1"]),
    ("pipeline, 2bw", 2, 32, ["--stages", "1-1", "--policy", "2bw", "--micro-batches", "2"]),
    ("pipeline, flush (1f1b)", 2, 16, ["--stages", "1-1", "--schedule", "1f1b", "--micro-batches", "4"]),
    ("gpipe", 2, 16, ["--stages", "1-1", "--schedule", "gpipe", "--micro-batches", "4"]),
    ("model parallel", 2, 64, ["--stages", "1-1", "--schedule", "model-parallel", "--micro-batches", "1"]),
    ("data parallel", 2, 32, ["--schedule", "data-parallel", "--micro-batches", "2"]),
    ("data parallel, asp", 2, 64, ["--schedule", "asp"]),
]


def run(arguments, method):
    name, hosts, micro_batch, options = method
    command = [arguments.program, "--quiet", "train", "--model", arguments.model, "--data", "fashion-mnist", "--micro-batch", str(micro_batch),
               "--ranks", str(hosts), "--threads", "1", "--lr", str(arguments.lr), "--momentum", "0.9", "--no-baseline", "--json",
               "--evaluate-every", str(arguments.every), "--until-accuracy", str(arguments.accuracy), "--until-time", arguments.limit,
               "--epochs", "100", "--deadline", "120s"] + options
    if hosts > 1:
        command = [str(ROOT / "scripts/hosts.sh"), str(hosts), arguments.rate] + command
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 77:
        print(done.stderr.strip())
        sys.exit(77)
    if done.returncode != 0:
        sys.exit(f"{name}: code {done.returncode}\n{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def bytes_text(count):
    return "-" if count == 0 else f"{count / 2**20:.3g} MiB" if count < 1000 * 2**20 else f"{count / 2**30:.3g} GiB"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build/release/pipedream"))
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--model", default="mlp:layers=6,width=1024")
    parser.add_argument("--accuracy", type=float, default=0.83)
    parser.add_argument("--limit", default="180s", help="of the training time of each method")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--every", type=int, default=50, help="steps between evaluations")
    parser.add_argument("--only", default="", help="methods with these words in their names")
    arguments = parser.parse_args()
    head = f"{'method':<24} {'time to ' + format(arguments.accuracy, '.0%'):>12} {'steps':>6} {'ms/step':>8} {'moved':>9} {'a step':>9}  last accuracy"
    print(f"{arguments.model}, 64 samples a step, {arguments.rate} between two hosts, at most {arguments.limit} of training each")
    print(head)
    print("-" * len(head), flush=True)
    for method in METHODS:
        if arguments.only and not any(word in method[0] for word in arguments.only.split(",")):
            continue
        result = run(arguments, method)
        last = result["evaluations"][-1]
        reached = last["accuracy"] >= arguments.accuracy
        print(f"{method[0]:<24} {format(last['training_ms'] / 1e3, '.1f') + ' s' if reached else 'not reached':>12} {last['steps']:>6} "
              f"{last['training_ms'] / last['steps']:>8.1f} {bytes_text(last['bytes_sent']):>9} {bytes_text(last['bytes_sent'] / last['steps']):>9}  "
              f"{last['accuracy']:.2%}{'' if reached else ' after ' + format(last['training_ms'] / 1e3, '.0f') + ' s'}", flush=True)


if __name__ == "__main__":
    main()
