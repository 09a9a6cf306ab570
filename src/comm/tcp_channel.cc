#include "comm/tcp_channel.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace starling::comm {
namespace {

constexpr int64_t kBufferBytesMax = 256 << 10;  // stays in the second cache
constexpr int64_t kDirectBytesMin = 16 << 10;   // shorter pieces are cheaper through the buffer

}  // namespace

TcpChannel::TcpChannel(UniqueFd fd, int64_t slot_bytes)
    : fd_(std::move(fd)),
      buffer_(static_cast<size_t>(std::clamp<int64_t>(slot_bytes, 64, kBufferBytesMax))) {}

int64_t TcpChannel::Write(const std::byte* data, int64_t bytes, bool more) {
  const int flags = MSG_DONTWAIT | MSG_NOSIGNAL | (more ? MSG_MORE : 0);
  while (true) {
    const ssize_t n = send(fd_.get(), data, static_cast<size_t>(bytes), flags);
    if (n >= 0) return n;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) return kBroken;
  }
}

// Bytes received, 0 for none yet, kBroken at the end of the stream.
int64_t TcpChannel::Receive(std::byte* target, int64_t bytes) {
  while (true) {
    const ssize_t n = recv(fd_.get(), target, static_cast<size_t>(bytes), MSG_DONTWAIT);
    if (n > 0) return n;
    if (n == 0) return kBroken;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) return kBroken;
  }
}

int64_t TcpChannel::FeedFromBuffer(Sink& sink, int64_t max_bytes) {
  int64_t n = std::min({end_ - begin_, max_bytes, sink.Room()});
  n -= n % sink.granule();
  if (n > 0) sink.Take(buffer_.data() + begin_, n);
  begin_ += n;
  return n;
}

int64_t TcpChannel::Read(Sink& sink, int64_t max_bytes) {
  if (const int64_t n = FeedFromBuffer(sink, max_bytes); n > 0) return n;
  if (begin_ == end_) {
    const std::span<std::byte> direct = sink.Direct();
    const int64_t wanted = std::min(static_cast<int64_t>(direct.size()), max_bytes);
    if (wanted >= kDirectBytesMin) {
      const int64_t n = Receive(direct.data(), wanted);
      if (n > 0) sink.Took(n);
      return n;
    }
  }
  // What is left is less than one element, or there is no room; make place behind it.
  std::memmove(buffer_.data(), buffer_.data() + begin_, static_cast<size_t>(end_ - begin_));
  end_ -= begin_;
  begin_ = 0;
  if (end_ == static_cast<int64_t>(buffer_.size())) return 0;
  const int64_t n = Receive(buffer_.data() + end_, static_cast<int64_t>(buffer_.size()) - end_);
  if (n <= 0) return n;
  end_ += n;
  return FeedFromBuffer(sink, max_bytes);
}

void TcpChannel::Shutdown() { shutdown(fd_.get(), SHUT_RDWR); }

}  // namespace starling::comm
