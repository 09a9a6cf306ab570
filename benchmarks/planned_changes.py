#!/usr/bin/env python3
"""What joins and drains cost those who stay.

usage: planned_changes.py [--changes 20] [--workers 2] [--seed 1] [--build build/release]

Trains a small model, drains a random worker with `starling drain` at a random moment of a step,
brings one back with `starling resize`, and repeats. Printed for each change: the longest stall of
a member that stays (time in which it neither computes a micro-batch nor takes part in the step's own
collectives, as it logs it), micro-batches computed again, and the slow-down from sharing cores: the
longest step from two before the switch on, beside the usual one. At the end medians and maxima.
"""
import argparse
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from recovery import Run, counted_once

COPIED = re.compile(r"event=copied .* bytes=(\d+) .* gb_per_s=([0-9.]+)")
SWITCHED = re.compile(r"gen=(\d+).*event=switched from_gen=(\d+) stall_ms=([0-9.]+)")


def stalls(run):
    """By generation switched to: the stalls in ms of the members that were there before."""
    found = {}
    for log in pathlib.Path(run.run).glob("workers/*.log"):
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            if match := SWITCHED.search(line):
                found.setdefault(int(match[1]), []).append(float(match[3]))
    return found


def copies(run):
    """GB/s of the copies to newcomers."""
    return [float(match[2]) for log in pathlib.Path(run.run).glob("workers/*.log")
            for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
            if (match := COPIED.search(line))]


def generation(run):
    return run.lines[-1]["generation"]


def change(run, rng, kind, workers):
    """One drain or join; returns (kind, generation, usual step s, longest step s)."""
    run.wait_lines(8, "undisturbed steps")
    usual = statistics.median(b - a for a, b in zip(run.times[-7:-1], run.times[-6:]))
    time.sleep(rng.random() * usual)
    run.poll()
    before, first = generation(run), len(run.lines)
    if kind == "drain":
        victim = rng.choice([w for w in run.status()["workers"] if w["state"] == "active"])
        run.call("drain", victim["name"], "--run", run.run)
    else:
        run.call("resize", str(workers + 1), "--run", run.run)
    run.wait(lambda: generation(run) != before, f"the view after a {kind}", 120)
    run.wait_lines(2, "steps of the new view")
    longest = max(b - a for a, b in zip(run.times[first - 1:-1], run.times[first:]))
    return kind, generation(run), usual, longest


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--changes", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--build", default="build/release")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="starling-planned-") as folder:
        run = Run(arguments.build, folder, arguments.workers, arguments.seed)
        try:
            run.wait_members(arguments.workers)
            made = []
            for number in range(arguments.changes):
                made.append(change(run, rng, "join" if number % 2 == 0 else "drain",
                                   arguments.workers))
            return report(run, made)
        finally:
            run.process.send_signal(signal.SIGTERM)
            try:
                run.process.wait(30)
            except subprocess.TimeoutExpired:
                run.process.kill()


def report(run, made):
    found = stalls(run)
    print(f"{'change':>6} {'gen':>4} {'stall ms':>9} {'usual step ms':>14} {'longest step ms':>16}")
    longest_stalls = {"join": [], "drain": []}
    bars = []
    for kind, number, usual, longest in made:
        stall = max(found.get(number, [float("nan")]))
        longest_stalls[kind].append(stall)
        bars.append(max(20.0, 50.0 * usual))
        print(f"{kind:>6} {number:>4} {stall:>9.1f} {1000 * usual:>14.0f} {1000 * longest:>16.0f}")
    for kind, values in longest_stalls.items():
        if values:
            print(f"{kind}: stall of the slowest member, median {statistics.median(values):.1f} ms, "
                  f"max {max(values):.1f} ms (bar: median at most {statistics.median(bars):.0f} ms)")
    if rates := copies(run):
        print(f"state copied at {statistics.median(rates):.2f} GB/s (median of {len(rates)} rounds, "
              f"while the others train)")
    once = counted_once(run.lines)
    print(f"{len(run.lines)} steps, each micro-batch counted once: {'yes' if once else 'NO'}")
    return 0 if once else 1


if __name__ == "__main__":
    sys.exit(main())
