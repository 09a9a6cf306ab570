#include "starling/base/log.h"

#include <cstdlib>
#include <memory>

#include "absl/synchronization/mutex.h"
#include "spdlog/sinks/basic_file_sink.h"
#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"
#include "starling/base/exit_codes.h"

namespace starling {
namespace {

struct Sink {
  absl::Mutex mutex;
  std::shared_ptr<spdlog::logger> logger ABSL_GUARDED_BY(mutex);
  std::string context ABSL_GUARDED_BY(mutex);
};

Sink& GlobalSink() {
  static Sink& sink = *new Sink;
  return sink;
}

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

// A message is one line whatever a peer put into it.
std::string OneLine(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return out;
}

}  // namespace

void InitLogging(const LogOptions& options) {
  std::shared_ptr<spdlog::logger> logger;
  try {
    if (options.file.empty()) {
      logger = std::make_shared<spdlog::logger>(
          "starling", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    } else {
      logger = std::make_shared<spdlog::logger>(
          "starling", std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file));
    }
  } catch (const spdlog::spdlog_ex& error) {
    // A log that cannot be opened must not end a training run: say so where people look.
    logger = std::make_shared<spdlog::logger>(
        "starling", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    logger->error("cannot open log file {}: {}", options.file, error.what());
  }
  logger->flush_on(spdlog::level::info);
  const std::string component = options.component.empty() ? "starling" : options.component;
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%fZ %^%L%$ " + component + " %v",
                      spdlog::pattern_time_type::utc);
  Sink& sink = GlobalSink();
  absl::MutexLock lock(&sink.mutex);
  sink.logger = std::move(logger);
}

void SetLogContext(std::string context) {
  Sink& sink = GlobalSink();
  absl::MutexLock lock(&sink.mutex);
  sink.context = std::move(context);
}

void WriteLog(LogLevel level, std::string_view message) {
  Sink& sink = GlobalSink();
  absl::MutexLock lock(&sink.mutex);
  if (sink.logger == nullptr) {
    sink.logger = std::make_shared<spdlog::logger>(
        "starling", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  }
  std::string line = OneLine(message);
  if (!sink.context.empty()) line = sink.context + " " + line;
  sink.logger->log(ToSpdlog(level), "{}", line);
}

FatalMessage::FatalMessage(const char* file, int line, const char* condition) {
  stream_ << "internal error at " << file << ":" << line << ": " << condition << " is false. ";
}

FatalMessage::~FatalMessage() {
  WriteLog(LogLevel::kError, stream_.str());
  std::_Exit(static_cast<int>(ExitCode::kInternal));
}

}  // namespace starling
