#include "starling/rpc/target.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "starling/base/fs.h"
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

// Under another name and renamed, so that nobody reads half a token; only the owner may read it.
absl::Status WritePrivate(const std::string& path, const std::string& text) {
  const std::string temporary = absl::StrCat(path, ".", getpid());
  unlink(temporary.c_str());
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("cannot create ", temporary));
  const bool written =
      write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && fsync(fd) == 0;
  const int error = errno;
  close(fd);
  if (!written) {
    unlink(temporary.c_str());
    return ErrnoStatus(error, absl::StrCat("cannot write ", temporary));
  }
  return RealFs().Rename(temporary, path);
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

std::string Describe(const Target& target) {
  if (target.endpoint.empty()) return absl::StrCat("the coordinator of ", target.run_folder);
  return absl::StrCat("the coordinator at ", target.endpoint);
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
    std::array<unsigned char, 32> random;
    if (RAND_bytes(random.data(), random.size()) != 1) {
      return absl::InternalError("no random bytes for a token");
    }
    token = absl::BytesToHexString(
        absl::string_view(reinterpret_cast<const char*>(random.data()), random.size()));
  }
  STARLING_RETURN_IF_ERROR(WritePrivate(path, token + "\n"));
  return token;
}

absl::StatusOr<HostPort> ParseHostPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  HostPort parsed;
  if (colon != std::string_view::npos) {
    parsed.host = std::string(text.substr(0, colon));
    const std::string_view port = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), parsed.port);
    if (parsed.host.size() > 2 && parsed.host.front() == '[' && parsed.host.back() == ']') {
      parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
    }
    if (error == std::errc() && end == port.data() + port.size() && parsed.port >= 0 &&
        parsed.port <= 65535 && !parsed.host.empty()) {
      return parsed;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", std::string(text), "' is no address: HOST:PORT is wanted"));
}

bool IsLoopback(const std::string& host) {
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  if (inet_pton(AF_INET6, host.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
  return host == "localhost";
}

}  // namespace starling::rpc
