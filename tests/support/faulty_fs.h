// A file system that fails at a chosen call and forgets what was not synced, over real files below
// one folder. Two uses: FailAt makes the n-th call fail (a full disk, an I/O error) and, if wanted,
// all later ones (the process is dead); LosePower turns the folder into what a crash of the machine
// may leave. Thread-safe for calls through Fs.
//
// What survives: a file's content as of its last Sync; a name (creation, rename, removal) as of the
// last SyncDirectory of its folder. A real disk may have kept more, so LosePower can also keep all
// names while dropping unsynced content, the other extreme. Syncing is only written into the books,
// not done: tests are quick.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "starling/base/fs.h"

namespace starling::testing {

class FaultyFs final : public Fs {
 public:
  enum class Names { kDropUnsynced, kKeep };

  // Everything now below `root` counts as durable.
  explicit FaultyFs(std::string root) : root_(std::move(root)) {
    namespace stdfs = std::filesystem;
    live_[root_] = durable_[root_] = std::make_shared<Node>(Node{true, ""});
    for (const auto& entry : stdfs::recursive_directory_iterator(root_)) {
      const bool folder = entry.is_directory();
      const std::string path = entry.path().string();
      live_[path] = durable_[path] =
          std::make_shared<Node>(Node{folder, folder ? "" : RealFs().Read(path).value_or("")});
    }
  }

  // The n-th call from now (0 = the next) fails with `status`; a failing Append writes half of its
  // bytes first. With `for_ever`, so do all calls after it, and none of them has any effect.
  void FailAt(int64_t n, absl::Status status, bool for_ever) {
    absl::MutexLock lock(&mutex_);
    calls_ = 0;
    fail_at_ = n;
    failure_ = std::move(status);
    for_ever_ = for_ever;
  }
  void StopFailing() { FailAt(-1, absl::OkStatus(), false); }
  // Calls since construction or the last FailAt.
  int64_t calls() const {
    absl::MutexLock lock(&mutex_);
    return calls_;
  }
  // Called with the name and path of each call before it is made.
  void OnCall(std::function<void(const std::string& call, const std::string& path)> hook) {
    hook_ = std::move(hook);
  }

