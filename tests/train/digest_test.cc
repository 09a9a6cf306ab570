// The digest must not depend on how ranges are cut, and must notice every bit of p, m and v.
#include "train/digest.h"

#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "starling/base/sha256.h"

namespace starling::train {
namespace {

FlatLayout MakeLayout() {
  FlatLayout layout;
  layout.tensors = {{"a", {10000}, 0, 10000}, {"b", {5}, 10000, 5}, {"c", {3000}, 10016, 3000}};
  layout.size = 13024;
  return layout;
}

struct Buffers {
  std::vector<float> p, m, v;

  explicit Buffers(const FlatLayout& layout) {
    for (int64_t i = 0; i < layout.size; ++i) p.push_back(static_cast<float>(i) * 0.25f);
    m.assign(p.size(), 1.0f);
    v.assign(p.size(), 1.0f);
  }
  DigestSum Digest(const FlatLayout& layout, std::vector<comm::Range> ranges) const {
    const std::span<const float> buffers[] = {p, m, v};
    return DigestOf(layout, buffers, ranges);
  }
};

DigestSum Add(DigestSum a, const DigestSum& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

}  // namespace

TEST_CASE("digest: any cut into blocks adds up to the same sum", "[train]") {
  const FlatLayout layout = MakeLayout();
  const Buffers buffers(layout);
  const DigestSum whole = buffers.Digest(layout, {{0, layout.size}});
  CHECK(buffers.Digest(layout, {{4096, 8192}, {0, 4096}, {8192, layout.size}}) == whole);
  CHECK(Add(buffers.Digest(layout, {{0, 8192}}), buffers.Digest(layout, {{8192, layout.size}})) ==
        whole);
  CHECK(buffers.Digest(layout, {}) == DigestSum{});
}

TEST_CASE("digest: every bit of the three buffers counts, padding does not", "[train]") {
  const FlatLayout layout = MakeLayout();
  const Buffers before(layout);
  const DigestSum digest = before.Digest(layout, {{0, layout.size}});
  for (auto member : {&Buffers::p, &Buffers::m, &Buffers::v}) {
    for (size_t i : {size_t{0}, size_t{4096}, size_t{10004}, size_t{13015}}) {
      Buffers changed = before;
      uint32_t bits;
      std::memcpy(&bits, &(changed.*member)[i], sizeof(bits));
      bits ^= 1;
      std::memcpy(&(changed.*member)[i], &bits, sizeof(bits));
      CHECK(changed.Digest(layout, {{0, layout.size}}) != digest);
    }
    for (size_t i : {size_t{10005}, size_t{10015}, size_t{13016}}) {
      Buffers changed = before;
      (changed.*member)[i] = 77;
      CHECK(changed.Digest(layout, {{0, layout.size}}) == digest);
    }
  }
  Buffers swapped = before;
  std::swap(swapped.p, swapped.m);
  CHECK(swapped.Digest(layout, {{0, layout.size}}) != digest);
}

TEST_CASE("digest: the definition, block by block", "[train]") {
  FlatLayout layout;
  layout.tensors = {{"a", {3}, 0, 3}, {"b", {2}, 16, 2}};
  layout.size = 32;
  std::vector<float> values(32, 0.0f);
  for (size_t i : {0, 1, 2, 16, 17}) values[i] = 1.0f / static_cast<float>(i + 1);
  DigestSum expected = {};
  for (uint64_t buffer = 0; buffer < 3; ++buffer) {
    const uint64_t numbers[2] = {buffer, 0};
    std::string bytes(reinterpret_cast<const char*>(numbers), sizeof(numbers));
    bytes.append(reinterpret_cast<const char*>(values.data()), 12);
    bytes.append(reinterpret_cast<const char*>(values.data() + 16), 8);
    const Sha256Digest sha = Sha256(bytes);
    for (size_t lane = 0; lane < 4; ++lane) {
      for (size_t byte = 0; byte < 8; ++byte) {
        expected[lane] += uint64_t{sha[lane * 8 + byte]} << (8 * byte);
      }
    }
  }
  const std::span<const float> buffers[] = {values, values, values};
  const comm::Range all = {0, 32};
  CHECK(DigestOf(layout, buffers, std::span(&all, 1)) == expected);
}

}  // namespace starling::train
