// The flat parameter space: alignment, order, decay groups and the cutting of ranges.
#include "starling/train/flat_layout.h"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "support/model_config_json.h"

namespace starling::train {

TEST_CASE("flat layout: optimizer order, 64-byte starts, no overlap", "[train]") {
  const nlohmann::json config = testing::ParityJson("p25_trajectory/config.json");
  const FlatLayout layout = MakeFlatLayout(testing::ConfigFromJson(config["model"]));
  int64_t end = 0;
  std::vector<std::string> decay, no_decay;
  for (const FlatTensor& tensor : layout.tensors) {
    INFO(tensor.name);
    CHECK(tensor.begin % 16 == 0);
    CHECK(tensor.begin >= end);
    CHECK(tensor.begin < end + 16);
    int64_t count = 1;
    for (int64_t size : tensor.shape) count *= size;
    CHECK(tensor.count == count);
    end = tensor.begin + tensor.count;
    (tensor.decay ? decay : no_decay).push_back(tensor.name);
  }
  CHECK(layout.size % 16 == 0);
  CHECK(layout.size >= end);
  CHECK(layout.size < end + 16);
  CHECK(decay == config["decay"].get<std::vector<std::string>>());
  CHECK(no_decay == config["no_decay"].get<std::vector<std::string>>());
}

TEST_CASE("parts: ranges are cut by tensors and padding falls away", "[train]") {
  FlatLayout layout;
  layout.tensors = {{"a", {20}, 0, 20}, {"b", {16}, 32, 16}, {"c", {3}, 48, 3}};
  layout.size = 64;
  using Parts = std::vector<TensorPart>;
  const auto parts = [&](std::vector<comm::Range> ranges) { return PartsOf(layout, ranges); };
  CHECK(parts({{0, 64}}) == Parts{{0, {0, 20}}, {1, {32, 48}}, {2, {48, 51}}});
  CHECK(parts({{5, 7}, {7, 33}}) == Parts{{0, {5, 7}}, {0, {7, 20}}, {1, {32, 33}}});
  CHECK(parts({{20, 32}, {51, 64}, {40, 40}}).empty());
  CHECK(parts({{31, 49}}) == Parts{{1, {32, 48}}, {2, {48, 49}}});
}

}  // namespace starling::train
