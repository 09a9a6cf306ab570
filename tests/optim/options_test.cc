// Bad optimizer settings are named, all at once.
#include "starling/optim/options.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

namespace starling::optim {

TEST_CASE("optimizer options: the defaults are valid, bad values are named", "[optim]") {
  CHECK(Options{}.Validate().empty());
  Options bad;
  bad.learning_rate = -1;
  bad.beta1 = 1;
  bad.beta2 = std::nan("");
  bad.epsilon = 0;
  bad.weight_decay = -0.1;
  bad.clip = -1;
  bad.clamp = 0;
  const std::vector<std::string> problems = bad.Validate();
  REQUIRE(problems.size() == 7);
  CHECK(problems[0] == "learning_rate is -1, but must be a number of at least 0");
  CHECK(problems[1] == "beta1 is 1, but must be at least 0 and below 1");
}

}  // namespace starling::optim
