#!/usr/bin/env bash
# Installs everything that building and running Starling needs, on Debian 12 (amd64), as root or
# through sudo: Debian packages, Catch2 from bookworm-backports, and LibTorch out of its Python
# wheel, which goes to a versioned folder that all checkouts share:
#   ${STARLING_DEPS:-${XDG_CACHE_HOME:-~/.cache}/starling}/torch-2.11.0
# May be run again at any time; it installs only what is missing. Nothing else in this project
# downloads anything, except the text that launch/quickstart.sh trains on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(
  g++ cmake ninja-build ccache mold pkg-config git
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc
  libabsl-dev libspdlog-dev libfmt-dev libyaml-cpp-dev libcli11-dev nlohmann-json3-dev
  prometheus-cpp-dev libcivetweb-dev libcurl4-openssl-dev libicu-dev libsentencepiece-dev
  zlib1g-dev libssl-dev
  clang-format clang-tidy shellcheck groff-base
  python3 python3-pip unzip ca-certificates
)
catch2_minimum=3.7
torch_version=2.11.0
# What is kept of the wheels: headers, the CPU libraries and the two CUDA libraries that
# libtorch_cpu.so is linked against. The rest (Python code, GPU kernels) is 600 MB nobody reads.
torch_files=('torch/include/*' 'torch/lib/libtorch_cpu.so' 'torch/lib/libc10.so'
  'torch/lib/libgomp*' 'torch/lib/libtorch_global_deps.so' 'nvidia/cu13/lib/libcudart.so*'
  'nvidia/cu13/lib/libcupti.so*' '*.dist-info/*')

platforms=(manylinux_2_28_x86_64 manylinux_2_27_x86_64 manylinux_2_25_x86_64
  manylinux_2_17_x86_64 manylinux2014_x86_64)

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

print_needs() {
  printf 'Starling needs:\n  Debian 12 packages (or the same of another system): %s\n' \
    "${packages[*]}"
  printf '  catch2 >= %s\n' "$catch2_minimum"
  printf '  Python wheels, unpacked side by side into %s:\n' "$torch"
  grep -o '^[a-z-]*==[0-9.]*' launch/wheels.txt | sed 's/^/    /'
}

# The packages of the list that dpkg does not have, one a line.
missing_packages() {
  comm -23 <(printf '%s\n' "${packages[@]}" | sort) \
    <(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null |
      sed -n 's/ installed$//p' | sort -u)
}

have_catch2() {
  local version
  version=$(dpkg-query -W -f='${Version} ${db:Status-Status}' catch2 2>/dev/null) || return 1
  [[ $version == *" installed" ]] && dpkg --compare-versions "${version% *}" ge "$catch2_minimum"
}

