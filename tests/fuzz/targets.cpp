#include "tests/fuzz/targets.h"

#include <fmt/core.h>

namespace trireme::fuzz {

const std::vector<Target>& targets() {
  static const std::vector<Target> all = {{"json", json},
                                          {"chat_template", chat_template},
                                          {"json_lines", json_lines},
                                          {"safetensors", safetensors},
                                          {"gguf", gguf},
                                          {"npy", npy},
                                          {"npz", npz},
                                          {"manifest", manifest},
                                          {"tokenizer", tokenizer},
                                          {"hugging_face", hugging_face},
                                          {"tiktoken", tiktoken},
                                          {"sentencepiece", sentencepiece},
                                          {"regex", regex},
                                          {"token_shard", token_shard},
                                          {"metrics", metrics},
                                          {"trace", trace},
                                          {"model_config", model_config},
                                          {"config", config},
                                          {"command_line", command_line},
                                          {"mesh", mesh},
                                          {"links", links},
                                          {"records", records},
                                          {"compressed", compressed},
                                          {"prepare_state", prepare_state},
                                          {"mixture", mixture},
                                          {"llmc", llmc}};
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
