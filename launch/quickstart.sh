#!/usr/bin/env bash
# From a fresh checkout to a trained model, with workers that come and go:
#   launch/quickstart.sh                 Russian text out of Debian's own documentation packages
#   launch/quickstart.sh --corpus FILE   your text: JSON Lines with a "text" key, or plain text with
#                                        documents separated by empty lines; .gz of both, or a folder
# Sets up, builds, trains a tokenizer, prepares the text, and trains configs/quickstart.yaml for 200
# steps with three workers. At step 60 one is killed, at step 110 another joins. Nothing is lost and
# nothing is counted twice; the summary at the end shows it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

kill_step=60
join_step=110
corpus=""
case ${1:-} in
  "") ;;
  --corpus) corpus=$(realpath -e "${2:?--corpus needs a file or a folder}") ;;
  *) sed -n '2,9s/^# \?//p' "$0"; exit 64 ;;
esac

say() { printf '\n>> %s\n' "$*"; }

# Downloads the packages and unpacks them below the cache; installs nothing.
debian_text() {
  local packages=(debian-faq-ru developers-reference-ru maint-guide-ru manpages-ru)
  local folder=${STARLING_DEPS:-${XDG_CACHE_HOME:-$HOME/.cache}/starling}/debian-text
  if [[ ! -s $folder/text.txt ]]; then
    rm -rf "$folder" && mkdir -p "$folder/packages"
    (cd "$folder/packages" && apt-get -q download "${packages[@]}" >apt.log 2>&1) ||
      { cat "$folder/packages/apt.log" >&2; echo "quickstart: apt could not download" \
        "${packages[*]}; is apt-get update needed?" >&2; exit 1; }
    local package
    for package in "$folder"/packages/*.deb; do dpkg-deb -x "$package" "$folder/files"; done
    python3 launch/debian_text.py "$folder/files" >"$folder/text.tmp"
    mv "$folder/text.tmp" "$folder/text.txt"
  fi
  corpus=$folder/text.txt
}

committed_step() {
  local line
  line=$(tail -n 1 "$run/ledger.jsonl" 2>/dev/null) || true
  [[ $line =~ \"step\":\ *([0-9]+) ]] && echo "${BASH_REMATCH[1]}" || echo 0
}

wait_for_step() {
  while (($(committed_step) < $1)); do sleep 0.1; done
}

# The process of the worker with the last rank, from what the coordinator knows.
some_worker() {
  "$starling" status --run "$run" -o json | python3 -c '
import json, sys
workers = [w for w in json.load(sys.stdin)["workers"] if (w["rank"] or 0) > 0]
worker = max(workers, key=lambda w: w["rank"])
print(worker["name"], worker["pid"])'
}

# Runs beside the training.
disturb() {
  local name pid
  wait_for_step "$kill_step"
  read -r name pid < <(some_worker)
  say "step $(committed_step): killing worker $name (kill -9 $pid)"
  kill -KILL "$pid"
  wait_for_step "$join_step"
  say "step $(committed_step): starling resize 3 --run $run"
  "$starling" resize 3 --run "$run"
}

./launch/setup.sh
say "building"
./launch/build.sh Release
starling=build/release/bin/starling
started=$SECONDS

data=runs/quickstart-data
mkdir -p "$data"
if [[ -z $corpus ]]; then
  say "text from Debian's documentation packages"
  debian_text
fi
say "tokenizer: 4000 pieces from $corpus"
"$starling" tokenizer train --input "$corpus" --vocab-size 4000 --output "$data/tokenizer.json"
say "prepare: text to token files, 3 % of the documents for validation"
"$starling" prepare --tokenizer "$data/tokenizer.json" --input "$corpus" \
  --output "$data/text.tokens" --validation-fraction 0.03

run=runs/quickstart-$(date +%Y%m%d-%H%M%S)
say "training in $run"
disturb &
disturber=$!
trap 'kill "$disturber" 2>/dev/null || true' EXIT
"$starling" run --config configs/quickstart.yaml --workers 3 --restart-delay never \
  --set "run.directory=$run"
wait "$disturber" || { echo "quickstart: killing or adding a worker failed, see above" >&2; exit 1; }

say "summary of $run ($((SECONDS - started)) s after the build)"
python3 launch/summary.py "$run"
