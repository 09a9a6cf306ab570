// Logging and assertions. The interface shows neither spdlog nor fmt, so torch layers may use it.
// Lines are `key=value` text; the process-wide sink is set once by main. Thread-safe.
#pragma once

#include <sstream>
#include <string>
#include <string_view>

namespace starling {

enum class LogLevel { kDebug, kInfo, kWarning, kError };  // kDebug lines are dropped

struct LogOptions {
  std::string file;       // appended to; empty = standard error
  std::string component;  // "coordinator", "worker", … in every line
};

// Replaces the process's log sink. Call it once, in main, before threads start.
void InitLogging(const LogOptions& options);

// Fields put before every later message of this process, e.g. "worker=w0 gen=3 rank=1". Replaces
// the earlier ones.
void SetLogContext(std::string context);

// Writes one line. Never throws, never fails the caller.
void WriteLog(LogLevel level, std::string_view message);

// A message being built; written when it dies.
class LogMessage {
 public:
  explicit LogMessage(LogLevel level) : level_(level) {}
  ~LogMessage() { WriteLog(level_, stream_.str()); }
  LogMessage(const LogMessage&) = delete;
  LogMessage& operator=(const LogMessage&) = delete;
  std::ostream& stream() { return stream_; }

 private:
  LogLevel level_;
  std::ostringstream stream_;
};

// As LogMessage, and ends the process with exit code 70 (internal invariant) when it dies.
class FatalMessage {
 public:
  FatalMessage(const char* file, int line, const char* condition);
  [[noreturn]] ~FatalMessage();
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

// Makes a void of a stream, so that both arms of STARLING_CHECK have one type.
struct IgnoreStream {
  void operator&(std::ostream&) const {}
};

}  // namespace starling

#define STARLING_LOG(severity) ::starling::LogMessage(::starling::LogLevel::k##severity).stream()

// For programmer errors; on in release builds. Exit code 70.
#define STARLING_CHECK(condition)            \
  (condition) ? static_cast<void>(0)         \
              : ::starling::IgnoreStream() & \
                    ::starling::FatalMessage(__FILE__, __LINE__, #condition).stream()
