// The control stream to one peer: a TCP or UNIX connection that lives as long as the communicator
// and carries wake-ups and the goodbye. Its end without a goodbye means that the peer died; the
// kernel says so at once, whatever the data path is. Read by one thread; the senders are
// thread-safe. Nothing here blocks.
//
//   'W'                      look at the shared memory again
//   'F'                      finished: the peer destroyed a healthy communicator
//   'A' count rank×count     aborted; the ranks (int32, little endian) are those the peer suspects
#pragma once

#include <string>
#include <vector>

#include "comm/fd.h"

namespace starling::comm {

enum class PeerState {
  kAlive,     // set at connection
  kFinished,  // said 'F'; what it sent before is still valid
  kAborted,   // said 'A'
  kDead,      // the stream ended without a word
};

// Wakes the peer behind control stream `fd`. A full buffer is full of wake-ups, so losing one is
// harmless.
void SendWake(int fd);

class ControlStream {
 public:
  ControlStream() = default;
  explicit ControlStream(UniqueFd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  PeerState state() const { return state_; }
  // What the peer's 'A' named.
  const std::vector<int>& suspects() const { return suspects_; }

  // Reads what has arrived; state() tells the outcome.
  void Read();
  void SendFinished() const;
  void SendAborted(const std::vector<int>& suspects) const;
  // Ends the stream in both directions and wakes whoever polls it; the descriptor stays open.
  void Shutdown() const;

 private:
  void Parse();

  UniqueFd fd_;
  PeerState state_ = PeerState::kAlive;  // leaves kAlive once
  std::string unparsed_;                 // beginning of a goodbye
  std::vector<int> suspects_;
};

}  // namespace starling::comm
