// Where a server listens, as the user writes it. Read next: ops/tracking/page_server.h.
#pragma once

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

}  // namespace trireme
