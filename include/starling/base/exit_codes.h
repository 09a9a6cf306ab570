// Exit codes of both binaries. Schedulers rely on them: launch files and documentation quote this
// header. BSD sysexits numbers where one fits.
#pragma once

#include "absl/status/status.h"

namespace starling {

enum class ExitCode : int {
  kOk = 0,             // training finished, or the verb is done
  kFailure = 1,        // anything without a code of its own
  kUsage = 64,         // wrong command line, or a request outside the limits
  kBadData = 65,       // corrupt token file, checkpoint or input text
  kMissingInput = 66,  // a file that does not exist
  kUnreachable = 69,   // coordinator or storage not reachable in time
  kInternal = 70,      // an invariant of ours is broken: report it
  kOsError = 71,       // the operating system refused something (port in use, no processes)
  kCannotCreate = 73,  // an output file or folder cannot be created
  kIoError = 74,       // reading or writing failed, disk full
  kDrained = 75,       // drained or preempted: start me again
  kFenced = 76,        // a newer incarnation exists, or protocols differ: do not start me again
  kPermission = 77,    // permission or identity refused
  kConfig = 78,        // the configuration is wrong
  kWaitTimeout = 124,  // what was asked for had not happened after --timeout
  kInterrupted = 130,  // Ctrl-C
};

// The exit code for a status that ends the process and says nothing more special: InvalidArgument →
// 64, NotFound → 66, DataLoss → 65, PermissionDenied → 77, Unavailable and DeadlineExceeded → 69,
// ResourceExhausted → 74, AlreadyExists → 73, Internal → 70, others 1. A status that WithExitCode
// has marked says its own.
ExitCode ExitCodeFor(const absl::Status& status);

// The same status, marked with the exit code it means when the kind of error alone would say
// something else (a port in use is 71, not 69). OK stays unmarked.
absl::Status WithExitCode(absl::Status status, ExitCode code);

}  // namespace starling
