#include "comm/control_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace starling::comm {
namespace {

constexpr char kWake = 'W';
constexpr char kFinishedByte = 'F';
constexpr char kAbortedByte = 'A';
constexpr size_t kSuspectsMax = 255;

void SendBytes(int fd, const char* data, size_t bytes) {
  // Failure needs no handling: the peer then sees the end of the stream instead.
  while (send(fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

}  // namespace

void SendWake(int fd) { SendBytes(fd, &kWake, 1); }

void ControlStream::SendFinished() const { SendBytes(fd(), &kFinishedByte, 1); }

void ControlStream::SendAborted(const std::vector<int>& suspects) const {
  const size_t count = std::min(suspects.size(), kSuspectsMax);
  std::string message = {kAbortedByte, static_cast<char>(count)};
  for (size_t i = 0; i < count; ++i) {
    const int32_t rank = suspects[i];
    message.append(reinterpret_cast<const char*>(&rank), sizeof(rank));
  }
  SendBytes(fd(), message.data(), message.size());
}

void ControlStream::Shutdown() const {
  if (fd_.valid()) shutdown(fd(), SHUT_RDWR);
}

void ControlStream::Read() {
  char buffer[512];
  while (state_ == PeerState::kAlive) {
    const ssize_t n = recv(fd(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) {
      state_ = PeerState::kDead;
      return;
    }
    for (ssize_t i = 0; i < n; ++i) {
      if (buffer[i] != kWake || !unparsed_.empty()) unparsed_.push_back(buffer[i]);
    }
    Parse();
  }
}

void ControlStream::Parse() {
  if (unparsed_.empty()) return;
  if (unparsed_[0] == kFinishedByte) {
    state_ = PeerState::kFinished;
  } else if (unparsed_[0] == kAbortedByte) {
    if (unparsed_.size() < 2) return;
    const size_t count = static_cast<uint8_t>(unparsed_[1]);
    if (unparsed_.size() < 2 + count * sizeof(int32_t)) return;
    for (size_t i = 0; i < count; ++i) {
      int32_t rank = 0;
      std::memcpy(&rank, unparsed_.data() + 2 + i * sizeof(rank), sizeof(rank));
      suspects_.push_back(rank);
    }
    state_ = PeerState::kAborted;
  } else {
    state_ = PeerState::kDead;  // speaks another language: as good as dead
  }
}

}  // namespace starling::comm
