// Plain numbers out of safetensors files, for tests that see no tensors.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "starling/checkpoint/safetensors.h"

namespace starling::testing {

// All elements of tensor `name`, which hold a T each. The test fails when there is no such tensor.
template <typename T>
std::vector<T> Values(const checkpoint::SafetensorsFile& file, const std::string& name) {
  const auto view = file.Find(name);
  INFO(name);
  REQUIRE(view.ok());
  REQUIRE(view->data.size() % sizeof(T) == 0);
  std::vector<T> values(view->data.size() / sizeof(T));
  std::memcpy(values.data(), view->data.data(), view->data.size());
  return values;
}

}  // namespace starling::testing
