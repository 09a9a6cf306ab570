// What LoadConfig does between reading and checking.
#pragma once

#include <functional>
#include <string>

#include "starling/config/load.h"

namespace starling::config {

// Gives every setting that nobody set the value that follows from the others: the run folder from
// the name, the SOP head from the objective, groups, biases and initial values of the model, the
// schedule's end from training.steps. `is_set` tells whether a key was given.
void Resolve(const std::function<bool(const std::string&)>& is_set, Config* config);

}  // namespace starling::config
