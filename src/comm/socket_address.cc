#include "comm/socket_address.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "starling/base/host_port.h"
#include "starling/base/status.h"

namespace starling::comm {

absl::StatusOr<SocketAddress> ResolveTcp(const std::string& host, const std::string& port) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int rc = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (rc != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot resolve \"", host, ":", port, "\": ", gai_strerror(rc)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  return address;
}

absl::StatusOr<SocketAddress> ResolveTcp(const std::string& host_and_port) {
  STARLING_ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(host_and_port));
  return ResolveTcp(address.host, absl::StrCat(address.port));
}

absl::StatusOr<SocketAddress> UnixAddress(const std::string& address) {
  const std::string name = absl::StrCat("starling-comm/", address);
  SocketAddress result;
  auto* unix_address = reinterpret_cast<sockaddr_un*>(&result.storage);
  if (name.size() + 1 > sizeof(unix_address->sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("address \"", address, "\" is too long; give a shorter advertise_host"));
  }
  unix_address->sun_family = AF_UNIX;
  std::memcpy(unix_address->sun_path + 1, name.data(), name.size());  // leading zero: abstract
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

absl::StatusOr<int> BoundPort(int fd) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    return ErrnoStatus(errno, "getsockname");
  }
  return address.storage.ss_family == AF_INET6
             ? ntohs(reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_port)
             : ntohs(reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port);
}

void SetNoDelay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // fails on UNIX sockets, rightly
}

absl::StatusOr<UniqueFd> MakeSocket(const SocketAddress& address) {
  UniqueFd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "cannot make a socket");
  SetNoDelay(fd.get());
  return fd;
}

bool SendWhole(int fd, const std::string& data, int passed_fd) {
  iovec part = {const_cast<char*>(data.data()), data.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  if (passed_fd >= 0) {
    message.msg_control = space;
    message.msg_controllen = sizeof(space);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &passed_fd, sizeof(int));
  }
  ssize_t n = 0;
  do {
    n = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(data.size());
}

bool ReceiveSome(int fd, size_t wanted, std::string* data, UniqueFd* passed) {
  while (data->size() < wanted) {
    char buffer[256];
    iovec part = {buffer, std::min(sizeof(buffer), wanted - data->size())};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
    message.msg_control = space;
    message.msg_controllen = sizeof(space);
    const ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); n >= 0 && header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      int got = -1;
      std::memcpy(&got, CMSG_DATA(header), sizeof(int));
      UniqueFd owner(got);  // closed here unless the caller wants it
      if (passed != nullptr) *passed = std::move(owner);
    }
    if (n <= 0) return false;
    data->append(buffer, static_cast<size_t>(n));
  }
  return true;
}

}  // namespace starling::comm
