#include "coordinator/http_page.h"

#include <civetweb.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "starling/base/exit_codes.h"
#include "starling/base/host_port.h"
#include "starling/base/status.h"

namespace starling::coordinator {
namespace {

// Names and reasons come from outside: nothing of them may be read as markup.
std::string Escape(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// The loss curve as a line of 600 × 80.
std::string Sparkline(std::vector<double> losses) {
  std::erase_if(losses, [](double loss) { return !std::isfinite(loss); });
  if (losses.size() < 2) return "";
  const auto [low, high] = std::minmax_element(losses.begin(), losses.end());
  const double span = std::max(*high - *low, 1e-9);
  std::string points;
  for (size_t i = 0; i < losses.size(); ++i) {
    absl::StrAppendFormat(&points, "%.1f,%.1f ",
                          600.0 * static_cast<double>(i) / static_cast<double>(losses.size() - 1),
                          78.0 - 76.0 * (losses[i] - *low) / span);
  }
  return absl::StrFormat(
      "<p>loss %.4g … %.4g, newest %.4g</p><svg width=600 height=80><polyline fill=none "
      "stroke=steelblue points=\"%s\"/></svg>",
      *low, *high, losses.back(), points);
}

std::string Row(const membership::WorkerStatus& worker) {
  return absl::StrCat("<tr><td>", worker.rank ? absl::StrCat(worker.rank->value()) : "", "<td>",
                      Escape(worker.member.name), "<td>", Escape(worker.state), "<td>",
                      Escape(worker.member.host), "<td>", worker.member.pid, "<td>",
                      absl::StrFormat("%.2f", worker.micro_batches_per_second), "<td>",
                      absl::ToInt64Milliseconds(worker.last_seen), "</tr>\n");
}

}  // namespace

std::string PageHtml(const rpc::StatusReport& report, const std::vector<double>& losses) {
  const membership::Status& status = report.status;
  std::string page = absl::StrCat(
      "<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=5><title>",
      Escape(report.run), "</title><style>body{font:15px sans-serif;margin:2em}td,th{padding:2px ",
      "10px;text-align:left}</style><h1>", Escape(report.run), "</h1><p>step <b>",
      status.position.step.value(), "</b> of ", report.total_steps, ", ", Escape(status.phase),
      " (", Escape(status.phase_reason), "), generation ", status.generation.value(), ", term ",
      status.term.value(), ", goodput ", absl::StrFormat("%.1f %%", 100 * report.goodput));
  if (status.latest_checkpoint) {
    absl::StrAppend(&page, ", checkpoint at step ", status.latest_checkpoint->step.value());
  }
  absl::StrAppend(&page, "</p>", Sparkline(losses),
                  "<table><tr><th>rank<th>worker<th>state<th>host<th>pid<th>micro-batches/s",
                  "<th>last seen, ms</tr>\n");
  for (const membership::WorkerStatus& worker : status.workers) page += Row(worker);
  return page + "</table><p><a href=/metrics>metrics</a></p>\n";
}

HttpPage::Answer HttpPage::Respond(const std::string& path) {
  if (path != "/" && path != "/metrics" && path != "/healthz" && path != "/readyz") {
    return {.code = 404, .body = "there are /, /metrics, /healthz and /readyz\n"};
  }
  const absl::StatusOr<rpc::StatusReport> report = status_();
  if (!report.ok()) {
    return {.code = 503, .body = absl::StrCat(std::string(report.status().message()), "\n")};
  }
  if (path == "/healthz") return {.body = "ok\n"};
  if (path == "/readyz") {
    const bool running = report->status.phase == "running";
    return {.code = running ? 200 : 503, .body = report->status.phase + "\n"};
  }
  if (path == "/metrics") {
    return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_->Text(*report)};
  }
  return {.type = "text/html; charset=utf-8", .body = PageHtml(*report, metrics_->losses())};
}

int HttpPage::Handle(mg_connection* connection, void* page) {
  const Answer answer =
      static_cast<HttpPage*>(page)->Respond(mg_get_request_info(connection)->local_uri);
  mg_printf(connection,
            "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store"
            "\r\nConnection: close\r\n\r\n",
            answer.code, mg_get_response_code_text(connection, answer.code), answer.type.c_str(),
            answer.body.size());
  mg_write(connection, answer.body.data(), answer.body.size());
  return answer.code;
}

absl::StatusOr<std::unique_ptr<HttpPage>> HttpPage::Start(const std::string& bind,
                                                          StatusSource status, Metrics* metrics) {
  STARLING_ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(bind));
  std::unique_ptr<HttpPage> page(new HttpPage(std::move(status), metrics));
  const std::string host = parsed.host == "localhost" ? "127.0.0.1" : parsed.host;
  const std::string ports = JoinHostPort(host, parsed.port);
  const char* options[] = {"listening_ports",    ports.c_str(), "num_threads", "4",
                           "request_timeout_ms", "5000",        nullptr};
  const mg_callbacks callbacks{};
  page->context_ = mg_start(&callbacks, nullptr, options);
  mg_server_port port{};
  if (page->context_ == nullptr || mg_get_server_ports(page->context_, 1, &port) < 1) {
    return WithExitCode(
        absl::UnavailableError(absl::StrCat(
            "cannot listen on ", bind,
            " for the status page: the port is in use or the address is not of this host "
            "(coordinator.http)")),
        ExitCode::kOsError);
  }
  mg_set_request_handler(page->context_, "/", &HttpPage::Handle, page.get());
  page->address_ = JoinHostPort(host, port.port);
  return page;
}

// civetweb looks whether it shall stop every two seconds, or when somebody connects.
HttpPage::~HttpPage() {
  if (context_ == nullptr) return;
  absl::Notification stopped;
  std::thread stopper([&] {
    mg_stop(context_);
    stopped.Notify();
  });
  const absl::StatusOr<HostPort> own = ParseHostPort(address_);
  const std::string host =
      own.ok() && own->host != "0.0.0.0" && own->host != "::" ? own->host : "127.0.0.1";
  char error[128];
  while (own.ok() && !stopped.WaitForNotificationWithTimeout(absl::Milliseconds(5))) {
    mg_connection* knock = mg_connect_client(host.c_str(), own->port, 0, error, sizeof(error));
    if (knock != nullptr) mg_close_connection(knock);
  }
  stopper.join();
}

}  // namespace starling::coordinator
