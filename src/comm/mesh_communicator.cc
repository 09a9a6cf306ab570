#include "comm/mesh_communicator.h"

#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "comm/reduce.h"
#include "comm/sinks.h"
#include "starling/base/clock.h"
#include "starling/base/status.h"

namespace starling::comm {
namespace {

constexpr int kFlatRanksMax = 8;                // up to here everybody talks to everybody
constexpr int64_t kFlatBroadcastBytes = 65536;  // smaller ones are not worth a scatter

int64_t BytesOf(const ConstBuffer& buffer) {
  return buffer.count * static_cast<int64_t>(SizeOf(buffer.dtype));
}

absl::Status CheckBuffer(const ConstBuffer& buffer) {
  if (buffer.count < 0 || (buffer.count > 0 && buffer.data == nullptr)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a buffer of ", buffer.count, " elements without memory"));
  }
  return absl::OkStatus();
}

absl::Status CheckLayout(const Layout& layout, int ranks, int64_t count) {
  if (layout.size() != static_cast<size_t>(ranks)) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout for ", layout.size(), " ranks in a group of ", ranks));
  }
  for (const auto& ranges : layout) {
    for (const Range& range : ranges) {
      if (range.begin < 0 || range.begin > range.end || range.end > count) {
        return absl::InvalidArgumentError(
            absl::StrCat("range [", range.begin, ", ", range.end, ") outside a buffer of ", count));
      }
    }
  }
  return absl::OkStatus();
}

// Offsets of the parts in one message; each part starts at a multiple of 8 bytes.
struct Packing {
  std::vector<int64_t> offsets;
  int64_t bytes = 0;
};

Packing PackingOf(std::span<const ReducePart> parts) {
  Packing packing;
  for (const ReducePart& part : parts) {
    packing.offsets.push_back(packing.bytes);
    packing.bytes += (BytesOf(part.buffer) + 7) / 8 * 8;
  }
  return packing;
}

std::vector<std::byte> Pack(std::span<const ReducePart> parts, const Packing& packing) {
  std::vector<std::byte> message(static_cast<size_t>(packing.bytes));
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t bytes = BytesOf(parts[i].buffer);
    if (bytes > 0) {
      std::memcpy(message.data() + packing.offsets[i], parts[i].buffer.data,
                  static_cast<size_t>(bytes));
    }
  }
  return message;
}

class MeshCommunicator final : public Communicator {
 public:
  explicit MeshCommunicator(std::unique_ptr<Mesh> mesh) : mesh_(std::move(mesh)) {}

  Rank rank() const override { return Rank(mesh_->rank()); }
  int size() const override { return mesh_->size(); }
  Generation generation() const override { return mesh_->generation(); }

  absl::Status ReduceScatter(ConstBuffer in, Buffer out, const Layout& layout,
                             absl::Duration timeout) override;
  absl::Status AllGather(Buffer buffer, const Layout& layout, absl::Duration timeout) override;
  absl::Status AllReduce(std::span<const ReducePart> parts, absl::Duration timeout) override;
  absl::Status Broadcast(Buffer buffer, Rank root, absl::Duration timeout) override;
  absl::Status Barrier(absl::Duration timeout) override;
  absl::Status Send(ConstBuffer buffer, Rank to, absl::Duration timeout) override;
  absl::Status Receive(Buffer buffer, Rank from, absl::Duration timeout) override;

  void Abort(const std::string& reason) override { mesh_->Abort(reason); }
  std::vector<Rank> suspects() const override { return mesh_->suspects(); }
  Traffic traffic() const override { return mesh_->traffic(); }

 private:
  int self() const { return mesh_->rank(); }
  // Peers in the order in which they are served: the next rank first, so that not all ranks begin
  // with the same one.
  std::vector<int> Peers() const;
  // Begins a call: its deadline, or what the communicator died of, or `arguments` if they are
  // wrong.
  absl::StatusOr<absl::Time> Begin(absl::Status arguments, absl::Duration timeout);
  absl::Status CheckPeer(Rank peer) const;
  absl::Status CheckParts(std::span<const ReducePart> parts) const;

