#!/usr/bin/env bash
# Builds what changed and runs the tests: launch/test.sh [--build TYPE] [label]. Without a label all
# of them; labels are fast, slow, multiproc, …, see CONTRIBUTING.md. Tests that cannot run on this
# machine skip themselves with a reason. The last line is `N passed, N failed[, N skipped]`, and the
# exit status is 0 only when none failed. --build Sanitize runs the torch-free tests under
# AddressSanitizer and UndefinedBehaviorSanitizer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

type=Release
if [[ ${1:-} == --build ]]; then
  type=${2:?"--build needs Debug, Release or Sanitize"}
  shift 2
fi
./launch/build.sh "$type"

build=build/${type,,}
report=$PWD/$build/tests.xml
rm -f "$report"
arguments=(--test-dir "$build" --output-on-failure --no-tests=error --output-junit "$report")
arguments+=(-j "$(nproc)")
[[ -z ${1:-} ]] || arguments+=(-L "^$1\$")
if [[ $type == Sanitize ]]; then
  arguments+=(-R "^($(paste -sd '|' "$build/torch_free_tests.txt")): ")
  # Minutes of killed processes, whose time is the processes' own: once, in Release, is enough.
  arguments+=(-E '^(kill_points_test|coordinator_death_test|chaos_test): ')
fi
status=0
ctest "${arguments[@]}" || status=$?
[[ -f $report ]] || { echo "test: ctest wrote no report" >&2; exit 1; }
python3 launch/count_tests.py "$report" "$status"
