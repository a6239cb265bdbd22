// PageServer: serves one page, GET /metrics, over HTTP, for --prometheus. It has a thread of its own, of the lowest
// priority, and bounds what a client can cost: connections, bytes and seconds. A slow or hostile client costs other
// clients little, and training nothing but idle time.
// Read next: ops/tracking/page_server.cpp, ops/tracking/prometheus_sink.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace trireme {

/// Where a server listens.
struct Address {
  std::string host;  ///< a name or a number, an IPv6 number without brackets
  std::string port;  ///< "0": the system chooses one

  /// Parses HOST:PORT, as in localhost:9400 and [::1]:9400. Without a host (":9400", "9400") it is 127.0.0.1. Throws
  /// ExitCode::usage, naming `flag`, for anything else.
  static Address parse(std::string_view text, std::string_view flag);
};

class PageServer {
 public:
  static constexpr std::size_t most_connections = 16;  ///< one more closes the oldest
  static constexpr std::size_t most_request_bytes = 8192;
  static constexpr std::chrono::seconds most_time{5};  ///< usually, from the connection to its end
  static constexpr int lowest_priority = 19;           ///< as a nice value

  /// `page` makes the text; it is called on the server's thread. Throws ExitCode::usage, naming `flag`, if it cannot
  /// listen there, for instance because another program does. `nice` is the nice value of the server's thread; a
  /// connection ends after `limit`.
  PageServer(const Address& address, std::string_view flag, std::function<std::string()> page,
             int nice = lowest_priority, std::chrono::seconds limit = most_time);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  /// "http://127.0.0.1:9400/metrics", with the port in use.
  const std::string& url() const { return url_; }

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
  std::string url_;
};

}  // namespace trireme