  absl::Status GatherRanges(MessageKind kind, void* data, int64_t element_bytes,
                            const Layout& layout, absl::Time deadline);
  absl::Status FlatBroadcast(MessageKind kind, void* data, int64_t bytes, int root,
                             absl::Time deadline);
  absl::Status ScatterBroadcast(void* data, int64_t bytes, int root, absl::Time deadline);
  // Fills `messages` (by rank; own one is there) with those of all ranks in `from`, and sends own
  // message to all in `to`.
  absl::Status SwapMessages(std::deque<std::vector<std::byte>>& messages,
                            const std::vector<int>& to, const std::vector<int>& from,
                            absl::Time deadline);

  std::unique_ptr<Mesh> mesh_;
  uint32_t sequence_ = 0;  // collectives begun; equal on all ranks
};

std::vector<int> MeshCommunicator::Peers() const {
  std::vector<int> peers;
  for (int i = 1; i < size(); ++i) peers.push_back((self() + i) % size());
  return peers;
}

absl::StatusOr<absl::Time> MeshCommunicator::Begin(absl::Status arguments, absl::Duration timeout) {
  STARLING_RETURN_IF_ERROR(mesh_->status());
  if (!arguments.ok()) return mesh_->Fail(std::move(arguments), {});
  return SystemClock::Get().Now() + timeout;
}

absl::Status MeshCommunicator::CheckPeer(Rank peer) const {
  if (peer.value() < 0 || peer.value() >= size() || peer.value() == self()) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", peer.value(), " is not a peer of rank ",
                                                   self(), " in a group of ", size()));
  }
  return absl::OkStatus();
}

absl::Status MeshCommunicator::CheckParts(std::span<const ReducePart> parts) const {
  for (const ReducePart& part : parts) {
    STARLING_RETURN_IF_ERROR(CheckBuffer(part.buffer));
    if (!Supports(part.buffer.dtype, part.op)) {
      return absl::InvalidArgumentError(absl::StrCat("bitwise or of ",
                                                     std::string(DTypeName(part.buffer.dtype)),
                                                     "; it is for integers only"));
    }
  }
  return absl::OkStatus();
}

absl::Status MeshCommunicator::ReduceScatter(ConstBuffer in, Buffer out, const Layout& layout,
                                             absl::Duration timeout) {
  absl::Status arguments = CheckBuffer(in);
  arguments.Update(CheckBuffer(out));
  arguments.Update(CheckLayout(layout, size(), in.count));
  if (in.count != out.count || in.dtype != out.dtype) {
    arguments.Update(
        absl::InvalidArgumentError("ReduceScatter's two buffers differ in size or type"));
  }
  STARLING_ASSIGN_OR_RETURN(const absl::Time deadline, Begin(std::move(arguments), timeout));
  const auto& mine = layout[static_cast<size_t>(self())];
  const int64_t element = static_cast<int64_t>(SizeOf(in.dtype));
  if (size() == 1) {
    for (const Range& range : mine) {
      if (range.begin == range.end) continue;
      std::memcpy(static_cast<std::byte*>(out.data) + range.begin * element,
                  static_cast<const std::byte*>(in.data) + range.begin * element,
                  static_cast<size_t>((range.end - range.begin) * element));
    }
    return absl::OkStatus();
  }
  OrderedReducer reducer(in, out, mine, size(), self());
  std::deque<ReduceSink> sinks;
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  for (int peer : Peers()) {
    sends.emplace_back(peer, in.data, element, layout[static_cast<size_t>(peer)]);
  }
  for (int peer = 0; peer < size(); ++peer) {  // in rank order, because they are added so
    if (peer == self()) continue;
    receives.emplace_back(peer, &sinks.emplace_back(&reducer, peer), CountOf(mine) * element);
  }
  return mesh_->Exchange(MessageKind::kReduceScatter, sequence_++, sends, receives, deadline);
}

absl::Status MeshCommunicator::GatherRanges(MessageKind kind, void* data, int64_t element_bytes,
                                            const Layout& layout, absl::Time deadline) {
  std::deque<CopySink> sinks;
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  for (int peer : Peers()) {
    sends.emplace_back(peer, data, element_bytes, layout[static_cast<size_t>(self())]);
    const auto& theirs = layout[static_cast<size_t>(peer)];
    receives.emplace_back(peer, &sinks.emplace_back(data, element_bytes, theirs),
                          CountOf(theirs) * element_bytes);
  }
  return mesh_->Exchange(kind, sequence_++, sends, receives, deadline);
}

