// The accepting side of all connections of a process. One thread, for the listener's life, accepts,
// makes the handshakes and hands the connections to the Reception of their generation. Strangers
// cannot stop it: it never blocks on a connection, gives each 5 s for the handshake, and keeps a
// bounded number of them. A connection of a generation that has not been announced yet is parked.
// Thread-safe. Order of the end: the destructor stops and joins the thread, then closes everything.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "comm/fd.h"
#include "comm/handshake.h"
#include "comm/ring.h"
#include "starling/comm/transport.h"

namespace starling::comm {

// Limits, shrunk by tests.
struct ListenerLimits {
  absl::Duration handshake = absl::Seconds(5);  // from accept to Hello, and from Challenge to Proof
  absl::Duration parked = absl::Seconds(60);
  size_t half_open_max = 64;  // beyond it the oldest is dropped; its owner tries again
  size_t parked_max = 256;    // likewise
};

// A connection that has passed the handshake.
struct Arrival {
  int rank = 0;
  ConnectionRole role = ConnectionRole::kControl;
  UniqueFd fd;
  RingMemory memory;  // with kControlMemory
};

// Mailbox of one Connect: the listener's thread delivers, the connecting thread takes.
class Reception {
 public:
  explicit Reception(GroupSpec spec);

  const GroupSpec& spec() const { return spec_; }
  // Readable when there is something to take, or after Cancel.
  int event_fd() const { return event_.get(); }
  // What is wrong with a Hello for this generation; kNone if nothing.
  Refusal Check(const Hello& hello) const;

  void Deliver(Arrival arrival);
  void Cancel();
  std::vector<Arrival> Take();
  bool cancelled() const;

 private:
  void Signal();

  const GroupSpec spec_;
  const Sha256Digest run_digest_;
  UniqueFd event_;
  mutable absl::Mutex mutex_;
  std::vector<Arrival> arrivals_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;  // for good
};

class Listener {
 public:
  // Unavailable or PermissionDenied when it cannot listen (with the address and the reason).
  static absl::StatusOr<std::unique_ptr<Listener>> Start(const SocketTransportOptions& options,
                                                         const ListenerLimits& limits);
  ~Listener();

  const std::string& address() const { return address_; }

  // Connections of the reception's generation go to it until Withdraw. AlreadyExists when there is
  // one for that generation.
  absl::Status Announce(std::shared_ptr<Reception> reception);
  void Withdraw(Generation generation);
  // Refuses generations up to `generation` that are not announced, now and later.
  void Leave(Generation generation);

  // Half-open and parked connections, for tests.
  size_t waiting() const;

 private:
  // A connection before its handshake is complete. Only the thread touches it.
  struct Visitor {
    enum class Stage { kHello, kParked, kProof };
    UniqueFd fd;
    bool is_unix = false;
    Stage stage = Stage::kHello;
    absl::Time deadline;
    std::string received;  // of the current message
    std::string hello_bytes;
    Hello hello;
    Bytes32 nonce = {};
  };

  Listener(UniqueFd tcp, UniqueFd unix_socket, std::string address, int64_t slot_bytes,
           const ListenerLimits& limits);

  void Run();
  void PollOnce();
  void Accept(int listen_fd, bool is_unix);
  void Trim(Visitor::Stage stage, size_t max);
  std::shared_ptr<Reception> Find(Generation generation, bool* left) const;
  // Each returns whether the visitor stays.
  bool Serve(Visitor& visitor);
  bool OnHello(Visitor& visitor);
  bool OnProof(Visitor& visitor);
  bool Route(Visitor& visitor);
  bool Refuse(Visitor& visitor, Refusal refusal);

  UniqueFd tcp_;
  UniqueFd unix_;
  UniqueFd wake_;  // eventfd: something announced, or stopping
  const std::string address_;
  const int64_t slot_bytes_;
  const ListenerLimits limits_;
  std::deque<Visitor> visitors_;                    // oldest first
  absl::Time accept_after_ = absl::InfinitePast();  // pause when the process is out of descriptors

  mutable absl::Mutex mutex_;
  std::map<Generation, std::shared_ptr<Reception>> receptions_ ABSL_GUARDED_BY(mutex_);
  Generation left_ ABSL_GUARDED_BY(mutex_);  // highest generation given to Leave
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;  // visitors_.size() after each round
  std::thread thread_;
};

}  // namespace starling::comm
