// YAML text as a plain tree with the place of every node: all that the config layer sees of YAML,
// so that yaml-cpp stays in one translation unit. Values; thread-safe.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "starling/config/load.h"

namespace starling::config {

struct Node {
  enum class Kind { kNull, kScalar, kList, kMap };
  struct Entry;

  Kind kind = Kind::kNull;
  std::string scalar;          // kScalar: its text without quotes
  bool quoted = false;         // kScalar: was in quotes, so it is a string whatever it looks like
  std::vector<Node> items;     // kList
  std::vector<Entry> entries;  // kMap, in file order, each key once
  Source source;
};

struct Node::Entry {
  std::string key;
  Source source;  // of the key
  Node value;
};

// Parses one YAML document. `origin` gives every source its origin and order; lines and columns are
// filled in for files only (`is_file`), since a value of --set is one word. Syntax errors, a second
// document, repeated keys, keys that are no scalars and trees beyond any sane size go to
// `problems`; what could be read is returned. Never throws.
Node ParseYaml(const std::string& text, const Source& origin, bool is_file,
               std::vector<Problem>* problems);

// Puts `overlay` on top of `base`: maps are merged key by key, everything else is replaced.
void Overlay(Node overlay, Node* base);

// The tree that holds only `value` at the dotted path, e.g. training.steps.
Node Nest(const std::string& path, Node value);

}  // namespace starling::config