absl::Status MeshCommunicator::AllGather(Buffer buffer, const Layout& layout,
                                         absl::Duration timeout) {
  absl::Status arguments = CheckBuffer(buffer);
  arguments.Update(CheckLayout(layout, size(), buffer.count));
  STARLING_ASSIGN_OR_RETURN(const absl::Time deadline, Begin(std::move(arguments), timeout));
  return GatherRanges(MessageKind::kAllGather, buffer.data,
                      static_cast<int64_t>(SizeOf(buffer.dtype)), layout, deadline);
}

absl::Status MeshCommunicator::SwapMessages(std::deque<std::vector<std::byte>>& messages,
                                            const std::vector<int>& to,
                                            const std::vector<int>& from, absl::Time deadline) {
  const auto& own = messages[static_cast<size_t>(self())];
  const int64_t bytes = static_cast<int64_t>(own.size());
  const Range whole[] = {{0, bytes}};
  std::deque<CopySink> sinks;
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  for (int peer : to) sends.emplace_back(peer, own.data(), 1, whole);
  for (int peer : from) {
    auto& message = messages[static_cast<size_t>(peer)];
    message.resize(own.size());
    receives.emplace_back(peer, &sinks.emplace_back(message.data(), 1, whole), bytes);
  }
  return mesh_->Exchange(MessageKind::kAllReduce, sequence_++, sends, receives, deadline);
}

absl::Status MeshCommunicator::AllReduce(std::span<const ReducePart> parts,
                                         absl::Duration timeout) {
  STARLING_ASSIGN_OR_RETURN(const absl::Time deadline, Begin(CheckParts(parts), timeout));
  if (size() == 1) return absl::OkStatus();
  const Packing packing = PackingOf(parts);
  std::deque<std::vector<std::byte>> messages(static_cast<size_t>(size()));
  messages[static_cast<size_t>(self())] = Pack(parts, packing);
  const bool flat = size() <= kFlatRanksMax;
  std::vector<int> to = Peers();
  std::vector<int> from = to;
  if (!flat && self() == 0) to.clear();
  if (!flat && self() != 0) to = {0}, from.clear();
  STARLING_RETURN_IF_ERROR(SwapMessages(messages, to, from, deadline));
  auto& own = messages[static_cast<size_t>(self())];
  if (flat || self() == 0) {
    for (size_t i = 0; i < parts.size(); ++i) {
      std::vector<const void*> sources;
      for (const auto& message : messages) sources.push_back(message.data() + packing.offsets[i]);
      ReduceInOrder(parts[i].buffer.dtype, parts[i].op, sources, own.data() + packing.offsets[i],
                    parts[i].buffer.count);
    }
  }
  if (!flat) {
    STARLING_RETURN_IF_ERROR(
        FlatBroadcast(MessageKind::kAllReduce, own.data(), packing.bytes, 0, deadline));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t bytes = BytesOf(parts[i].buffer);
    if (bytes > 0) {
      std::memcpy(parts[i].buffer.data, own.data() + packing.offsets[i],
                  static_cast<size_t>(bytes));
    }
  }
  return absl::OkStatus();
}

absl::Status MeshCommunicator::FlatBroadcast(MessageKind kind, void* data, int64_t bytes, int root,
                                             absl::Time deadline) {
  const Range whole[] = {{0, bytes}};
  CopySink sink(data, 1, whole);
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  if (self() == root) {
    for (int peer : Peers()) sends.emplace_back(peer, data, 1, whole);
  } else {
    receives.emplace_back(root, &sink, bytes);
  }
  return mesh_->Exchange(kind, sequence_++, sends, receives, deadline);
}

