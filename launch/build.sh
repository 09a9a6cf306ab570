#!/usr/bin/env bash
# Builds everything: launch/build.sh [Debug|Release|Sanitize], default Release, into
# build/{debug,release,sanitize}. Sanitize builds the torch-free tests only. The same as
# `cmake --preset release && cmake --build --preset release`, with a job count that fits the memory.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

type=${1:-Release}
case $type in
  Debug | Release | Sanitize) preset=${type,,} ;;
  *)
    echo "usage: launch/build.sh [Debug|Release|Sanitize]" >&2
    exit 64
    ;;
esac

# A translation unit with torch's headers takes up to 1.5 GB.
memory_gb=$(awk '/^MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
jobs=$(nproc)
((jobs <= memory_gb / 2)) || jobs=$((memory_gb / 2))
((jobs >= 1)) || jobs=1

# Compiled objects are found again from another checkout too.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

if [[ ! -f build/$preset/build.ninja ]]; then
  mkdir -p "build/$preset"
  log=build/$preset/configure.log
  cmake --preset "$preset" >"$log" 2>&1 || {
    cat "$log" >&2
    echo "build: cannot configure; if something is missing, ./launch/setup.sh installs it" >&2
    exit 1
  }
fi
cmake --build --preset "$preset" -j "$jobs"
