#include "ops/tracking/address.h"

#include <charconv>
#include <cstdint>

#include "core/error.h"

namespace trireme {

Address Address::parse(std::string_view text, std::string_view flag) {
  const std::size_t colon = text.rfind(':');
  std::string_view host = colon == std::string_view::npos ? "" : text.substr(0, colon);
  const std::string_view port = colon == std::string_view::npos ? text : text.substr(colon + 1);
  const bool in_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (in_brackets) host = host.substr(1, host.size() - 2);
  std::uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  const bool valid = error == std::errc() && end == port.data() + port.size() &&
                     (in_brackets || host.find_first_of(":[]") == std::string_view::npos);
  if (!valid)
    fail(ExitCode::usage, flag,
         "'{}' is not an address; expected HOST:PORT with a port up to 65535, as in 127.0.0.1:9400, [::1]:9400, or "
         "9400 alone for this machine; change {}",
         text, flag);
  return {host.empty() ? "127.0.0.1" : std::string(host), std::to_string(number)};
}

}  // namespace trireme
