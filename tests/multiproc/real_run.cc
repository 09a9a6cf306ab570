#include "multiproc/real_run.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace starling::testing {
namespace {

using Json = nlohmann::json;

std::string SmallText() {
  static const char* const kWords[] = {"зима",  "лес",  "снег",  "река",  "дом",   "поле",
                                       "ветер", "утро", "город", "книга", "песня", "море",
                                       "стоит", "идёт", "видит", "помнит"};
  std::mt19937 random(7);
  std::ostringstream text;
  for (int document = 0; document < 60; ++document) {
    for (int sentence = 0; sentence < 12; ++sentence) {
      text << "А";
      for (int word = 0; word < 5; ++word) text << ' ' << kWords[random() % std::size(kWords)];
      text << ".\n";
    }
    text << "\n";
  }
  return text.str();
}

void MustRun(std::vector<std::string> words) {
  words.insert(words.begin(), STARLING_BINARY);
  const ProgramResult result = RunProgram(words);
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
}

// What the final state rests on: the newest timeline's word on each step.
std::map<int64_t, Json> Surviving(const std::vector<Json>& lines) {
  std::map<int64_t, Json> steps;
  for (const Json& line : lines) {
    const int64_t step = line["step"];
    for (auto it = steps.lower_bound(step); it != steps.end();) {
      it = it->second["timeline"] < line["timeline"] ? steps.erase(it) : std::next(it);
    }
    steps[step] = line;
  }
  return steps;
}

// Each of the micro-batches once?
bool CountsEachOnce(const Json& line) {
  std::vector<int> times(kMicroBatches, 0);
  for (const Json& rank : line["micro_batches"]) {
    for (const Json& interval : rank[1]) {
      for (int i = interval[0]; i < interval[1]; ++i) {
        if (i < 0 || i >= kMicroBatches) return false;
        ++times[static_cast<size_t>(i)];
      }
    }
  }
  return std::all_of(times.begin(), times.end(), [](int n) { return n == 1; });
}

}  // namespace

const SmallData& TheSmallData() {
  static const TempDir& dir = *new TempDir;
  static const SmallData data = [] {
    SmallData d{dir / "tokenizer.json", dir / "text.tokens", dir / "text.validation.tokens"};
    std::ofstream(dir / "text.txt") << SmallText();
    MustRun({"tokenizer", "train", "--input", dir / "text.txt", "--vocab-size", "50", "--output",
             d.tokenizer});
    MustRun({"prepare", "--tokenizer", d.tokenizer, "--input", dir / "text.txt", "--output",
             d.tokens, "--validation-fraction", "0.2"});
    return d;
  }();
  return data;
}

RealRun::RealRun(int steps, const std::string& training, const std::string& more)
    : run_(dir_ / "run") {
  const SmallData& data = TheSmallData();
  std::ofstream(config())
      << "run: {name: test, directory: " << run_ << ", seed: 3}\n"
      << "data: {train: [" << data.tokens << "], tokenizer: " << data.tokenizer
      << ", validation: " << data.validation << ", pad_to_multiple: 8}\n"
      << "model: {hidden_size: 16, layers: 2, groups: 2, share_large_matrices: 1, heads: 2,"
      << " intermediate_size: 32, gated: true, embedding_size: 8}\n"
      << "training: {steps: " << steps << ", global_batch: " << 2 * kMicroBatches
      << ", micro_batch: 2, digest_every: 1,"
      << " sequence_length: {initial: 16, final: 16, warmup_steps: 0, multiple: 8}" << training
      << "}\noptimizer: {name: lamb, learning_rate: 2.0e-3, warmup_steps: 5}\n"
      << more;
}

RealRun::~RealRun() {
  for (const auto& [name, pid] : workers_) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  KillEverything();
}

void RealRun::StartCoordinator(int workers, const std::string& faults) {
  REQUIRE(pid_ == 0);
  ++starts_;
  const std::string endpoint = run_ + "/endpoint", before = ReadFile(endpoint);
  pid_ = StartProgram({STARLING_BINARY, "coordinator", "-c", config(), "-n", absl::StrCat(workers)},
                      {absl::StrCat("STARLING_FAULT=", faults)}, dir_ / "out",
                      dir_ / absl::StrCat("err", starts_));
  watch_.emplace(pid_, std::vector<std::string>{dir_.path(), run_});
  const bool listens = watch_->Await(
      [&] { return ReadFile(endpoint) != before && absl::StrContains(said(), "coordinator of"); });
  INFO(said());
  REQUIRE(listens);
}

