// The coordinator's plain HTTP port: `/` a status page for people, `/metrics` for Prometheus,
// `/healthz` (the driver answers), `/readyz` (a view is active). Read-only. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/metrics.h"
#include "starling/rpc/requests.h"

struct mg_context;
struct mg_connection;

namespace starling::coordinator {

class HttpPage {
 public:
  using StatusSource = std::function<absl::StatusOr<rpc::StatusReport>()>;

  // Listens on HOST:PORT, port 0 = any free one. `status` may block for a moment; it and `metrics`
  // outlive the page. Unavailable, marked with exit code 71, when the address cannot be listened
  // on.
  static absl::StatusOr<std::unique_ptr<HttpPage>> Start(const std::string& bind,
                                                         StatusSource status, Metrics* metrics);
  ~HttpPage();  // waits for requests under way
  HttpPage(const HttpPage&) = delete;
  HttpPage& operator=(const HttpPage&) = delete;

  const std::string& address() const { return address_; }  // HOST:PORT

  // What a path answers; for tests too.
  struct Answer {
    int code = 200;
    std::string type = "text/plain; charset=utf-8";
    std::string body;
  };
  Answer Respond(const std::string& path);

 private:
  HttpPage(StatusSource status, Metrics* metrics) : status_(std::move(status)), metrics_(metrics) {}
  static int Handle(mg_connection* connection, void* page);

  const StatusSource status_;
  Metrics* const metrics_;
  std::string address_;
  mg_context* context_ = nullptr;  // owned
};

// The status page; pure.
std::string PageHtml(const rpc::StatusReport& report, const std::vector<double>& losses);

}  // namespace starling::coordinator
