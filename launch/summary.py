#!/usr/bin/env python3
"""What a run did, from its ledger, events and metrics.

usage: summary.py RUN_FOLDER

Prints losses, evaluation, recoveries and the check that the ledger holds every step from the first
on, that each counted every micro-batch once, and that samples follow each other without gap from 0;
exits 1 when the ledger says otherwise.
"""
import json
import pathlib
import re
import sys


def lines(path):
    if path.exists():
        with path.open(encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)


def step_size(run):
    """Samples and micro-batches of a step, as the run's config has them."""
    text = (run / "config.resolved.yaml").read_text(encoding="utf-8")
    samples, micro_batch = (int(re.search(rf"^  {key}: (\d+)$", text, re.M)[1])
                            for key in ("global_batch", "micro_batch"))
    return samples, samples // micro_batch


def surviving(ledger):
    """The ledger's lines that the run's final state rests on: the last timeline's word on each step."""
    kept = []
    for line in ledger:
        while kept and kept[-1]["step"] >= line["step"] and kept[-1]["timeline"] < line["timeline"]:
            kept.pop()
        kept.append(line)
    return kept


def span_faults(line, micro_batches):
    """Sentences about the micro-batches of one step that were not counted exactly once."""
    position = 0
    for begin, end in sorted(span for _, spans in line["micro_batches"] for span in spans):
        if begin != position:
            yield (f"step {line['step']}: micro-batch {min(begin, position)} is "
                   f"{'missing' if begin > position else 'counted twice'}")
        position = end
    if position != micro_batches:
        yield f"step {line['step']}: micro-batches end with {position} instead of {micro_batches}"


def ledger_faults(ledger, samples, micro_batches):
    """Sentences about a surviving ledger that does not hold every step from 1 on, each with all its
    micro-batches once and with the samples that follow those of the step before."""
    for number, line in enumerate(ledger, 1):
        if line["step"] != number:
            yield f"step {line['step']} stands where step {number} should"
            return
        if line["samples"] != [(number - 1) * samples, number * samples - 1]:
            yield f"step {number}: its samples do not follow those before it"
        yield from span_faults(line, micro_batches)


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
    step_samples, micro_batches = step_size(run)
    metrics = list(lines(run / "metrics.jsonl"))
    if not ledger:
        print(f"{run / 'ledger.jsonl'} has no step", file=sys.stderr)
        return 1
    faults = list(ledger_faults(ledger, step_samples, micro_batches))
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
    row("counted exactly once", f"{micro_batches} micro-batches in each of {len(ledger)} steps, "
                                f"{micro_batches * len(ledger)} in all")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
