// The prefetching loader: right batches whatever was requested, changes of plan, errors, and an end
// while it is busy.
#include "starling/data/loader.h"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "absl/synchronization/mutex.h"

namespace starling::data {
namespace {

// Counts what it makes; sample_first names the batch. Blocks on request.
class FakeSource final : public MicroBatchSource {
 public:
  absl::StatusOr<Batch> Make(MicroBatchId id) const override {
    absl::MutexLock lock(&mutex_);
    ++made_;
    const auto open = [this] { return open_; };
    mutex_.Await(absl::Condition(&open));
    if (id.step == kBadStep) return absl::OutOfRangeError("no such step");
    Batch batch;
    batch.sample_first = id.step * 100 + id.index;
    return batch;
  }
  void SetOpen(bool open) {
    absl::MutexLock lock(&mutex_);
    open_ = open;
  }
  void AwaitMade(int count) const {
    absl::MutexLock lock(&mutex_);
    const auto reached = [&] { return made_ >= count; };
    mutex_.Await(absl::Condition(&reached));
  }
  int made() const {
    absl::MutexLock lock(&mutex_);
    return made_;
  }
  static constexpr int64_t kBadStep = 99;

 private:
  mutable absl::Mutex mutex_;
  mutable int made_ = 0;
  bool open_ = true;
};

TEST_CASE("loader: batches come as requested, and unrequested ones too", "[data]") {
  const auto source = std::make_shared<FakeSource>();
  const auto loader = Loader::Create(source, 3);
  loader->Request({{1, 0}, {1, 1}, {1, 2}, {1, 3}, {1, 4}});
  for (int64_t i = 0; i < 5; ++i) CHECK(loader->Take({1, i})->sample_first == 100 + i);
  CHECK(loader->Take({7, 5})->sample_first == 705);
  CHECK(source->made() == 6);
}

TEST_CASE("loader: prefetches up to its capacity, before anybody takes", "[data]") {
  const auto source = std::make_shared<FakeSource>();
  const auto loader = Loader::Create(source, 2);
  loader->Request({{0, 0}, {0, 1}, {0, 2}});
  source->AwaitMade(2);
  CHECK(source->made() == 2);
  CHECK(loader->Take({0, 0})->sample_first == 0);
  source->AwaitMade(3);
}

TEST_CASE("loader: a new plan cancels the old one", "[data]") {
  const auto source = std::make_shared<FakeSource>();
  const auto loader = Loader::Create(source, 1);
  source->SetOpen(false);
  loader->Request({{0, 0}, {0, 1}});
  source->AwaitMade(1);  // {0, 0} is under way
  loader->Request({{2, 0}});
  source->SetOpen(true);
  CHECK(loader->Take({2, 0})->sample_first == 200);
  CHECK(source->made() == 2);  // {0, 1} never, and {0, 0} does not take up the capacity
  loader->Request({});
  CHECK(loader->Take({0, 0})->sample_first == 0);
  CHECK(source->made() == 3);
}

TEST_CASE("loader: an error belongs to its batch alone", "[data]") {
  const auto loader = Loader::Create(std::make_shared<FakeSource>(), 2);
  loader->Request({{FakeSource::kBadStep, 0}, {1, 0}});
  CHECK(loader->Take({FakeSource::kBadStep, 0}).status().code() == absl::StatusCode::kOutOfRange);
  CHECK(loader->Take({1, 0})->sample_first == 100);
}

TEST_CASE("loader: several threads may take, even the same batch", "[data]") {
  const auto loader = Loader::Create(std::make_shared<FakeSource>(), 2);
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int64_t i = 0; i < 50; ++i) right += loader->Take({3, i})->sample_first == 300 + i;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(right == 200);
}

TEST_CASE("loader: ends while it is busy and while it waits for room", "[data]") {
  const auto source = std::make_shared<FakeSource>();
  {
    const auto loader = Loader::Create(source, 1);
    loader->Request({{0, 0}, {0, 1}, {0, 2}});
    source->AwaitMade(1);
  }
  CHECK(source->made() <= 3);
}

}  // namespace
}  // namespace starling::data
