// Reads one file with one of the parsers, in its own process:
//
//   fault_parse safetensors|tokens|tokenizer|json|manifest FILE     exit code 0, or that of the error, which it prints
//   fault_parse spoil FILE INDEX ID                        sets a token of a shard to ID, and corrects the hashes
//
// Prints how much memory it took to read the file, beyond the file's size, in KiB. The exit code is 70 if this is more
// than 64 MiB.
#include <sys/resource.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "core/error.h"
#include "core/hash.h"
#include "core/io.h"
#include "data/json.h"
#include "data/safetensors.h"
#include "data/token_shard.h"
#include "data/tokenizer.h"
#include "parallel/checkpoint/manifest.h"

using namespace trireme;

namespace {

constexpr long most_kib = 64 << 10;

long peak_kib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

void parse(const std::string& kind, const std::string& path) {
  if (kind == "safetensors") {
    const SafetensorsFile file(path);
    for (const std::string& name : file.names()) static_cast<void>(file.read(name));
  } else if (kind == "tokens") {
    const TokenShard shard(path);
  } else if (kind == "tokenizer") {
    load_tokenizer(path);
  } else if (kind == "json") {
    parse_json(read_file(path), path);
  } else if (kind == "manifest") {
    checkpoint::parse_manifest(read_file(path), path);
  } else {
    fail(ExitCode::usage, "parse",
         "unknown kind of file '{}'; expected safetensors, tokens, tokenizer, json or manifest", kind);
  }
}

int measured(const std::string& kind, const std::string& path) {
  const long before = peak_kib();
  int code = 0;
  try {
    parse(kind, path);
  } catch (const Error& error) {
    std::printf("%s\n", error.what());
    code = static_cast<int>(error.code());
  }
  const long grown = peak_kib() - before - static_cast<long>(std::filesystem::file_size(path) >> 10);
  std::printf("code=%d memory_beyond_file=%ld KiB\n", code, grown);
  return grown > most_kib ? 70 : code;
}

/// Only for shards of 2-byte tokens: see data/token_shard.h for the layout.
void spoil(const std::string& path, std::size_t index, int id) {
  std::string bytes = read_file(path);
  const auto token = static_cast<std::uint16_t>(id);
  std::memcpy(bytes.data() + 80 + 2 * index, &token, sizeof token);
  const std::uint64_t content = hash_bytes(std::string_view(bytes).substr(80));
  std::memcpy(bytes.data() + 64, &content, sizeof content);
  const std::uint64_t header = hash_bytes(std::string_view(bytes).substr(0, 72));
  std::memcpy(bytes.data() + 72, &header, sizeof header);
  write_file(path, bytes);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 5 && std::strcmp(argv[1], "spoil") == 0) {
      spoil(argv[2], std::stoull(argv[3]), std::stoi(argv[4]));
      return 0;
    }
    if (argc == 3) return measured(argv[1], argv[2]);
    std::fputs("usage: fault_parse KIND FILE | spoil FILE INDEX ID\n", stderr);
    return 64;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 70;
  }
}