absl::Status MeshCommunicator::ScatterBroadcast(void* data, int64_t bytes, int root,
                                                absl::Time deadline) {
  Layout layout(static_cast<size_t>(size()));
  for (int rank = 0; rank < size(); ++rank) {
    layout[static_cast<size_t>(rank)] = {{bytes * rank / size(), bytes * (rank + 1) / size()}};
  }
  const auto& mine = layout[static_cast<size_t>(self())];
  CopySink sink(data, 1, mine);
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  if (self() == root) {
    for (int peer : Peers()) sends.emplace_back(peer, data, 1, layout[static_cast<size_t>(peer)]);
  } else {
    receives.emplace_back(root, &sink, CountOf(mine));
  }
  STARLING_RETURN_IF_ERROR(
      mesh_->Exchange(MessageKind::kBroadcast, sequence_++, sends, receives, deadline));
  return GatherRanges(MessageKind::kBroadcast, data, 1, layout, deadline);
}

absl::Status MeshCommunicator::Broadcast(Buffer buffer, Rank root, absl::Duration timeout) {
  absl::Status arguments = CheckBuffer(buffer);
  if (root.value() < 0 || root.value() >= size()) {
    arguments.Update(
        absl::InvalidArgumentError(absl::StrCat("root ", root.value(), " in a group of ", size())));
  }
  STARLING_ASSIGN_OR_RETURN(const absl::Time deadline, Begin(std::move(arguments), timeout));
  const int64_t bytes = BytesOf(buffer);
  if (size() <= kFlatRanksMax || bytes <= kFlatBroadcastBytes) {
    return FlatBroadcast(MessageKind::kBroadcast, buffer.data, bytes, root.value(), deadline);
  }
  return ScatterBroadcast(buffer.data, bytes, root.value(), deadline);
}

absl::Status MeshCommunicator::Barrier(absl::Duration timeout) {
  STARLING_ASSIGN_OR_RETURN(const absl::Time deadline, Begin(absl::OkStatus(), timeout));
  // Round k of the sparse form: rank r has heard of the 2^(k+1) − 1 ranks before it.
  const bool flat = size() <= kFlatRanksMax;
  for (int distance = 1; distance < size(); distance = flat ? size() : distance * 2) {
    BytesSink nothing({});
    std::vector<Outgoing> sends;
    std::vector<Incoming> receives;
    const auto add = [&](int to, int from) {
      sends.emplace_back(to, nullptr, 1, std::span<const Range>());
      receives.emplace_back(from, &nothing, 0);
    };
    if (flat) {
      for (int peer : Peers()) add(peer, peer);
    } else {
      add((self() + distance) % size(), (self() - distance + size()) % size());
    }
    STARLING_RETURN_IF_ERROR(
        mesh_->Exchange(MessageKind::kBarrier, sequence_++, sends, receives, deadline));
  }
  return absl::OkStatus();
}

absl::Status MeshCommunicator::Send(ConstBuffer buffer, Rank to, absl::Duration timeout) {
  absl::Status arguments = CheckBuffer(buffer);
  arguments.Update(CheckPeer(to));
  STARLING_ASSIGN_OR_RETURN(const absl::Time deadline, Begin(std::move(arguments), timeout));
  const Range whole[] = {{0, BytesOf(buffer)}};
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  sends.emplace_back(to.value(), buffer.data, 1, whole);
  return mesh_->Exchange(MessageKind::kPointToPoint, 0, sends, receives, deadline);
}

absl::Status MeshCommunicator::Receive(Buffer buffer, Rank from, absl::Duration timeout) {
  absl::Status arguments = CheckBuffer(buffer);
  arguments.Update(CheckPeer(from));
  STARLING_ASSIGN_OR_RETURN(const absl::Time deadline, Begin(std::move(arguments), timeout));
  const int64_t bytes = BytesOf(buffer);
  const Range whole[] = {{0, bytes}};
  CopySink sink(buffer.data, 1, whole);
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  receives.emplace_back(from.value(), &sink, bytes);
  return mesh_->Exchange(MessageKind::kPointToPoint, 0, sends, receives, deadline);
}

}  // namespace

std::unique_ptr<Communicator> MakeMeshCommunicator(std::unique_ptr<Mesh> mesh) {
  return std::make_unique<MeshCommunicator>(std::move(mesh));
}

}  // namespace starling::comm
