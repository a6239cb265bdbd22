#include "data/prepare/text_input.h"

#include "core/error.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;

TextFormat format_in(const fs::path& path) {
  if (compression_of(path) == Compression::none) return format_of(path, first_bytes(path));
  return format_of(path.stem(), {});  // the name without .gz or .zst
}

TextInput describe(const fs::path& path, std::optional<TextFormat> format) {
  TextInput input{.path = path,
                  .format = format ? *format : format_in(path),
                  .compression = compression_of(path),
                  .bytes = InputFile(path).size()};
  std::error_code error;
  input.modified = fs::last_write_time(path, error).time_since_epoch().count();
  return input;
}

}  // namespace

TextInputs find_text_inputs(const fs::path& path, std::optional<TextFormat> format) {
  TextInputs inputs;
  if (path == standard_input) {
    inputs.files.push_back({.path = path, .format = format.value_or(TextFormat::text)});
    return inputs;
  }
  const auto is_input = [](const fs::path& file) { return compression_of(file) != Compression::none; };
  const FoundTexts found = find_texts(path, "--data", is_input);
  for (const fs::path& file : found.files) inputs.files.push_back(describe(file, format));
  inputs.left_out = found.left_out;
  return inputs;
}

}  // namespace trireme
