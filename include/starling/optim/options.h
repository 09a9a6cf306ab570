// Options of the optimizers; filled from the section `optimizer` of the configuration. Plain
// values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace starling::optim {

enum class Name { kLamb, kAdamW };

// Defaults are RuLeanALBERT's (model.md §4.1).
struct Options {
  Name name = Name::kLamb;
  double learning_rate = 2.5e-3;  // peak; the schedule multiplies it
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-6;
  double weight_decay = 0.01;  // not on names ending in "bias" or "norm.weight"
  double clip = 1.0;           // global norm; 0 = no clipping
  double clamp = 1e9;          // LAMB: largest ‖p‖ that enters the trust ratio

  // One sentence per bad value, naming the key; empty when all are good.
  std::vector<std::string> Validate() const;
};

}  // namespace starling::optim
