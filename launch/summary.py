#!/usr/bin/env python3
"""What a run did, from its ledger, events and metrics.

usage: summary.py RUN_FOLDER

Prints losses, evaluation, recoveries and the check that every step counted every micro-batch once
and that samples follow each other without gap; exits 1 when the ledger says otherwise.
"""
import json
import pathlib
import sys


def lines(path):
    if path.exists():
        with path.open(encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)


def surviving(ledger):
    """The ledger's lines that the run's final state rests on: the last timeline's word on each step."""
    steps = {}
    for line in ledger:
        for step in [s for s in steps if s >= line["step"] and steps[s]["timeline"] < line["timeline"]]:
            del steps[step]
        steps[line["step"]] = line
    return [steps[step] for step in sorted(steps)]


def ledger_faults(ledger):
    """Sentences about steps that did not count each micro-batch exactly once."""
    faults, total = [], None
    for previous, line in zip([None] + ledger, ledger):
        spans = sorted((begin, end) for _, ranges in line["micro_batches"] for begin, end in ranges)
        total = total or (spans[-1][1] if spans else 0)
        position = 0
        for begin, end in spans:
            if begin != position:
                faults.append(f"step {line['step']}: micro-batch {min(begin, position)} is "
                              f"{'missing' if begin > position else 'counted twice'}")
            position = end
        if position != total:
            faults.append(f"step {line['step']}: {position} micro-batches instead of {total}")
        if previous and line["step"] != previous["step"] + 1:
            faults.append(f"no step between {previous['step']} and {line['step']}")
        elif previous and line["samples"][0] != previous["samples"][1] + 1:
            faults.append(f"step {line['step']}: its samples do not follow those before it")
    return faults, total


def mean(values):
    return sum(values) / len(values) if values else float("nan")


def row(name, text):
    print(f"  {name:<34}{text}")


def print_recoveries(events):
    """A line for each change of view after the first; milliseconds from the cause to training on."""
    again, started = 0, False
    for event in events:
        phases = event.get("phase_ms") or {}
        if event["event"] != "view" or not phases:
            continue
        again += event.get("micro_batches_lost", 0)
        if started:
            parts = ", ".join(f"{name} {ms:.0f}" for name, ms in phases.items())
            row(f"recovery, generation {event['generation']}",
                f"{sum(phases.values()):.0f} ms ({parts}), {event['members']} workers: "
                f"{event['reason']}")
        started = True
    row("micro-batches computed again", f"at most {again}")


def main(folder):
    run = pathlib.Path(folder)
    ledger = surviving(lines(run / "ledger.jsonl"))
    metrics = list(lines(run / "metrics.jsonl"))
    if not ledger:
        print(f"{run / 'ledger.jsonl'} has no step", file=sys.stderr)
        return 1
    faults, total = ledger_faults(ledger)
    losses = [m["loss"] for m in metrics if "loss" in m]
    evaluation = next((m for m in reversed(metrics) if "eval_loss" in m), None)
    samples = sum(line["samples"][1] - line["samples"][0] + 1 for line in ledger)

    row("steps", f"{len(ledger)} committed, with {min(l['members'] for l in ledger)} to "
                 f"{max(l['members'] for l in ledger)} workers")
    row("samples", f"{samples}")
    row("training loss", f"{mean(losses[:5]):.3f} (first 5 steps) -> {mean(losses[-20:]):.3f} (last 20)")
    if evaluation:
        row("validation", f"loss {evaluation['eval_loss']:.3f}, masked tokens predicted right "
                          f"{100 * evaluation['eval_accuracy']:.1f} %")
    print_recoveries(lines(run / "events.jsonl"))
    if faults:
        for fault in faults:
            row("LEDGER", fault)
        return 1
    row("counted exactly once", f"{total} micro-batches in each of {len(ledger)} steps, "
                                f"{total * len(ledger)} in all")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
