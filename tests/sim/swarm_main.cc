// sim_swarm FIRST COUNT: runs seeds FIRST … FIRST + COUNT − 1 and prints what fails. COUNT 1
// traces.
#include <cstdio>
#include <cstdlib>

#include "starling/sim/run.h"

int main(int argc, char** argv) {
  const uint64_t first = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  const uint64_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  uint64_t failed = 0;
  int64_t steps = 0, views = 0, restores = 0, events = 0;
  double seconds = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    starling::sim::Options options;
    options.seed = seed;
    if (count == 1) options.trace = [](const std::string& line) { std::puts(line.c_str()); };
    const starling::sim::Summary summary = starling::sim::Run(options);
    steps += summary.steps;
    views += summary.views;
    restores += summary.restores;
    events += summary.events;
    seconds += summary.simulated_seconds;
    if (summary.failure.empty()) continue;
    ++failed;
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), summary.failure.c_str());
    std::fflush(stdout);
  }
  std::printf(
      "%llu seeds, %llu failed, %lld steps, %lld views, %lld restores, %lld events, %.0f s\n",
      static_cast<unsigned long long>(count), static_cast<unsigned long long>(failed),
      static_cast<long long>(steps), static_cast<long long>(views),
      static_cast<long long>(restores), static_cast<long long>(events), seconds);
  return failed == 0 ? 0 : 1;
}
