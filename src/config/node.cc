#include "config/node.h"

#include <string>
#include <utility>

namespace starling::config {

void Overlay(Node overlay, Node* base) {
  // An empty section changes nothing.
  if (overlay.kind == Node::Kind::kNull && base->kind == Node::Kind::kMap) return;
  if (overlay.kind != Node::Kind::kMap || base->kind != Node::Kind::kMap) {
    *base = std::move(overlay);
    return;
  }
  for (Node::Entry& entry : overlay.entries) {
    Node::Entry* match = nullptr;
    for (Node::Entry& candidate : base->entries) {
      if (candidate.key == entry.key) match = &candidate;
    }
    if (match == nullptr) {
      base->entries.push_back(std::move(entry));
    } else {
      match->source = entry.source;
      Overlay(std::move(entry.value), &match->value);
    }
  }
}

Node Nest(const std::string& path, Node value) {
  Node node = std::move(value);
  size_t end = path.size();
  while (true) {
    const size_t dot = end == 0 ? std::string::npos : path.rfind('.', end - 1);
    const size_t begin = dot == std::string::npos ? 0 : dot + 1;
    Node parent;
    parent.kind = Node::Kind::kMap;
    parent.source = node.source;
    const Source source = node.source;
    parent.entries.push_back({path.substr(begin, end - begin), source, std::move(node)});
    node = std::move(parent);
    if (dot == std::string::npos) return node;
    end = dot;
  }
}

}  // namespace starling::config
