// Makes communicators. One Transport lives as long as its process: it listens before any view is
// known, its address goes to the coordinator with the registration, and every generation's
// communicator is connected through it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "starling/base/ids.h"
#include "starling/comm/communicator.h"

namespace starling::comm {

struct Peer {
  Incarnation incarnation;
  std::string address;  // what its Transport::address() said
  std::string host;     // its HostId(): equal ones share memory
};

// Who takes part in one generation. All of it is checked in the handshake of every connection, so
// that strangers and ghosts of older generations are refused (I4).
struct GroupSpec {
  std::string run_id;
  Generation generation;
  Rank rank;                // this process
  std::vector<Peer> peers;  // in rank order, this process included
  std::string secret;       // of the generation; proved, never sent in the clear
};

// Thread-safe.
class Transport {
 public:
  virtual ~Transport() = default;

  // Where peers find this process, e.g. "10.0.0.3:41234". Fixed for its life.
  virtual const std::string& address() const = 0;

  // Connects to all peers of `spec` and returns when every connection has passed the handshake.
  // Blocks until done, `timeout`, or CancelConnect. On failure nothing of the group is left open;
  // `unreachable`, when given, receives the ranks that could not be reached. Codes: Unavailable,
  // DeadlineExceeded, Aborted (cancelled), PermissionDenied (a peer refused, or failed the
  // handshake), InvalidArgument (`spec` is wrong), AlreadyExists (the generation is being connected
  // already).
  virtual absl::StatusOr<std::unique_ptr<Communicator>> Connect(const GroupSpec& spec,
                                                                absl::Duration timeout,
                                                                std::vector<Rank>* unreachable) = 0;
  // Ends a Connect of `generation` or an older one, running or to come. Never blocks.
  virtual void CancelConnect(Generation generation) = 0;
};

struct SocketTransportOptions {
  std::string bind_host = "127.0.0.1";  // listens here, on a port the system picks
  std::string advertise_host;           // what peers connect to; empty = bind_host
  bool shared_memory = true;
  int64_t slot_bytes = 1 << 20;  // size of one shared-memory or socket chunk; tests shrink it
};

// TCP between hosts, shared memory within one.
absl::StatusOr<std::unique_ptr<Transport>> MakeSocketTransport(
    const SocketTransportOptions& options);

// Ranks as threads of one process, for tests: all transports made from one hub reach each other.
class ThreadHub;
std::shared_ptr<ThreadHub> MakeThreadHub();
std::unique_ptr<Transport> MakeThreadTransport(std::shared_ptr<ThreadHub> hub, std::string address);

}  // namespace starling::comm
