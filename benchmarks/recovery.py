#!/usr/bin/env python3
"""From SIGKILL to the next committed step.

usage: recovery.py [--kills 20] [--workers 3] [--seed 1] [--build build/release]

Trains a small model with `starling run --restart-delay never`, kills a random worker with SIGKILL,
waits for the next line of the ledger, brings a worker back with `starling resize`, and repeats.
Printed for each kill: time from the kill to the ledger line; the undisturbed step time of the
survivors, measured afterwards in the same run; and the difference, which is what the loss cost. At
the end medians and maxima, and whether every step of the ledger counts each micro-batch once.
"""
import argparse
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

WORDS = ("мама мыла раму сегодня вечером старый дом стоял у реки дети играли во дворе снег падал "
         "тихо на крыши города люди спешили домой книга лежала на столе кошка спала под окном").split()


def make_text(path, rng):
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(400):
            for _ in range(12):
                words = [rng.choice(WORDS) for _ in range(rng.randint(4, 10))]
                file.write(" ".join(words).capitalize() + ". ")
            file.write("\n\n")


class Run:
    """A training run in a temporary folder, with its ledger followed line by line."""

    def __init__(self, build, folder, workers, seed):
        self.starling = str(pathlib.Path(build) / "bin" / "starling")
        self.folder = pathlib.Path(folder)
        self.run = self.folder / "run"
        rng = random.Random(seed)
        make_text(self.folder / "text.txt", rng)
        self.call("tokenizer", "train", "--input", self.folder / "text.txt", "--vocab-size", "140",
                  "--output", self.folder / "tokenizer.json")
        self.call("prepare", "--tokenizer", self.folder / "tokenizer.json", "--input",
                  self.folder / "text.txt", "--output", self.folder / "text.tokens")
        config = self.folder / "config.yaml"
        config.write_text(json.dumps({
            "run": {"name": "recovery", "directory": str(self.run), "seed": seed},
            "data": {"train": [str(self.folder / "text.tokens")],
                     "tokenizer": str(self.folder / "tokenizer.json"), "pad_to_multiple": 16},
            "model": {"hidden_size": 128, "layers": 2, "groups": 2, "share_large_matrices": 1,
                      "heads": 2, "intermediate_size": 256, "gated": True, "embedding_size": 64},
            "training": {"steps": 1000000, "global_batch": 48, "micro_batch": 4,
                         "sequence_length": {"initial": 64, "final": 64, "warmup_steps": 0,
                                             "multiple": 16}},
            "optimizer": {"name": "lamb", "learning_rate": 1e-3, "warmup_steps": 20},
            "elastic": {"min_workers": 1, "max_workers": 8},
            "checkpoint": {"every_steps": 1000}}))
        self.log = open(self.folder / "run.log", "w")
        self.process = subprocess.Popen(
            [self.starling, "run", "--config", str(config), "--workers", str(workers),
             "--restart-delay", "never"], stdout=self.log, stderr=self.log)
        self.lines = []
        self.times = []
        self.offset = 0

    def call(self, *arguments):
        subprocess.run([self.starling, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    def status(self):
        result = subprocess.run([self.starling, "status", "--run", str(self.run), "-o", "json"],
                                capture_output=True, text=True)
        return json.loads(result.stdout) if result.returncode == 0 else None

    def poll(self):
        """Takes in new ledger lines; their time is when they were seen, within a millisecond."""
        path = self.run / "ledger.jsonl"
        if not path.exists():
            return
        with open(path, encoding="utf-8") as file:
            file.seek(self.offset)
            text = file.read()
        whole = text[:text.rfind("\n") + 1]
        self.offset += len(whole.encode())
        for line in whole.splitlines():
            self.lines.append(json.loads(line))
            self.times.append(time.monotonic())

    def wait(self, condition, what, seconds=60):
        deadline = time.monotonic() + seconds
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                print(open(self.folder / "run.log").read()[-3000:], file=sys.stderr)
                sys.exit(f"recovery: gave up waiting for {what}")
            time.sleep(0.0005)
            self.poll()

    def wait_lines(self, count, what):
        target = len(self.lines) + count
        self.wait(lambda: len(self.lines) >= target, what)

    def wait_members(self, members):
        self.wait(lambda: self.lines and self.lines[-1]["members"] == members, f"{members} members")


def one_kill(run, rng, workers):
    run.wait_members(workers)
    run.wait_lines(3, "three steps")
    victim = rng.choice([w for w in run.status()["workers"] if w["state"] == "active"])
    run.wait_lines(1, "a step")
    time.sleep(rng.random() * (run.times[-1] - run.times[-2]))  # anywhere within a step
    run.poll()
    before = len(run.lines)
    os.kill(victim["pid"], signal.SIGKILL)
    killed = time.monotonic()
    run.wait(lambda: len(run.lines) > before and run.lines[-1]["members"] < workers,
             "the survivors' next step")
    first = next(i for i in range(before, len(run.lines)) if run.lines[i]["members"] < workers)
    took = run.times[first] - killed
    run.wait_lines(4, "steps of the survivors")
    after = [b - a for a, b in zip(run.times[first + 1:-1], run.times[first + 2:])]
    run.call("resize", str(workers), "--run", run.run)
    return victim["rank"], took, statistics.median(after)


def counted_once(lines):
    total = None
    for line in lines:
        numbers = sorted(i for _, spans in line["micro_batches"] for b, e in spans for i in range(b, e))
        total = total or len(numbers)
        if numbers != list(range(total)):
            return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--build", default="build/release")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="starling-recovery-") as folder:
        run = Run(arguments.build, folder, arguments.workers, arguments.seed)
        try:
            results = []
            print(f"{'kill':>4} {'rank':>4} {'kill to ledger ms':>18} {'step ms':>8} {'cost ms':>8}")
            for number in range(arguments.kills):
                rank, took, step = one_kill(run, rng, arguments.workers)
                results.append((took, step))
                print(f"{number + 1:>4} {rank:>4} {1000 * took:>18.0f} {1000 * step:>8.0f} "
                      f"{1000 * (took - step):>8.0f}", flush=True)
            costs = [took - step for took, step in results]
            print(f"kill to ledger: median {1000 * statistics.median(t for t, _ in results):.0f} ms, "
                  f"max {1000 * max(t for t, _ in results):.0f} ms")
            print(f"beyond one step of the survivors: median {1000 * statistics.median(costs):.0f} ms, "
                  f"max {1000 * max(costs):.0f} ms (bar: median at most 500 ms)")
            once = counted_once(run.lines)
            print(f"{len(run.lines)} steps, each micro-batch counted once: {'yes' if once else 'NO'}")
            return 0 if once and statistics.median(costs) <= 0.5 else 1
        finally:
            run.process.send_signal(signal.SIGTERM)
            try:
                run.process.wait(30)
            except subprocess.TimeoutExpired:
                run.process.kill()


if __name__ == "__main__":
    sys.exit(main())
