#!/usr/bin/env python3
"""Holds the tree to its own rules, from the source text alone.

Layers: a layer includes only layers that stand before it in LAYERS, and only its third-party
headers; torch never meets protobuf, gRPC, spdlog or fmt in one translation unit, and comes before
Catch2; headers include none of torch's umbrella headers. Tidiness: known top-level entries, files of
a readable length, every header opens with a comment, no notes to self, no paths of somebody's
machine, no dead links in the documentation. Prints every breach; exits 1 if there is one.
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LAYERS = ("base plan membership data comm checkpoint sim rpc coordinator model optim train worker config"
          " cli").split()
TORCH = {"model", "optim", "train"}

# Prefix of an include → layers that may have it. "1" after a layer: in one .cc file only.
THIRD_PARTY = {
    "absl/": set(LAYERS),
    "spdlog/": {"base1"}, "fmt/": set(),
    "unicode/": {"data"}, "zlib.h": {"data"}, "sentencepiece_trainer.h": {"data1"},
    "sentencepiece_processor.h": {"data1"},
    "zstd.h": {"data", "checkpoint"},
    "nlohmann/": {"data", "checkpoint", "coordinator", "worker", "config", "cli"},
    "openssl/": {"base1", "comm1"},
    "nccl.h": {"comm1"}, "mpi.h": {"comm1"},
    "grpc/": {"rpc"}, "grpcpp/": {"rpc"}, "google/protobuf/": {"rpc"}, ".pb.h": {"rpc"},
    "civetweb.h": {"coordinator"}, "CivetServer.h": {"coordinator"},
    "prometheus/": {"coordinator"},
    "yaml-cpp/": {"config1"}, "CLI/": {"cli"},
    "torch/": TORCH, "ATen/": TORCH, "c10/": TORCH,
    "benchmark/": set(), "catch2/": set(),
}
SYSTEM = re.compile(r"(sys|netinet|arpa|linux|net)/[\w.-]+|[\w.-]+|bits/[\w.-]+")
UMBRELLA = {"torch/torch.h", "torch/all.h", "ATen/ATen.h", "torch/types.h", "torch/extension.h"}
TOP_LEVEL = set("CMakeLists.txt CMakePresets.json README.md CONTRIBUTING.md LICENSE src include "
                "launch configs slurm k8s tests benchmarks docs cmake".split())
NOT_OURS = {"build", "data", "runs", "__pycache__"}  # as .gitignore has them
WORDS = re.compile("|".join(("TO" "DO", "FIX" "ME", r"[\s\"'=(:]/" "work/", "/ro" "ot/",
                             "/ho" r"me/\w")))
MAX_LINES = 1200

breaches = []


def breach(path, message):
    breaches.append(f"{path}: {message}")


def files(*suffixes):
    for folder, names, entries in os.walk(ROOT):
        not_ours = NOT_OURS if folder == ROOT else {"__pycache__", "vectors"}
        names[:] = sorted(n for n in names if n not in not_ours and
                          (not n.startswith(".") or n == ".ci"))
        for entry in sorted(entries):
            path = os.path.relpath(os.path.join(folder, entry), ROOT)
            if path.endswith(suffixes):
                yield path


def read(path):
    try:
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError as error:
        breach(path, f"is not UTF-8 at byte {error.start}")
        return ""


def includes(path):
    return re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', read(path), re.M)


def resolve(path, include):
    """The file of this project that an include means, or None."""
    for base in ("include", "src", "tests", "benchmarks", os.path.dirname(path)):
        candidate = os.path.normpath(os.path.join(base, include))
        if os.path.isfile(os.path.join(ROOT, candidate)):
            return candidate
    return None


def layer_of(path):
    match = re.match(r"(?:include/starling|src)/(\w+)/", path)
    return match.group(1) if match else None


def third_party(include):
    return next((p for p in THIRD_PARTY if include.startswith(p) or
                 (p == ".pb.h" and include.endswith(p))), None)


def check_layers():
    single = {}  # (layer, prefix) → the one file that has it
    for path in files(".h", ".cc"):
        layer = layer_of(path)
        if path.startswith(("include/", "src/")) and layer not in LAYERS:
            breach(path, f"is in no layer; layers are {' '.join(LAYERS)}")
            continue
        for include in includes(path):
            target, prefix = resolve(path, include), third_party(include)
            if path.endswith(".h") and include in UMBRELLA:
                breach(path, f"a header includes {include}, which costs every includer seconds")
            if target is None and prefix is None and not SYSTEM.fullmatch(include):
                breach(path, f"includes {include}, which is in nobody's list of headers")
            if layer is None:
                continue
            used = layer_of(target) if target else None
            if used and LAYERS.index(used) > LAYERS.index(layer):
                breach(path, f"layer {layer} includes {include} of a later layer, {used}")
            if target is None and prefix:
                if layer + "1" in THIRD_PARTY[prefix]:
                    first = single.setdefault((layer, prefix.rsplit("_")[0]), path)
                    if path.endswith(".h") or first != path:
                        breach(path, f"includes {include}: layer {layer} may, in one .cc file only")
                elif layer not in THIRD_PARTY[prefix]:
                    breach(path, f"layer {layer} may not include {include}")


def expand(path, seen):
    """Third-party prefixes that a translation unit sees, in order."""
    for include in includes(path):
        target = resolve(path, include)
        if target is None:
            yield third_party(include)
        elif target not in seen:
            seen.add(target)
            yield from expand(target, seen)


def check_translation_units():
    torch, clash = {"torch/", "ATen/", "c10/"}, {"spdlog/", "fmt/", "grpc/", "grpcpp/",
                                                "google/protobuf/", ".pb.h"}
    for path in files(".cc"):
        order = list(expand(path, {path}))
        first = next((i for i, p in enumerate(order) if p in torch), None)
        if first is None:
            continue
        for prefix in sorted(clash & set(order) - {None}):
            breach(path, f"sees torch's headers and {prefix} in one translation unit")
        if "catch2/" in order[:first]:
            breach(path, "includes Catch2 before torch, so CHECK would be torch's")


def check_tidy():
    for entry in sorted(os.listdir(ROOT)):
        if not entry.startswith(".") and entry not in TOP_LEVEL | NOT_OURS:
            breach(entry, "does not belong at the top level")
    for path in files(".h", ".cc", ".cmake", ".txt", ".py", ".sh", ".md", ".yaml", ".proto", "/run"):
        text = read(path)
        lines = text.splitlines()
        if len(lines) > MAX_LINES:
            breach(path, f"has {len(lines)} lines; the limit is {MAX_LINES}")
        if path.endswith(".h") and not text.startswith("//"):
            breach(path, "a header begins with a comment that says what it is")
        if path.endswith(".h") and "#pragma once" not in text:
            breach(path, "has no #pragma once")
        for number, line in enumerate(lines, 1):
            for word in WORDS.findall(line):
                breach(f"{path}:{number}", f"says {word.strip()}")
        if path.endswith(".md"):
            for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
                if "://" not in link and not os.path.exists(
                        os.path.join(ROOT, os.path.dirname(path), link)):
                    breach(path, f"links to {link}, which does not exist")


if __name__ == "__main__":
    check_layers()
    check_translation_units()
    check_tidy()
    for line in breaches:
        print(line)
    print(f"{len(breaches)} breaches")
    sys.exit(1 if breaches else 0)
