#include "tests/fuzz/targets.h"

#include <fmt/core.h>

namespace trireme::fuzz {

const std::vector<Target>& targets() {
  static const std::vector<Target> all = {
      {"json", json},           {"safetensors", safetensors},   {"manifest", manifest},
      {"tokenizer", tokenizer}, {"token_shard", token_shard},   {"metrics", metrics},
      {"config", config},       {"command_line", command_line}, {"mesh", mesh}};
  return all;
}

bool accepted(const std::function<void()>& f) {
  constexpr std::size_t most = 4096;
  try {
    f();
    return true;
  } catch (const Error& error) {
    const std::string_view message = error.what();
    if (error.code() != ExitCode::usage && error.code() != ExitCode::data)
      throw Broken(fmt::format("refused with code {}: {}", static_cast<int>(error.code()), message.substr(0, most)));
    if (message.size() > most)
      throw Broken(fmt::format("a message of {} bytes: {}", message.size(), message.substr(0, most)));
    if (message.find('\n') != std::string_view::npos)
      throw Broken(fmt::format("a message of several lines: {}", message));
    return false;
  }
}

}  // namespace trireme::fuzz
