// The table of all settings: one row a key, through which configs are read, checked key by key,
// written and hashed. A new setting is a member in config.h and a row in schema.cc, nothing else.
// Fields hold pointers into the Config they were made for. One thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/node.h"
#include "starling/config/config.h"

namespace starling::config {

struct Field {
  std::string key;       // dotted
  bool meaning = false;  // goes into ConfigHash
  // Stores the node's value; returns a sentence when it is not allowed, and stores nothing.
  std::function<std::string(const Node&)> read;
  // The value as YAML.
  std::function<std::string()> write;
};

// All fields, grouped by section, in the order in which they are written.
std::vector<Field> Fields(Config* config);

// Our name of a model field that goes by another in LeanAlbertConfig and in the reference, e.g.
// num_hidden_layers → layers; `name` itself when there is none.
std::string ModelKey(const std::string& name);

}  // namespace starling::config