void RealRun::StartWorker(const std::string& name, int pace_ms, const std::string& faults) {
  REQUIRE(!workers_.contains(name));
  workers_[name] =
      StartProgram({STARLING_WORKER_BINARY, "train", "-c", config(), "--name", name},
                   {absl::StrCat("STARLING_FAULT=pace@ms=", pace_ms, ";", faults)},
                   dir_ / absl::StrCat(name, ".out"), dir_ / absl::StrCat(name, ".err"));
}

void RealRun::SignalWorker(const std::string& name, int signal) { kill(workers_.at(name), signal); }

int RealRun::WaitForWorker(const std::string& name) {
  int status = 0;
  const pid_t pid = workers_.at(name);
  const Watch watch(pid, {dir_.path()});
  const bool ended = watch.Await([&] { return waitpid(pid, &status, WNOHANG) == pid; });
  UNSCOPED_INFO(name << " said: " << ReadFile(dir_ / absl::StrCat(name, ".err")));
  REQUIRE(ended);
  workers_.erase(name);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void RealRun::KillCoordinator() {
  REQUIRE(pid_ != 0);
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

void RealRun::Start(int workers, std::vector<std::string> more, int pace_ms,
                    const std::string& faults) {
  REQUIRE(pid_ == 0);
  std::vector<std::string> words = {STARLING_BINARY, "run",       "--config",
                                    config(),        "--workers", absl::StrCat(workers)};
  words.insert(words.end(), more.begin(), more.end());
  ++starts_;
  pid_ = StartProgram(words, {absl::StrCat("STARLING_FAULT=pace@ms=", pace_ms, ";", faults)},
                      dir_ / "out", dir_ / absl::StrCat("err", starts_));
  watch_.emplace(pid_, std::vector<std::string>{dir_.path(), run_});
}

int RealRun::WaitForExit() {
  REQUIRE(pid_ != 0);
  int status = 0;
  const bool ended = watch_->Await([&] { return waitpid(pid_, &status, WNOHANG) == pid_; });
  UNSCOPED_INFO(said());
  REQUIRE(ended);
  pid_ = 0;
  UNSCOPED_INFO(said());  // of the caller's check of the code
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void RealRun::Signal(int signal) {
  REQUIRE(pid_ != 0);
  kill(pid_, signal);
}

void RealRun::KillEverything() {
  if (pid_ == 0) return;
  std::vector<pid_t> workers;
  if (const std::optional<Json> status = TryStatus()) {
    for (const Json& worker : (*status)["workers"]) workers.push_back(worker["pid"]);
  }
  kill(pid_, SIGKILL);
  for (pid_t worker : workers) kill(worker, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

ProgramResult RealRun::Ask(std::vector<std::string> words) {
  words.insert(words.begin(), STARLING_BINARY);
  words.insert(words.end(), {"--run", run_});
  return RunProgram(words);
}

std::optional<Json> RealRun::TryStatus() {
  const ProgramResult result = Ask({"status", "-o", "json"});
  if (result.exit_code != 0) return std::nullopt;
  return Json::parse(result.out, nullptr, false);
}

Json RealRun::Status() {
  const std::optional<Json> status = TryStatus();
  INFO(said());
  REQUIRE(status.has_value());
  return *status;
}

void RealRun::WaitForStep(int64_t step) {
  REQUIRE(pid_ != 0);
  const bool reached = watch_->Await([&] { return LastStep() >= step; });
  INFO("step " << LastStep() << " instead of " << step << "\n" << said());
  REQUIRE(reached);
}

void RealRun::WaitForEvent(const std::string& event) {
  REQUIRE(pid_ != 0);
  const bool happened = watch_->Await([&] { return CountEvents(event) > 0; });
  INFO("waited for " << event << "\n" << said());
  REQUIRE(happened);
}

void RealRun::WaitUntilSaid(const std::string& text) {
  REQUIRE(pid_ != 0);
  const bool heard = watch_->Await([&] { return absl::StrContains(said(), text); });
  INFO("waited for \"" << text << "\"\n" << said());
  REQUIRE(heard);
}

Json RealRun::WaitForMembers(size_t members) {
  REQUIRE(pid_ != 0);
  Json last;
  const bool reached = watch_->Await([&] {
    const std::optional<Json> status = TryStatus();
    if (!status) return false;
    last = *status;
    size_t active = 0;
    for (const Json& worker : last["workers"]) active += worker["state"] == "active" ? 1 : 0;
    return active == members && last["phase"] == "running";
  });
  INFO("status " << last.dump() << "\n" << said());
  REQUIRE(reached);
  return last;
}

void RealRun::KillRanks(const std::set<int>& ranks) {
  const Json status = Status();
  size_t killed = 0;
  for (const Json& worker : status["workers"]) {
    if (!worker["rank"].is_number() || !ranks.contains(worker["rank"])) continue;
    kill(worker["pid"].get<pid_t>(), SIGKILL);
    ++killed;
  }
  REQUIRE(killed == ranks.size());
}

std::vector<Json> RealRun::Lines(const std::string& file) const {
  std::vector<Json> lines;
  std::ifstream in(run_ + "/" + file);
  for (std::string line; std::getline(in, line);) {
    if (in.eof()) break;  // still being written
    lines.push_back(Json::parse(line));
  }
  return lines;
}

int64_t RealRun::LastStep() const {
  const std::vector<Json> ledger = Lines("ledger.jsonl");
  return ledger.empty() ? 0 : ledger.back()["step"].get<int64_t>();
}

size_t RealRun::CountEvents(const std::string& event) const {
  size_t count = 0;
  for (const Json& line : Lines("events.jsonl")) count += line["event"] == event ? 1 : 0;
  return count;
}

std::string RealRun::said() const { return ReadFile(dir_ / absl::StrCat("err", starts_)); }

void RealRun::CheckLedger(int64_t steps, bool away) const {
  const std::map<int64_t, Json> ledger = Surviving(Lines("ledger.jsonl"));
  REQUIRE(static_cast<int64_t>(ledger.size()) == steps);
  int64_t expected = 1;
  for (const auto& [step, line] : ledger) {
    INFO(line.dump());
    CHECK(step == expected);
    CHECK(CountsEachOnce(line));
    CHECK(line["samples"][0] == (step - 1) * 2 * kMicroBatches);
    CHECK(line["samples"][1] == step * 2 * kMicroBatches - 1);
    // The digest of a version comes with the next vote of the same view.
    const auto next = ledger.find(step + 1);
    const bool same_view = next != ledger.end() && next->second["generation"] == line["generation"];
    if (same_view && !away) CHECK(line.contains("digest"));
    ++expected;
  }
  CHECK(CountEvents("diverged") == 0);
}

std::map<int64_t, std::filesystem::path> RealRun::Checkpoints() const {
  std::map<int64_t, std::filesystem::path> complete;
  for (const auto& entry : std::filesystem::directory_iterator(run_ + "/checkpoints")) {
    if (!std::filesystem::exists(entry.path() / "manifest.json")) continue;
    complete[std::stoll(entry.path().filename().string().substr(std::string("step-").size()))] =
        entry.path();
  }
  return complete;
}

std::map<int64_t, double> RealRun::Losses() const {
  std::vector<Json> metrics;
  for (const Json& line : Lines("metrics.jsonl")) {
    if (line.contains("loss")) metrics.push_back(line);
  }
  std::map<int64_t, double> losses;
  for (const auto& [step, line] : Surviving(metrics)) losses[step] = line["loss"];
  return losses;
}

void RealRun::CheckSameCurve(const std::map<int64_t, double>& calm, bool away) const {
  const std::map<int64_t, double> losses = Losses();
  REQUIRE((away || losses.size() == calm.size()));
  REQUIRE(losses.contains(calm.rbegin()->first));
  for (const auto& [step, loss] : losses) {
    INFO("step " << step << ": " << loss << " and " << calm.at(step));
    CHECK(std::abs(loss - calm.at(step)) < 1e-3 * loss);
  }
}

}  // namespace starling::testing
