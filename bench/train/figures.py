#!/usr/bin/env python3
"""The figures of a run on this machine, as ratios inside one run: efficiency, speed-up, memory, prediction.

Runs the real program on three models, two ranks as threads: mlp (8 x 1024), vgg11 at 32 pixels, gpt (6 blocks of 256). For each model it measures a
profile once (under the load of two ranks), plans the best and an even cut, and trains with several schedules. Prints three tables and checks
its answers: every loss is finite, training has brought it down, a flush schedule in two stages has the losses of one stage.
usage: figures.py PROGRAM [--quick] [--json FILE]
"""
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

MODELS = {
    "mlp": dict(model="mlp:layers=8,width=1024", data="fashion-mnist", micro_batch=64, steps=160),
    "vgg11": dict(model="vgg11", data="fashion-mnist", micro_batch=16, steps=100),
    "gpt": dict(model="gpt:blocks=6,width=256,heads=8,context=64", data="synthetic-tokens", micro_batch=16, steps=100),
}


def call(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, arguments))}\n{done.stderr}")
    return done.stdout


def losses(run):
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


class Bench:
    def __init__(self, program, folder, quick):
        self.program, self.folder, self.quick, self.count = program, folder, quick, 0

    def train(self, settings, *arguments, steps=None):
        self.count += 1
        run = self.folder / f"run{self.count}"
        steps = steps or (settings["steps"] // (4 if self.quick else 1))
        call(self.program, "train", "--model", settings["model"], "--data", settings["data"], "--micro-batch", settings["micro_batch"], "--steps", steps,
             "--lr", 0.01, "--momentum", 0.9, "--no-evaluation", "--quiet", "--run", run, *arguments)
        summary = json.loads((run / "summary.json").read_text())
        summary["losses"] = losses(run)
        assert all(math.isfinite(loss) for loss in summary["losses"]), f"a loss of {run} is not finite"
        return summary

    def plan(self, settings, profile, *arguments):
        self.count += 1
        file = self.folder / f"plan{self.count}.json"
        call(self.program, "plan", profile, "--devices", 2, "--bandwidth", "inf", "--straight", *arguments, "-o", file)
        return file


def table(header, rows):
    widths = [max(len(str(row[c])) for row in [header, *rows]) for c in range(len(header))]
    for row in [header, ["-" * w for w in widths], *rows]:
        print("  ".join(str(cell).ljust(w) if c == 0 else str(cell).rjust(w) for c, (cell, w) in enumerate(zip(row, widths))))
    print()


def main():
    program = sys.argv[1]
    quick = "--quick" in sys.argv
    speed, memory, predictions = [], [], []
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(program, pathlib.Path(scratch), quick)
        for name, settings in MODELS.items():
            profile = bench.folder / f"{name}.json"
            call(program, "profile", "--model", settings["model"], "--data", settings["data"], "--micro-batch", settings["micro_batch"], "--copies", 2,
                 "--iterations", 5 if quick else 15, "--no-split", "-o", profile, "--quiet")
            best, even = bench.plan(settings, profile), bench.plan(settings, profile, "--planner", "uniform")
            # The balance that the best cut allows: all compute / (ranks * compute of the slowest).
            stages = json.loads(best.read_text())["stages"]
            loads = [stage["predicted"]["load_ms"] for stage in stages]
            main_run = bench.train(settings, "--plan", best)
            assert statistics.fmean(main_run["losses"][-10:]) < statistics.fmean(main_run["losses"][:10]), f"{name} did not learn"
            jitter = bench.train(settings, "--plan", best, "--extra-in-flight", 1, "--no-baseline")
            one_thread, all_threads = (baseline["period_ms"] for baseline in main_run["baselines"][:2])
            speed.append([name, f"{main_run['efficiency']:.3f}", f"{jitter['efficiency']:.3f}", f"{one_thread / main_run['period_ms']:.2f}x",
                          f"{one_thread / jitter['period_ms']:.2f}x", f"{sum(loads) / max(loads):.2f}x", f"{one_thread / all_threads:.2f}x"])
            alone = bench.train(settings, "--plan", best, "--no-baseline", steps=40)
            theory = sum(rank["predicted_memory_bytes"] for rank in alone["ranks"])
            tensors = sum(rank["peak_memory_bytes"] for rank in alone["ranks"])
            memory.append([name, f"{theory / 2**20:.0f} MiB", f"{tensors / theory:.3f}", f"{alone['resident_growth_bytes'] / theory:.3f}"])

            runs = [("1f1b-async", "best", main_run), ("1f1b-async", "even", bench.train(settings, "--plan", even, "--no-baseline"))]
            for schedule, steps in (("1f1b", 14), ("gpipe", 14)):
                plan = bench.plan(settings, profile, "--schedule", schedule, "--micro-batches", 8)
                runs.append((schedule, "best", bench.train(settings, "--plan", plan, "--no-baseline", steps=steps)))
            one = bench.train(settings, "--plan", bench.plan(settings, profile, "--schedule", "1f1b", "--micro-batches", 8, "--fewer-devices", "--max-stages", 1),
                              "--no-baseline", "--threads", 1, steps=2)
            for schedule, _, run in runs[2:]:  # the order of sums may differ
                assert all(math.isclose(a, b, rel_tol=1e-6) for a, b in zip(one["losses"], run["losses"][:2])), f"{name}: {schedule} changes the losses"
            predictions += [[name, schedule, cut, f"{run['predicted_period_ms']:.2f} ms", f"{run['period_ms']:.2f} ms", run["predicted_period_ms"] / run["period_ms"] - 1]
                            for schedule, cut, run in runs]
    print("Two ranks as threads on two cores, 1f1b-async, weights stashed")
    table(["model", "efficiency", "one more in flight", "speed-up over one thread", "one more in flight", "the cut allows", "one process, all threads"], speed)
    print("Memory of a stashing run against versions x weights + gradients + optimizer + activations in flight")
    table(["model", "theory", "tensors / theory", "resident / theory"], memory)
    print("Prediction of the period")
    table(["model", "schedule", "cut", "predicted", "measured", "error"], [[*row[:5], f"{row[5]:+.1%}"] for row in predictions])
    print(f"median |predicted / measured - 1| over {len(predictions)}: {statistics.median(abs(row[5]) for row in predictions):.1%}")


if __name__ == "__main__":
    main()
