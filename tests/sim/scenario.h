// What named scenarios on the simulated cluster have in common.
#pragma once

#include <catch2/catch_test_macros.hpp>

#include "sim/world.h"

namespace starling::sim {

inline constexpr Micros kMs = 1000;
inline constexpr Micros kSecond = 1000 * kMs;

inline WorldOptions Usual(int workers, int64_t steps = 1000) {
  WorldOptions options = SmallWorld(5, workers, 12, steps);
  options.protocol.checkpoint_every = 0;
  options.protocol.digest_every = 1;
  options.protocol.evaluation = false;
  return options;
}

inline void Begin(World& world) {
  world.StartCoordinator();
  for (int slot = 0; slot < world.options().slots; ++slot) world.StartWorker(slot);
  REQUIRE(world.RunUntil([&] { return world.Running(); }, 5 * kSecond));
}

inline bool ToStep(World& world, int64_t step, Micros limit = 60 * kSecond) {
  return world.RunUntil([&] { return world.decided() >= step; }, limit);
}

inline bool ToRunning(World& world, size_t members, Micros limit = 30 * kSecond) {
  return world.RunUntil(
      [&] { return world.Running() && world.coordinator()->view()->members.size() == members; },
      limit);
}

// The run goes to its last step, everybody leaves and the ledger is whole.
inline void FinishAll(World& world) {
  const bool ended = world.RunUntil([&] { return world.ended().has_value(); }, 600 * kSecond);
  INFO(world.failure());
  REQUIRE(ended);
  CHECK(world.ended()->exit_code == 0);
  world.CheckRest();
  CHECK(world.failure().empty());
}

template <typename T>
const T* Message(const membership::WorkerOutput& output) {
  const auto* send = std::get_if<membership::SendToCoordinator>(&output);
  return send == nullptr ? nullptr : std::get_if<T>(&send->message);
}

// What was sent to a worker, or asked of its second thread.
template <typename T>
const T* Message(const membership::CoordinatorOutput& output) {
  const auto* send = std::get_if<membership::SendToWorker>(&output);
  return send == nullptr ? nullptr : std::get_if<T>(send->message.get());
}
template <typename T>
const T* Beside(const membership::WorkerOutput& output) {
  const auto* run = std::get_if<membership::RunBeside>(&output);
  return run == nullptr ? nullptr : std::get_if<T>(&run->command);
}

}  // namespace starling::sim
