// Strong integer types for the protocol's words (protocol.md §1), so that a rank never passes for a
// step. Plain values; ordered; printable through value().
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace starling {

// Wrapped integer of its own type. `Tag` only tells types apart.
template <typename Tag, typename Rep>
class StrongId {
 public:
  using rep = Rep;
  constexpr StrongId() = default;
  constexpr explicit StrongId(Rep value) : value_(value) {}
  constexpr Rep value() const { return value_; }
  constexpr auto operator<=>(const StrongId&) const = default;
  // The following number: generations, terms, steps and timelines only ever grow by this.
  constexpr StrongId Next() const { return StrongId(value_ + 1); }

 private:
  Rep value_ = 0;
};

using Incarnation = StrongId<struct IncarnationTag, uint64_t>;    // one life of a worker; never 0
using Registration = StrongId<struct RegistrationTag, uint64_t>;  // one (re)connection of it
using Term = StrongId<struct TermTag, uint64_t>;                  // one life of a coordinator
using Generation = StrongId<struct GenerationTag, uint64_t>;      // number of a view; 0 = none yet
using Rank = StrongId<struct RankTag, int32_t>;                   // index of a member in its view
using Step = StrongId<struct StepTag, int64_t>;           // decided steps; version s = after s
using Timeline = StrongId<struct TimelineTag, uint64_t>;  // history; a restore starts a new one
using Attempt = StrongId<struct AttemptTag, uint32_t>;    // repeats of one step

// State after `step` decided steps on `timeline`. Ordered by timeline first.
struct Version {
  Timeline timeline;
  Step step;
  auto operator<=>(const Version&) const = default;
};

// 16 lower-case hexadecimal digits, as incarnations are written in logs, files and messages.
std::string ToHex(uint64_t value);
inline std::string ToHex(Incarnation incarnation) { return ToHex(incarnation.value()); }

}  // namespace starling
