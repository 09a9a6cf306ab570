// The only translation unit that sees yaml-cpp, and the wrapper that keeps its exceptions inside.
#include <yaml-cpp/yaml.h>

#include <exception>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "config/node.h"

namespace starling::config {
namespace {

// No config comes near these; an alias that contains itself, or aliases of aliases, would.
constexpr int kMaxDepth = 16;
constexpr int kMaxNodes = 10000;

class Converter {
 public:
  Converter(const Source& origin, bool is_file, std::vector<Problem>* problems)
      : origin_(origin), is_file_(is_file), problems_(problems) {}

  Node Convert(const YAML::Node& yaml, int depth) {
    Node node;
    node.source = At(yaml.Mark());
    if (depth > kMaxDepth || ++nodes_ > kMaxNodes) {
      if (!too_large_) {
        problems_->push_back({node.source, "", "nested too deeply, or too large, for a config"});
      }
      too_large_ = true;
      return node;
    }
    switch (yaml.Type()) {
      case YAML::NodeType::Scalar:
        node.kind = Node::Kind::kScalar;
        node.scalar = yaml.Scalar();
        node.quoted = yaml.Tag() == "!";
        break;
      case YAML::NodeType::Sequence:
        node.kind = Node::Kind::kList;
        for (const YAML::Node& item : yaml) node.items.push_back(Convert(item, depth + 1));
        break;
      case YAML::NodeType::Map:
        ConvertMap(yaml, depth, &node);
        break;
      case YAML::NodeType::Null:
      case YAML::NodeType::Undefined:
        break;
    }
    return node;
  }

  Source At(const YAML::Mark& mark) const {
    Source source = origin_;
    if (is_file_ && !mark.is_null()) {
      source.line = mark.line + 1;
      source.column = mark.column + 1;
    }
    return source;
  }

 private:
  void ConvertMap(const YAML::Node& yaml, int depth, Node* node) {
    node->kind = Node::Kind::kMap;
    std::set<std::string> seen;
    for (const auto& pair : yaml) {
      const Source source = At(pair.first.Mark());
      if (!pair.first.IsScalar()) {
        problems_->push_back({source, "", "a key must be a plain word"});
        continue;
      }
      const std::string key = pair.first.Scalar();
      if (!seen.insert(key).second) {
        problems_->push_back({source, key, "this key stands here twice; keep one of the two"});
        continue;
      }
      node->entries.push_back({key, source, Convert(pair.second, depth + 1)});
    }
  }

  const Source origin_;
  const bool is_file_;
  std::vector<Problem>* const problems_;
  int nodes_ = 0;
  bool too_large_ = false;
};

}  // namespace

Node ParseYaml(const std::string& text, const Source& origin, bool is_file,
               std::vector<Problem>* problems) {
  Converter converter(origin, is_file, problems);
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.empty()) return converter.Convert(YAML::Node(), 0);
    if (documents.size() > 1) {
      problems->push_back({converter.At(documents[1].Mark()), "",
                           "a second YAML document (after ---); a config file holds one"});
    }
    return converter.Convert(documents[0], 0);
  } catch (const YAML::Exception& error) {
    problems->push_back({converter.At(error.mark), "", absl::StrCat("not YAML: ", error.msg)});
  } catch (const std::exception& error) {
    problems->push_back({origin, "", absl::StrCat("not YAML: ", error.what())});
  }
  return Node();
}

}  // namespace starling::config
