#include "starling/membership/journal.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "membership/codec.h"
#include "starling/base/crc32c.h"

namespace starling::membership {
namespace {

void Put(ByteWriter& w, const Version& v) {
  w.U64(v.timeline.value());
  w.I64(v.step.value());
}
Version GetVersion(ByteReader& r) {
  const Timeline timeline(r.U64());
  return {timeline, Step(r.I64())};
}

void Put(ByteWriter& w, const std::vector<plan::IntervalSet>& sets) {
  w.U64(sets.size());
  for (const plan::IntervalSet& set : sets) {
    w.U64(set.intervals().size());
    for (const plan::Interval& interval : set.intervals()) {
      w.I64(interval.begin);
      w.I64(interval.end);
    }
  }
}
std::vector<plan::IntervalSet> GetSets(ByteReader& r) {
  std::vector<plan::IntervalSet> sets(r.Count());
  for (plan::IntervalSet& set : sets) {
    std::vector<plan::Interval> intervals(r.Count());
    for (plan::Interval& interval : intervals) {
      interval.begin = r.I64();
      interval.end = r.I64();
    }
    set = plan::IntervalSet::Of(std::move(intervals));
  }
  return sets;
}

void Put(ByteWriter& w, const View& view) {
  w.U64(view.generation.value());
  w.U64(view.members.size());
  for (const Member& member : view.members) {
    w.U64(member.incarnation.value());
    w.Text(member.name);
    w.Text(member.host);
    w.I64(member.pid);
    w.Text(member.data_address);
  }
}
View GetView(ByteReader& r) {
  View view;
  view.generation = Generation(r.U64());
  view.members.resize(r.Count());
  for (Member& member : view.members) {
    member.incarnation = Incarnation(r.U64());
    member.name = r.Text();
    member.host = r.Text();
    member.pid = r.I64();
    member.data_address = r.Text();
  }
  return view;
}

void Put(ByteWriter& w, const VoteResult& v) {
  w.U64(v.generation.value());
  Put(w, v.at.version());
  w.U64(v.at.attempt.value());
  w.U8(static_cast<uint8_t>(v.outcome));
  w.I64(v.count);
  w.U64(v.mix);
  w.I64(v.update);
  w.Pod(v.learning_rate);
  w.Pod(v.mlm_loss);
  w.Pod(v.sop_loss);
  w.I64(v.tokens);
  w.Pod(v.grad_norm);
  w.Pod(v.clip_factor);
  w.U64(v.weight_squares.size());
  for (double value : v.weight_squares) w.Pod(value);
  w.U64(v.update_squares.size());
  for (double value : v.update_squares) w.Pod(value);
  w.U64(v.speeds.size());
  for (plan::Speed speed : v.speeds) w.U64(speed);
  w.U8(v.checkpoint_requested);
  w.U64(v.digests.size());
  for (const Digest& digest : v.digests) w.Pod(digest);
}
VoteResult GetVoteResult(ByteReader& r) {
  VoteResult v;
  v.generation = Generation(r.U64());
  const Version version = GetVersion(r);
  v.at = {version.timeline, version.step, Attempt(static_cast<uint32_t>(r.U64()))};
  const uint8_t outcome = r.U8();
  if (outcome > static_cast<uint8_t>(Outcome::kRepeat)) r.Fail();
  v.outcome = static_cast<Outcome>(outcome);
  v.count = r.I64();
  v.mix = r.U64();
  v.update = r.I64();
  v.learning_rate = r.Pod<double>();
  v.mlm_loss = r.Pod<double>();
  v.sop_loss = r.Pod<double>();
  v.tokens = r.I64();
  v.grad_norm = r.Pod<double>();
  v.clip_factor = r.Pod<double>();
  v.weight_squares.resize(r.Count());
  for (double& value : v.weight_squares) value = r.Pod<double>();
  v.update_squares.resize(r.Count());
  for (double& value : v.update_squares) value = r.Pod<double>();
  v.speeds.resize(r.Count());
  for (plan::Speed& speed : v.speeds) speed = static_cast<plan::Speed>(r.U64());
  v.checkpoint_requested = r.U8() != 0;
  v.digests.resize(r.Count());
  for (Digest& digest : v.digests) digest = r.Pod<Digest>();
  return v;
}

struct Encoder {
  ByteWriter& w;
  void operator()(const RunRecord& record) const {
    w.Text(record.run_id);
    w.U64(record.config_hash);
    w.U64(record.model_hash);
    w.U64(record.data_hash);
  }
  void operator()(const TermRecord& record) const { w.U64(record.term.value()); }
  void operator()(const GenerationsRecord& record) const { w.U64(record.up_to.value()); }
  void operator()(const FormRecord& record) const {
    Put(w, record.view);
    w.U8(static_cast<uint8_t>(record.purpose));
    Put(w, record.position.version());
    w.U64(record.position.attempt.value());
    w.I64(record.updates);
    w.U8(record.restore.has_value());
    if (record.restore) {
      w.Text(record.restore->checkpoint);
      Put(w, record.restore->version);
    }
    w.U8(record.forked_from.has_value());
    if (record.forked_from) Put(w, *record.forked_from);
    Put(w, record.claims);
    Put(w, record.assignment);
    w.Text(record.reason);
    w.U8(record.result.has_value());
    if (record.result) Put(w, *record.result);
    w.U8(record.latest_evaluation.has_value());
    if (record.latest_evaluation) Put(w, *record.latest_evaluation);
  }
  void operator()(const CheckpointRecord& record) const {
    w.Text(record.folder);
    Put(w, record.version);
    w.U8(record.good);
  }
  void operator()(const TargetRecord& record) const { w.I64(record.target_workers); }
  void operator()(const DrainRecord& record) const { w.U64(record.incarnation.value()); }
  void operator()(const DoneRecord& record) const { Put(w, record.version); }
};

FormRecord GetForm(ByteReader& r) {
  FormRecord record;
  record.view = GetView(r);
  record.purpose = static_cast<Purpose>(r.U8());
  const Version version = GetVersion(r);
  record.position = {version.timeline, version.step, Attempt(static_cast<uint32_t>(r.U64()))};
  record.updates = r.I64();
  if (r.U8() != 0) {
    RestoreSource source;
    source.checkpoint = r.Text();
    source.version = GetVersion(r);
    record.restore = std::move(source);
  }
  if (r.U8() != 0) record.forked_from = GetVersion(r);
  record.claims = GetSets(r);
  record.assignment = GetSets(r);
  record.reason = r.Text();
  if (r.U8() != 0) record.result = GetVoteResult(r);
  if (r.U8() != 0) record.latest_evaluation = GetVersion(r);
  return record;
}

std::optional<JournalRecord> DecodePayload(std::string_view payload) {
  ByteReader r(payload);
  std::optional<JournalRecord> record;
  switch (r.U8()) {
    case 0: {
      RunRecord run;
      run.run_id = r.Text();
      run.config_hash = r.U64();
      run.model_hash = r.U64();
      run.data_hash = r.U64();
      record = std::move(run);
      break;
    }
    case 1:
      record = TermRecord{Term(r.U64())};
      break;
    case 2:
      record = GenerationsRecord{Generation(r.U64())};
      break;
    case 3:
      record = GetForm(r);
      break;
    case 4: {
      CheckpointRecord checkpoint;
      checkpoint.folder = r.Text();
      checkpoint.version = GetVersion(r);
      checkpoint.good = r.U8() != 0;
      record = std::move(checkpoint);
      break;
    }
    case 5:
      record = TargetRecord{static_cast<int>(r.I64())};
      break;
    case 6:
      record = DrainRecord{Incarnation(r.U64())};
      break;
    case 7:
      record = DoneRecord{GetVersion(r)};
      break;
    default:
      r.Fail();
  }
  if (!r.Complete()) return std::nullopt;
  return record;
}

// uint32 payload length, uint32 CRC32C of those four bytes, uint32 CRC32C of the payload. The
// length has a check of its own, so that a damaged one is not mistaken for a torn record.
constexpr size_t kFrameBytes = 12;

uint32_t LengthCrc(uint32_t length) { return Crc32c(&length, sizeof(length)); }

absl::Status Damaged(size_t offset) {
  return absl::DataLossError(absl::StrCat(
      "journal record at offset ", offset,
      " is damaged and is not the last one: restore the journal from a copy, or move it away and "
      "start the coordinator with --adopt"));
}

struct Folder {
  RestoredState& state;
  void operator()(const RunRecord& record) const { state.run = record; }
  void operator()(const TermRecord& record) const {
    state.term = std::max(state.term, record.term);
  }
  void operator()(const GenerationsRecord& record) const {
    state.generations_up_to = std::max(state.generations_up_to, record.up_to);
  }
  void operator()(const FormRecord& record) const {
    if (state.form) {
      for (const Member& member : state.form->view.members) {
        if (!record.view.RankOf(member.incarnation)) state.fenced.insert(member.incarnation);
      }
    }
    state.form = record;
    state.generations_up_to = std::max(state.generations_up_to, record.view.generation);
    if (record.forked_from) state.forks[record.position.timeline] = *record.forked_from;
  }
  void operator()(const CheckpointRecord& record) const {
    std::erase_if(state.checkpoints,
                  [&](const CheckpointRecord& known) { return known.folder == record.folder; });
    if (record.good) {
      state.checkpoints.push_back(record);
    } else {
      state.bad_checkpoints.insert(record.folder);
    }
  }
  void operator()(const TargetRecord& record) const {
    state.target_workers = record.target_workers;
  }
  void operator()(const DrainRecord& record) const { state.draining.insert(record.incarnation); }
  void operator()(const DoneRecord& record) const { state.done = record.version; }
};

}  // namespace

std::string EncodeRecord(const JournalRecord& record) {
  ByteWriter body;
  body.U8(static_cast<uint8_t>(record.index()));
  std::visit(Encoder{body}, record);
  const std::string payload = body.Take();
  ByteWriter frame;
  const auto length = static_cast<uint32_t>(payload.size());
  frame.Pod(length);
  frame.Pod(LengthCrc(length));
  frame.Pod(Crc32c(payload));
  return frame.Take() + payload;
}

void RestoredState::Fold(const JournalRecord& record) { std::visit(Folder{*this}, record); }

absl::StatusOr<JournalContent> DecodeJournal(std::string_view bytes) {
  JournalContent content;
  content.state.journal_found = !bytes.empty();
  size_t offset = 0;
  while (offset < bytes.size()) {
    const std::string_view rest = bytes.substr(offset);
    // A crash in the middle of an append leaves a short record, or zeros that were never written,
    // at the very end.
    if (rest.size() < kFrameBytes || rest.find_first_not_of('\0') == std::string_view::npos) break;
    ByteReader header(rest.substr(0, kFrameBytes));
    const auto length = header.Pod<uint32_t>();
    if (header.Pod<uint32_t>() != LengthCrc(length)) return Damaged(offset);
    const auto crc = header.Pod<uint32_t>();
    if (rest.size() - kFrameBytes < length) break;
    const std::string_view payload = rest.substr(kFrameBytes, length);
    const bool last = offset + kFrameBytes + length == bytes.size();
    const auto record = Crc32c(payload) == crc ? DecodePayload(payload) : std::nullopt;
    if (!record) {
      if (last) break;
      return Damaged(offset);
    }
    content.state.Fold(*record);
    offset += kFrameBytes + length;
  }
  content.valid_bytes = offset;
  return content;
}

}  // namespace starling::membership
