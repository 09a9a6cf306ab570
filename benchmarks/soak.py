#!/usr/bin/env python3
"""Chaos for half an hour: descriptors, threads and memory must stay flat.

usage: soak.py [--minutes 30] [--workers 4] [--every 3s] [--seed 1] [--build build/release]

Trains a small model under `starling chaos` and looks at /proc of the coordinator (`starling run`) and of
every worker once a second. A process counts from a sixth of the time on (the first half minute of a
worker's life is its start). It fails when descriptors or threads of one grow by more than 5, its
memory by more than 20 MiB, or chaos reports a violation.
"""
import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from recovery import Run

LIMITS = {"descriptors": 5, "threads": 5, "MiB": 20}


def usage(pid):
    """Of a process; None when it is gone."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        fields = dict(line.split(":", 1) for line in status.splitlines())
        return {"descriptors": len(os.listdir(f"/proc/{pid}/fd")),
                "threads": int(fields["Threads"]),
                "MiB": int(fields["VmRSS"].split()[0]) / 1024}
    except (FileNotFoundError, ProcessLookupError, KeyError):
        return None


def watch(run, chaos, begin):
    """By pid: (name, first usage that counts, the largest since)."""
    seen, born = {}, {}
    while chaos.poll() is None:
        status = run.status() or {"workers": []}
        pids = {worker["pid"]: worker["name"] for worker in status["workers"]}
        for pid, name in {**pids, run.process.pid: "coordinator"}.items():
            now = usage(pid)
            settled = time.monotonic() - born.setdefault(pid, time.monotonic()) > 30
            if now is None or time.monotonic() < begin or not settled:
                continue
            _, first, most = seen.setdefault(pid, (name, now, dict(now)))
            for key in first:
                most[key] = max(most[key], now[key])
        time.sleep(1)
    return seen


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--every", default="3s")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--build", default="build/release")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="starling-soak-") as folder:
        run = Run(arguments.build, folder, arguments.workers, arguments.seed)
        try:
            run.wait_members(arguments.workers)
            # The dead stay dead until a join: as many joins as losses.
            chaos = subprocess.Popen(
                [run.starling, "chaos", "--run", str(run.run), "--kill-every", arguments.every,
                 "--kinds", "kill,join,stop,join,drain,join", "--seed", str(arguments.seed),
                 "--duration", f"{int(arguments.minutes * 60)}s"], stderr=run.log)
            seen = watch(run, chaos, time.monotonic() + arguments.minutes * 10)
        finally:
            run.process.send_signal(signal.SIGTERM)
            try:
                run.process.wait(30)
            except subprocess.TimeoutExpired:
                run.process.kill()
    failed = chaos.returncode != 0
    print(f"\n{'PROCESS':<14}{'DESCRIPTORS':>14}{'THREADS':>14}{'MiB':>20}")
    for name, first, most in seen.values():
        grown = any(most[key] - first[key] > limit for key, limit in LIMITS.items())
        failed = failed or grown
        cells = [f"{first[key]:.0f} -> {most[key]:.0f}" for key in LIMITS]
        print(f"{name:<14}{cells[0]:>14}{cells[1]:>14}{cells[2]:>20}{'  GREW' if grown else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