as_root() {
  if [[ $(id -u) == 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "installing packages needs root: run this as root, or install sudo"
  fi
}

cleanup() {
  [[ -z $scratch ]] || rm -rf "$scratch" 2>/dev/null || as_root rm -rf "$scratch"
  scratch=""
}

apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@" >&2; }

install_packages() {
  local missing
  mapfile -t missing < <(missing_packages)
  ((${#missing[@]})) || return 0
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  apt install --no-install-recommends "${missing[@]}" || true
  mapfile -t missing < <(missing_packages)
  ((${#missing[@]} == 0)) || die "apt could not install: ${missing[*]}"
}

# Catch2 3.7 is in bookworm-backports only. Where the machine does not have that suite, apt is pointed
# at a private copy of its package lists with the suite added: its own sources stay as they are.
install_catch2() {
  have_catch2 && return 0
  say "installing catch2 >= $catch2_minimum from bookworm-backports"
  local targets uri keyring=/usr/share/keyrings/debian-archive-keyring.gpg options=()
  # shellcheck disable=SC2016  # apt fills these in
  targets=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' \
    'Component: main')
  if ! grep -q '^bookworm-backports ' <<<"$targets"; then
    uri=$(sed -n 's/^bookworm //p' <<<"$targets" | head -n 1)
    [[ -n $uri ]] || die "apt has no source for Debian bookworm main, where catch2 would come from"
    scratch=$(mktemp -d /tmp/starling-apt.XXXXXX)
    chmod 755 "$scratch" # apt downloads as a user of its own
    as_root cp -r /var/lib/apt/lists "$scratch/lists"
    cat /etc/apt/sources.list >"$scratch/sources.list" 2>/dev/null || true
    [[ -e $keyring ]] && keyring="[signed-by=$keyring]" || keyring=""
    printf 'deb %s %s bookworm-backports main\n' "$keyring" "$uri" >>"$scratch/sources.list"
    options=(-o "Dir::Etc::SourceList=$scratch/sources.list" -o "Dir::State::Lists=$scratch/lists"
      -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=)
    apt "${options[@]}" update || true
  fi
  apt "${options[@]}" install --no-install-recommends catch2/bookworm-backports || true
  have_catch2 || die "apt could not install: catch2 >= $catch2_minimum (bookworm-backports)"
  cleanup
}

# Atomic: the folder is renamed into place once complete, so a broken download leaves nothing.
install_torch() {
  [[ $(cat "$torch/complete" 2>/dev/null) == "$torch_mark" ]] && return 0
  mkdir -p "$deps" || die "cannot create $deps (set STARLING_DEPS to another folder)"
  exec 9>"$deps/.lock"
  flock 9 # another checkout may be doing the same
  [[ $(cat "$torch/complete" 2>/dev/null) == "$torch_mark" ]] && return 0
  say "downloading LibTorch $torch_version (about 0.6 GB) into $torch"
  scratch=$(mktemp -d "$deps/.unpack.XXXXXX")
  python3 -m pip download --quiet --progress-bar on --no-deps --only-binary=:all: --no-cache-dir \
    --python-version 311 --implementation cp --abi cp311 "${platforms[@]/#/--platform=}" \
    --require-hashes -r launch/wheels.txt -d "$scratch/wheels" >&2 ||
    die "pip could not download the wheels of launch/wheels.txt: $(grep -o '^[a-z-]*==[0-9.]*' \
      launch/wheels.txt | tr '\n' ' ')"
  local wheel
  for wheel in "$scratch"/wheels/*.whl; do
    # unzip says 11 when a pattern matches nothing in this wheel; every file is checked below.
    unzip -q "$wheel" "${torch_files[@]}" -d "$scratch/tree" 2>/dev/null || (($? == 11)) ||
      die "cannot unpack $(basename "$wheel") (disk full?)"
  done
  local file
  for file in torch/include/ATen/core/Tensor.h torch/lib/libtorch_cpu.so torch/lib/libc10.so \
    nvidia/cu13/lib/libcudart.so.13 nvidia/cu13/lib/libcupti.so.13; do
    [[ -e $scratch/tree/$file ]] || die "the wheels have no $file"
  done
  printf '%s\n' "$torch_mark" >"$scratch/tree/complete"
  if [[ -e $torch ]]; then mv "$torch" "$scratch/old"; fi
  mv "$scratch/tree" "$torch"
  cleanup
}

scratch=""
trap cleanup EXIT
deps=${STARLING_DEPS:-${XDG_CACHE_HOME:-$HOME/.cache}/starling}
torch=$deps/torch-$torch_version
# Changes with the wheels and with what is kept of them; an older folder is then replaced.
torch_mark=$({ grep -v '^#' launch/wheels.txt; echo "${torch_files[@]}"; } | sha256sum | cut -c1-16)

# shellcheck disable=SC1091
. /etc/os-release 2>/dev/null || true
if [[ ${ID:-} != debian || ${VERSION_ID:-} != 12 || $(uname -m) != x86_64 ]]; then
  print_needs
  die "this script knows Debian 12 on x86_64 only (here: ${PRETTY_NAME:-unknown} on $(uname -m))"
fi

if [[ -n $(missing_packages) ]] || ! have_catch2; then
  say "updating apt's package lists"
  apt update || die "apt-get update failed: is the network there?"
fi
install_catch2 # first: packages of the list would bring an older one along
install_packages
install_torch
say "everything is installed (LibTorch in $torch)"
