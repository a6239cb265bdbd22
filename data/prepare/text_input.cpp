#include "data/prepare/text_input.h"

#include "core/error.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;

/// The first bytes of the text in a file: decompressed, if it is compressed.
std::string first_text(const fs::path& path) {
  const Compression compression = compression_of(path);
  if (compression == Compression::none) return first_bytes(path);
  if (InputFile(path).size() == 0) return {};
  std::string head(sniffed_bytes, '\0');
  head.resize(decompressed(std::make_shared<FileBytes>(path), compression, path)->read(head));
  return head;
}

TextInput describe(const fs::path& path, std::optional<TextFormat> format) {
  TextInput input{.path = path, .compression = compression_of(path), .bytes = InputFile(path).size()};
  const std::string head = first_text(path);
  require_text(head, input);
  input.format = format ? *format : format_of(path, head);
  std::error_code error;
  input.modified = fs::last_write_time(path, error).time_since_epoch().count();
  return input;
}

}  // namespace

void require_text(std::string_view head, const TextInput& input) {
  require_text(head, input.name() + (input.compression == Compression::none ? "" : ", decompressed,"));
}

TextInputs find_text_inputs(const fs::path& path, std::optional<TextFormat> format) {
  TextInputs inputs;
  if (path == standard_input) {
    inputs.files.push_back({.path = path, .format = format.value_or(TextFormat::text)});
    return inputs;
  }
  const FoundTexts found = find_texts(path, "--data", first_text);
  for (const fs::path& file : found.files) inputs.files.push_back(describe(file, format));
  inputs.left_out = found.left_out;
  return inputs;
}

}  // namespace trireme
