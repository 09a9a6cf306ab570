#include "starling/optim/options.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace starling::optim {
namespace {

using Problems = std::vector<std::string>;

void CheckNotNegative(const char* key, double value, Problems* problems) {
  if (value >= 0 && std::isfinite(value)) return;
  problems->push_back(absl::StrCat(key, " is ", value, ", but must be a number of at least 0"));
}

void CheckPositive(const char* key, double value, Problems* problems) {
  if (value > 0 && std::isfinite(value)) return;
  problems->push_back(absl::StrCat(key, " is ", value, ", but must be a positive number"));
}

void CheckDecayRate(const char* key, double value, Problems* problems) {
  if (value >= 0 && value < 1) return;
  problems->push_back(absl::StrCat(key, " is ", value, ", but must be at least 0 and below 1"));
}

}  // namespace

std::vector<std::string> Options::Validate() const {
  Problems problems;
  CheckNotNegative("learning_rate", learning_rate, &problems);
  CheckDecayRate("beta1", beta1, &problems);
  CheckDecayRate("beta2", beta2, &problems);
  CheckPositive("epsilon", epsilon, &problems);
  CheckNotNegative("weight_decay", weight_decay, &problems);
  CheckNotNegative("clip", clip, &problems);
  CheckPositive("clamp", clamp, &problems);
  return problems;
}

}  // namespace starling::optim
