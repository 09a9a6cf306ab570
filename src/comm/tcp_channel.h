// Data path over one TCP connection that carries nothing but messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/channel.h"
#include "comm/fd.h"

namespace starling::comm {

class TcpChannel final : public Channel {
 public:
  // `slot_bytes`: size of the receive buffer, from which reductions read.
  TcpChannel(UniqueFd fd, int64_t slot_bytes);

  int64_t Write(const std::byte* data, int64_t bytes, bool more) override;
  int64_t Read(Sink& sink, int64_t max_bytes) override;
  int fd() const override { return fd_.get(); }
  void Shutdown() override;

 private:
  int64_t Receive(std::byte* target, int64_t bytes);
  int64_t FeedFromBuffer(Sink& sink, int64_t max_bytes);

  UniqueFd fd_;
  std::vector<std::byte> buffer_;
  int64_t begin_ = 0;  // buffer_[begin_, end_) has been received and not consumed
  int64_t end_ = 0;
};

}  // namespace starling::comm
