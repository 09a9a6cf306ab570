// The connecting side: one Dialer makes the connections to one peer, step by step without blocking,
// and tries again while the peer cannot be reached. One thread.
#pragma once

#include <poll.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "comm/fd.h"
#include "comm/handshake.h"
#include "comm/ring.h"
#include "comm/socket_address.h"
#include "starling/comm/transport.h"

namespace starling::comm {

// One connection with its handshake.
class Call {
 public:
  enum class Stage { kIdle, kConnecting, kChallenge, kWelcome, kDone, kRefused };

  Call(const GroupSpec& spec, int peer, ConnectionRole role);

  // Goes on as far as it can. Faults of the connection lead back to kIdle and a later retry.
  void Step(absl::Time now);

  Stage stage() const { return stage_; }
  ConnectionRole role() const { return role_; }
  // Whether the last attempt was refused by the system: nobody listens there.
  bool nobody_there() const { return nobody_there_; }
  // Whether a connection has ever been established.
  bool reached() const { return reached_; }
  const std::string& last_error() const { return last_error_; }
  Refusal refusal() const { return refusal_; }
  absl::Time retry_at() const { return retry_at_; }
  pollfd poll() const;

  UniqueFd TakeFd() { return std::move(fd_); }
  RingMemory TakeMemory() { return std::move(memory_); }

 private:
  void Connect(absl::Time now);
  void FinishConnect(absl::Time now);
  void SendHello(absl::Time now);
  void OnAnswer(absl::Time now);
  void Retry(absl::Time now, const std::string& error);
  void GiveUp(Refusal refusal);

  const GroupSpec& spec_;
  const int peer_;
  const ConnectionRole role_;
  Stage stage_ = Stage::kIdle;
  UniqueFd fd_;
  std::string hello_;
  Bytes32 nonce_ = {};                          // of the Challenge
  std::string received_;                        // of the current answer
  UniqueFd passed_;                             // descriptor that came with the Welcome
  RingMemory memory_;                           // set with kDone for kControlMemory
  absl::Time retry_at_ = absl::InfinitePast();  // while kIdle
  absl::Duration backoff_;
  bool nobody_there_ = false;
  bool reached_ = false;
  std::string last_error_;
  Refusal refusal_ = Refusal::kNone;  // set with kRefused
};

// All connections to one peer: one through a UNIX socket when both are on one machine, else two
// through TCP.
class Dialer {
 public:
  Dialer(const GroupSpec& spec, int peer, bool share_memory);

  void Step(absl::Time now);
  bool done() const;
  bool reached() const;
  int peer() const { return peer_; }
  std::vector<Call>& calls() { return calls_; }
  // OK unless the peer refused.
  absl::Status refusal() const;
  std::string last_error() const;

 private:
  void UseTcp();

  const GroupSpec& spec_;
  const int peer_;
  std::vector<Call> calls_;
};

}  // namespace starling::comm
