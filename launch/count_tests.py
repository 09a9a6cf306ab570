#!/usr/bin/env python3
"""Prints `N passed, N failed[, N skipped]` from ctest's JUnit report; exits 1 unless all is well.

usage: count_tests.py REPORT CTEST_STATUS

A test that ctest could not start counts as failed; one that said why it cannot run here (Catch2's
SKIP) counts as skipped, and its name and reason are listed.
"""
import sys
import xml.etree.ElementTree as ElementTree


def main(report, ctest_status):
    passed, failed, skipped = 0, [], []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name, reason = case.get("name"), case.find("skipped")
        if case.get("status") == "run":
            passed += 1
        elif reason is not None and "SKIP" in reason.get("message", ""):
            output = (case.findtext("system-out") or "").splitlines()
            why = [line.strip() for line, before in zip(output[1:], output)
                   if "explicitly with message" in before or before.endswith("SKIPPED:")]
            skipped.append(f"{name}: {why[-1] if why else 'no reason given'}")
        else:
            failed.append(name)
    for line in skipped:
        print(f"skipped  {line}")
    for line in failed:
        print(f"FAILED   {line}")
    print(f"{passed} passed, {len(failed)} failed" + (f", {len(skipped)} skipped" if skipped else ""))
    return 1 if failed or ctest_status != 0 or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
