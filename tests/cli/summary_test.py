#!/usr/bin/env python3
"""launch/summary.py on ledgers that are right and on ledgers that each lack one thing."""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SUMMARY = pathlib.Path(__file__).resolve().parents[2] / "launch" / "summary.py"
CONFIG = "training:\n  steps: 4\n  global_batch: 8\n  micro_batch: 2\n"
RIGHT = [{"timeline": 1, "step": step, "generation": 1, "members": 2, "skipped": False,
          "micro_batches": [[0, [[0, 1], [3, 4]]], [1, [[1, 3]]]],
          "samples": [8 * (step - 1), 8 * step - 1]} for step in range(1, 5)]


def summary(ledger):
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder)
        (run / "config.resolved.yaml").write_text(CONFIG)
        (run / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in ledger))
        return subprocess.run([sys.executable, SUMMARY, run], capture_output=True, text=True)


class Summary(unittest.TestCase):
    def check_fault(self, ledger, fault):
        result = summary(ledger)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn(fault, result.stdout)

    def test_right(self):
        result = summary(RIGHT)
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("4 micro-batches in each of 4 steps, 16 in all", result.stdout)

    def test_abandoned_timeline_does_not_count(self):
        abandoned = copy.deepcopy(RIGHT[2:])
        abandoned[1]["micro_batches"] = []
        again = [{**line, "timeline": 2} for line in RIGHT[2:]]
        self.assertEqual(summary(RIGHT[:2] + abandoned + again).returncode, 0)

    def test_the_last_micro_batch_is_never_there(self):
        ledger = copy.deepcopy(RIGHT)
        for line in ledger:
            line["micro_batches"][0][1] = [[0, 1]]
        self.check_fault(ledger, "step 1: micro-batches end with 3 instead of 4")

    def test_a_micro_batch_is_missing_or_there_twice(self):
        ledger = copy.deepcopy(RIGHT)
        ledger[1]["micro_batches"][1][1] = [[2, 3]]
        self.check_fault(ledger, "step 2: micro-batch 1 is missing")
        ledger[1]["micro_batches"][1][1] = [[0, 3]]
        self.check_fault(ledger, "step 2: micro-batch 0 is counted twice")

    def test_the_beginning_or_a_step_is_missing(self):
        self.check_fault(RIGHT[1:], "step 2 stands where step 1 should")
        self.check_fault(RIGHT[:2] + RIGHT[3:], "step 4 stands where step 3 should")

    def test_samples_are_left_out(self):
        ledger = copy.deepcopy(RIGHT)
        ledger[3]["samples"] = [25, 32]
        self.check_fault(ledger, "step 4: its samples do not follow those before it")


if __name__ == "__main__":
    unittest.main()
