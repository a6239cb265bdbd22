// Targets for what prepare_data reads, and for files of tokens of other programs.
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "data/bin_tokens.h"
#include "data/mixture.h"
#include "data/prepare/block_reader.h"
#include "data/prepare/byte_stream.h"
#include "data/prepare/csv.h"
#include "data/prepare/prepare_state.h"
#include "data/prepare/records.h"
#include "tests/fuzz/targets.h"

namespace trireme::fuzz {

namespace {

const std::filesystem::path some_path = "input";

/// The documents of `bytes`, read in blocks of about `block_bytes`.
std::vector<std::string> documents_of(std::string_view bytes, TextFormat format, std::size_t block_bytes) {
  const TextInputs inputs{.files = {{.path = some_path, .format = format, .bytes = bytes.size()}}};
  BlockReader reader(inputs, {.block_bytes = block_bytes}, nullptr, {},
                     [&](const TextInput&) { return std::make_shared<MemoryBytes>(bytes); });
  std::vector<std::string> documents;
  TextBlock block;
  InputPosition before;
  bool whole = true;
  while (reader.next(block)) {
    expect(block.begin.offset >= before.offset && block.end.offset == block.begin.offset + block.bytes.size(),
           "a block is at another place");
    expect(block.begins == whole, "a document begins inside of another");
    for_each_document(block, "text", [&](std::string_view text, std::int64_t) {
      if (block.begins) {
        documents.emplace_back(text);
      } else {
        documents.back() += text;
      }
    });
    whole = block.ends;
    before = block.end;
  }
  expect(whole, "the last document does not end");
  return documents;
}

/// All of it, or the message of the error behind what could be read.
std::string decompress(std::string_view input, Compression compression, std::size_t piece_bytes) {
  std::string text, piece(piece_bytes, '\0');
  constexpr std::size_t most = 1 << 22;  // a small file may decompress to gigabytes
  try {
    const auto bytes = decompressed(std::make_shared<MemoryBytes>(input), compression, some_path);
    while (text.size() < most) {
      const std::size_t count = bytes->read(piece);
      expect(count <= piece.size(), "more bytes than asked for");
      text.append(piece, 0, count);
      if (count < piece.size()) return text;
    }
  } catch (const Error& error) {
    expect(error.code() == ExitCode::data, "refused with another code");
    return "refused";
  }
  return text.substr(0, most);
}

}  // namespace

void records(std::string_view input) {
  if (input.empty()) return;
  const auto format = static_cast<TextFormat>(static_cast<unsigned char>(input.front()) % 4);
  input.remove_prefix(1);
  std::vector<std::string> large, small;
  const bool fine = accepted([&] { large = documents_of(input, format, 1 << 20); });
  const bool again = accepted([&] { small = documents_of(input, format, 7); });
  expect(fine == again, "refused only in blocks of one size");
  if (fine) expect(large == small, "blocks of another size give other documents");
}

void compressed(std::string_view input) {
  for (const Compression compression : {Compression::gzip, Compression::zstd}) {
    const std::string once = decompress(input, compression, 1 << 16), again = decompress(input, compression, 1 << 10);
    expect(once == again, "the text depends on how it is read");
  }
}

void prepare_state(std::string_view input) {
  PrepareState state;
  if (!accepted([&] { state = parse_prepare_state(input, some_path); })) return;
  const std::string text = to_text(state);
  expect(to_text(parse_prepare_state(text, some_path)) == text, "a state changed by being written");
  expect(state.input.file >= 0 && state.shards.tokens >= 0 && state.seen >= 0, "negative numbers");
}

void mixture(std::string_view input) {
  std::vector<MixturePart> parts;
  if (!accepted([&] { parts = parse_mixture(input); })) return;
  double sum = 0;
  std::vector<double> weights;
  for (const MixturePart& part : parts) {
    expect(part.weight > 0 && part.weight <= 1, "an impossible weight");
    weights.push_back(part.weight);
    sum += part.weight;
  }
  expect(std::abs(sum - 1) < 1e-9, "the weights do not add up to 1");
  std::vector<std::int64_t> counts(parts.size());
  if (!accepted([&] {
        const MixtureOrder order(weights, 1);
        for (std::int64_t s = 0; s < 100; ++s) {
          const auto place = order.locate(s);
          expect(place.source < parts.size() && place.sample >= 0 && place.sample < MixtureOrder::period,
                 "an impossible sample");
        }
      }))
    expect(parts.size() > 1, "one source was refused");
}

void llmc(std::string_view input) {
  std::vector<std::uint64_t> aligned(input.size() / 8 + 1);  // like a mapped file
  std::memcpy(aligned.data(), input.data(), input.size());
  const auto content = std::as_bytes(std::span(aligned)).first(input.size());
  std::int64_t count = 0;
  if (accepted([&] { count = parse_llmc_header(content, some_path); }))
    expect(count > 0 && 1024 + 2 * static_cast<std::size_t>(count) == input.size(), "the file's size is another");
  if (accepted([&] { count = parse_nanogpt(content, some_path); }))
    expect(count > 0 && 2 * static_cast<std::size_t>(count) == input.size(), "the file's size is another");
}

}  // namespace trireme::fuzz
