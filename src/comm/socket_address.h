// Sockets by address text. HOST:PORT (base/host_port.h) for TCP; every transport that shares memory
// also listens on a UNIX socket whose abstract name derives from its TCP address, so that nothing
// is left in the file system. Pure functions and thin wrappers; thread-safe.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "absl/status/statusor.h"
#include "comm/fd.h"

namespace starling::comm {

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// Looks host names up, which blocks; numeric hosts do not. InvalidArgument for malformed text,
// Unavailable when the name is not known (now).
absl::StatusOr<SocketAddress> ResolveTcp(const std::string& host, const std::string& port);
absl::StatusOr<SocketAddress> ResolveTcp(const std::string& host_and_port);
// InvalidArgument when `address` is too long for a UNIX socket's name.
absl::StatusOr<SocketAddress> UnixAddress(const std::string& address);

// Port a bound TCP socket got.
absl::StatusOr<int> BoundPort(int fd);

// Non-blocking stream socket of the address's family; TCP_NODELAY where it applies.
absl::StatusOr<UniqueFd> MakeSocket(const SocketAddress& address);
void SetNoDelay(int fd);

// Sends `data`, and `passed_fd` with it when it is not -1, without blocking. False when it did not
// go out whole.
bool SendWhole(int fd, const std::string& data, int passed_fd = -1);
// Appends what has arrived to `data` until it has `wanted` bytes, never more; a descriptor that
// comes along goes to `passed`. False at the end of the stream or an error.
bool ReceiveSome(int fd, size_t wanted, std::string* data, UniqueFd* passed);

}  // namespace starling::comm
