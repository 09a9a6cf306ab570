#include "starling/rpc/target.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "starling/base/fs.h"
#include "starling/base/host_port.h"
#include "starling/base/secret.h"
#include "starling/base/status.h"

namespace starling::rpc {
namespace {

constexpr size_t kTokenMin = 16;

std::string FromEnvironment() {
  const char* value = std::getenv(kTokenVariable);
  return value == nullptr ? "" : std::string(absl::StripAsciiWhitespace(value));
}

absl::StatusOr<std::string> ReadTrimmed(const std::string& path) {
  STARLING_ASSIGN_OR_RETURN(std::string text, RealFs().Read(path));
  return std::string(absl::StripAsciiWhitespace(text));
}

absl::Status CheckToken(const std::string& token, std::string_view origin) {
  const bool good =
      token.size() >= kTokenMin && token.size() <= 1024 &&
      std::all_of(token.begin(), token.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the token in ", std::string(origin), " must be ", kTokenMin,
                   " to 1024 printable ASCII characters without spaces"));
}

}  // namespace

absl::StatusOr<Address> Resolve(const Target& target) {
  Address address{target.endpoint, target.token};
  if (address.endpoint.empty()) {
    if (target.run_folder.empty()) {
      return absl::InvalidArgumentError("no coordinator is named: give --run DIR or --endpoint");
    }
    const auto endpoint = ReadTrimmed(JoinPath(target.run_folder, kEndpointFile));
    if (!endpoint.ok()) {
      return absl::UnavailableError(absl::StrCat("no coordinator has left its address in ",
                                                 target.run_folder, ": ",
                                                 std::string(endpoint.status().message())));
    }
    address.endpoint = *endpoint;
  }
  STARLING_RETURN_IF_ERROR(ParseHostPort(address.endpoint).status());
  if (address.token.empty()) address.token = FromEnvironment();
  if (address.token.empty() && !target.run_folder.empty()) {
    // A missing or unreadable file is the server's to refuse.
    address.token = ReadTrimmed(JoinPath(target.run_folder, kTokenFile)).value_or("");
  }
  return address;
}

absl::StatusOr<std::string> LoadOrMakeToken(const std::string& run_folder) {
  const std::string path = JoinPath(run_folder, kTokenFile);
  absl::StatusOr<std::string> kept = ReadTrimmed(path);
  // Only a file that is not there may be made: another one that cannot be read is somebody's.
  if (absl::IsNotFound(kept.status())) kept = "";
  STARLING_RETURN_IF_ERROR(kept.status());
  std::string token = FromEnvironment();
  if (!token.empty()) {
    STARLING_RETURN_IF_ERROR(CheckToken(token, kTokenVariable));
    if (token == *kept) return token;
  } else if (!kept->empty()) {
    STARLING_RETURN_IF_ERROR(CheckToken(*kept, path));
    return kept;
  } else {
    token = RandomHex(32);
  }
  STARLING_RETURN_IF_ERROR(WritePrivately(RealFs(), path, token + "\n"));
  return token;
}

}  // namespace starling::rpc