  // Rewrites the real folder to what survives. The object must not be used afterwards.
  void LosePower(Names names) {
    namespace stdfs = std::filesystem;
    const auto& survivors = names == Names::kKeep ? live_ : durable_;
    for (const auto& entry : stdfs::directory_iterator(root_)) stdfs::remove_all(entry.path());
    for (const auto& [path, node] : survivors) {  // sorted: folders come before what is in them
      if (path == root_ || !stdfs::is_directory(DirectoryOf(path))) continue;
      if (node->folder) stdfs::create_directory(path);
      if (!node->folder) std::ofstream(path, std::ios::binary) << node->synced;
    }
  }

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    return Open("Create", path, [&] { return RealFs().Create(path); });
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> CreatePrivate(const std::string& path) override {
    return Open("CreatePrivate", path, [&] { return RealFs().CreatePrivate(path); });
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenAppend(const std::string& path) override {
    return Open("OpenAppend", path, [&] { return RealFs().OpenAppend(path); });
  }
  absl::StatusOr<std::string> Read(const std::string& path) override {
    if (absl::Status status = Call("Read", path); !status.ok()) return status;
    return RealFs().Read(path);
  }
  absl::StatusOr<uint64_t> Size(const std::string& path) override {
    if (absl::Status status = Call("Size", path); !status.ok()) return status;
    return RealFs().Size(path);
  }
  bool Exists(const std::string& path) override { return RealFs().Exists(path); }
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override {
    if (absl::Status status = Call("List", directory); !status.ok()) return status;
    return RealFs().List(directory);
  }
  absl::Status MakeDirectories(const std::string& path) override {
    return Do(
        "MakeDirectories", path, [&] { return RealFs().MakeDirectories(path); },
        [&] {
          for (std::string p = path; !live_.contains(p) && p != "."; p = DirectoryOf(p)) {
            live_[p] = std::make_shared<Node>(Node{true, ""});
          }
        });
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return Do(
        "Rename", to, [&] { return RealFs().Rename(from, to); },
        [&] {
          live_[to] = live_.at(from);
          live_.erase(from);
        });
  }
  absl::Status Remove(const std::string& path) override {
    return Do(
        "Remove", path, [&] { return RealFs().Remove(path); }, [&] { live_.erase(path); });
  }
  absl::Status RemoveTree(const std::string& path) override {
    return Do(
        "RemoveTree", path, [&] { return RealFs().RemoveTree(path); },
        [&] {
          std::erase_if(live_, [&](const auto& entry) {
            return entry.first == path || entry.first.starts_with(path + "/");
          });
        });
  }
  absl::Status Truncate(const std::string& path, uint64_t bytes) override {
    return Do(
        "Truncate", path, [&] { return RealFs().Truncate(path, bytes); }, [] {});
  }
  absl::Status SyncDirectory(const std::string& path) override {
    return Do(
        "SyncDirectory", path, [] { return absl::OkStatus(); },
        [&] {
          auto in_folder = [&](const auto& entry) {
            return entry.first != path && DirectoryOf(entry.first) == path;
          };
          std::erase_if(durable_, in_folder);
          for (const auto& entry : live_) {
            if (in_folder(entry)) durable_.insert(entry);
          }
        });
  }

 private:
  // A file or folder whatever its name; shared between its present and its durable name.
  struct Node {
    bool folder = false;
    std::string synced;  // content as of the last Sync
  };

  class File final : public WritableFile {
   public:
    File(FaultyFs& fs, std::string path, std::shared_ptr<Node> node,
         std::unique_ptr<WritableFile> file)
        : fs_(fs), path_(std::move(path)), node_(std::move(node)), file_(std::move(file)) {}

    absl::Status Append(std::string_view data) override {
      bool dead = false;
      if (absl::Status status = fs_.Call("Append", path_, &dead); !status.ok()) {
        if (!dead) file_->Append(data.substr(0, data.size() / 2)).IgnoreError();
        return status;
      }
      return file_->Append(data);
    }
    absl::Status Sync() override {
      return fs_.Do(
          "Sync", path_, [] { return absl::OkStatus(); },
          [&] { node_->synced = RealFs().Read(path_).value_or(""); });
    }
    absl::Status Close() override {
      return fs_.Do(
          "Close", path_, [&] { return file_->Close(); }, [] {});
    }

   private:
    FaultyFs& fs_;
    std::string path_;
    std::shared_ptr<Node> node_;
    std::unique_ptr<WritableFile> file_;
  };

  // Counts a call. Its failure, if it is the one; `dead` tells whether an earlier one was.
  absl::Status Call(const std::string& call, const std::string& path, bool* dead = nullptr) {
    if (hook_) hook_(call, path);
    absl::MutexLock lock(&mutex_);
    const int64_t n = calls_++;
    if (dead != nullptr) *dead = n > fail_at_;
    if (fail_at_ < 0 || n < fail_at_ || (n > fail_at_ && !for_ever_)) return absl::OkStatus();
    return absl::Status(failure_.code(), absl::StrCat("injected: ", std::string(failure_.message()),
                                                      " at ", call, " ", path));
  }

  // A call with `act` on the real files and, when that succeeded, `note` in the books.
  template <typename Act, typename Note>
  absl::Status Do(const std::string& call, const std::string& path, Act act, Note note) {
    if (absl::Status status = Call(call, path); !status.ok()) return status;
    absl::Status status = act();
    absl::MutexLock lock(&mutex_);
    if (status.ok()) note();
    return status;
  }

  template <typename Act>
  absl::StatusOr<std::unique_ptr<WritableFile>> Open(const std::string& call,
                                                     const std::string& path, Act act) {
    if (absl::Status status = Call(call, path); !status.ok()) return status;
    auto file = act();
    if (!file.ok()) return file;
    absl::MutexLock lock(&mutex_);
    std::shared_ptr<Node>& node = live_[path];
    if (node == nullptr) node = std::make_shared<Node>();
    return std::make_unique<File>(*this, path, node, *std::move(file));
  }

  const std::string root_;
  std::function<void(const std::string&, const std::string&)> hook_;
  mutable absl::Mutex mutex_;
  int64_t calls_ = 0;
  int64_t fail_at_ = -1;
  bool for_ever_ = false;
  absl::Status failure_;
  std::map<std::string, std::shared_ptr<Node>> live_;     // by path, as the process sees it
  std::map<std::string, std::shared_ptr<Node>> durable_;  // by path, as a crash leaves it
};

}  // namespace starling::testing
