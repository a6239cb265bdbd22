#include "tests/fuzz/seeds.h"

#include <fmt/core.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/hash.h"
#include "data/bpe_tokenizer.h"
#include "data/byte_tokenizer.h"
#include "data/char_tokenizer.h"
#include "data/safetensors.h"
#include "data/shard_layout.h"
#include "parallel/checkpoint/manifest.h"
#include "train/gpt/gpt_options.h"

namespace trireme::fuzz {

namespace {

std::string entry(std::string_view name, std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape, offsets);
}

std::string of_tensors(std::vector<SafetensorsEntry> entries, const std::map<std::string, std::string>& metadata) {
  std::size_t bytes = 0;
  for (const SafetensorsEntry& e : entries) bytes += static_cast<std::size_t>(e.shape.count()) * size_of(e.dtype);
  return safetensors_header(entries, metadata) + std::string(bytes, '\1');
}

std::vector<Seed> valid_safetensors() {
  return {{"two", of_tensors({{"a", DType::f32, {2, 3}}, {"b", DType::bf16, {4}}}, {{"by", "us"}})},
          {"scalars", of_tensors({{"s", DType::f64, {}}, {"none", DType::u8, {0, 5}}, {"i", DType::i64, {1}}}, {})},
          {"empty", of_tensors({}, {})}};
}

BpeVocabulary small_vocabulary() {
  BpeVocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  vocabulary.tokens.insert(vocabulary.tokens.end(), {"th", "the", std::string(end_of_text_name)});
  vocabulary.merges = {{'t', 'h'}, {256, 'e'}};
  vocabulary.end_of_text = 258;
  return vocabulary;
}

std::vector<Seed> valid_tokenizers() {
  const BpeVocabulary bpe = small_vocabulary();
  std::string vocab = "{";
  for (std::size_t id = 0; id < bpe.tokens.size(); ++id) {
    const std::string spelling = spell_bytes(bpe.tokens[id]);
    const bool escaped = spelling == "\"" || spelling == "\\";
    vocab += fmt::format("{}\"{}{}\":{}", id == 0 ? "" : ",", escaped ? "\\" : "", spelling, id);
  }
  const std::string_view text = "char z\xC3\xA9\xE2\x82\xAC\n";
  return {{"byte", ByteTokenizer().to_json()},
          {"char", CharTokenizer::from_texts({&text, 1}).to_json()},
          {"bpe", BpeTokenizer(bpe, "seed").to_json()},
          {"hugging_face", vocab + "}" + '\0' + "#version: 0.2\nt h\nth e\n"}};
}

std::string shard(std::uint32_t width, std::uint64_t tokens, const std::vector<std::uint64_t>& documents) {
  namespace layout = shard_layout;
  std::string bytes(layout::documents_begin(tokens, width), '\0');
  const auto put = [&](std::size_t at, auto value) { std::memcpy(bytes.data() + at, &value, sizeof value); };
  for (const std::uint64_t start : documents) {
    bytes.resize(bytes.size() + 8);
    put(bytes.size() - 8, start);
  }
  std::memcpy(bytes.data(), layout::magic.data(), layout::magic.size());
  put(layout::version_at, layout::version);
  put(layout::width_at, width);
  put(layout::tokens_at, tokens);
  put(layout::documents_at, std::uint64_t{documents.size()});
  put(layout::vocab_at, std::uint64_t{300});
  put(layout::last_at, std::uint64_t{1});
  for (std::uint64_t i = 0; i < tokens; ++i) bytes[layout::header_bytes + i * width] = static_cast<char>(i * 37);
  put(layout::payload_hash_at, hash_bytes(std::string_view(bytes).substr(layout::header_bytes)));
  put(layout::header_hash_at, hash_bytes(std::string_view(bytes).substr(0, layout::header_hash_at)));
  return bytes;
}

checkpoint::Manifest valid_manifest() {
  checkpoint::Manifest manifest;
  manifest.step = 12;
  manifest.ranks = 2;
  manifest.mesh = "dp=2,tp=1,pp=1";
  manifest.run = {{"model", "{\"layers\":2}"}, {"seed", "7"}};
  manifest.files = {{.name = "rank_00000.safetensors", .bytes = (1 << 20) + 8, .chunks = {0x0123456789abcdefU, 7}},
                    {.name = "b", .bytes = 64, .chunks = {1}}};
  constexpr std::int64_t rest = (1 << 20) - 12;
  manifest.tensors["x"] = {DType::bf16, {4, 3}, {{0, 8, {0, 0}, {2, 3}}, {1, 52, {2, 0}, {2, 3}}}};
  manifest.tensors["s"] = {DType::f32, {}, {{1, 48, {}, {}}}};
  manifest.tensors["y"] = {DType::u8, {rest}, {{0, 20, {0}, {rest}}}};
  return manifest;
}

/// A whole file, and its body alone: the target also puts a checksum before its input.
std::vector<Seed> valid_manifests() {
  const std::string text = to_text(valid_manifest());
  return {{"whole", text}, {"body", text.substr(text.find('\n') + 1)}};
}

/// One line with the default of each flag, except flags whose default is empty.
std::string all_flags() {
  const nlohmann::json defaults = nlohmann::json::parse(config_text(GptOptions()));
  std::string lines;
  for (const auto& [name, value] : defaults.items()) {
    if (value != "")
      lines += fmt::format("--{}={}\n", name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return lines;
}

}  // namespace

std::string safetensors_file(std::string_view header, std::string_view data) {
  const std::uint64_t length = header.size();
  std::string text(sizeof length, '\0');
  std::memcpy(text.data(), &length, sizeof length);
  return text + std::string(header) + std::string(data);
}

std::vector<Seed> seeds(std::string_view target) {
  std::vector<Seed> result;
  if (target == "json")
    result = {{"all", R"({"a":[1,-2,3.5e-3,true,false,null,"\u20ac\n"],"b":{"c":{}},"d":18446744073709551615})"},
              {"deep", std::string(64, '[') + std::string(64, ']')},
              {"number", "0"},
              {"same", R"({"a":1,"a":2})"}};
  if (target == "safetensors") {
    result = valid_safetensors();
    for (Malformed& bad : malformed_safetensors()) {
      if (bad.content.size() < 2000) result.push_back({"bad_" + bad.name, std::move(bad.content)});
    }
  }
  if (target == "manifest") {
    result = valid_manifests();
    for (Malformed& bad : malformed_manifests()) result.push_back({"bad_" + bad.name, std::move(bad.content)});
  }
  if (target == "tokenizer") {
    result = valid_tokenizers();
    for (Malformed& bad : malformed_tokenizers()) result.push_back({"bad_" + bad.name, std::move(bad.content)});
  }
  if (target == "token_shard") result = {{"u16", shard(2, 5, {0, 3})}, {"i32", shard(4, 3, {})}};
  if (target == "metrics")
    result = {
        {"one", "{\"step\":1,\"loss\":4.5,\"lr\":0.001,\"tokens\":128}\n"},
        {"evaluated", "{\"step\":10,\"loss\":2.5}\n{\"step\":20,\"loss\":null,\"val_loss\":-1e99}\n{\"step\":30"}};
  if (target == "config")
    result = {
        {"defaults", config_text(GptOptions())},
        {"some", R"({"steps":10,"lr":1e-3,"mesh":"dp=2,tp=2,pp=2","micro-batch":"auto","bias":"on","tied":false})"},
        {"model", R"({"model":"gpt2-124m","width":768,"heads":12,"dropout":0.1,"clip":0,"experts":4,"top-k":2})"}};
  if (target == "command_line")
    result = {
        {"defaults", all_flags()},
        {"run", "--steps\n10\n--lr=1e-3\n--mesh\ndp=2,tp=2,pp=2\n--pipeline\ninterleaved:2\n--layers\n4\n--heads\n4"},
        {"mpirun", "OMPI_COMM_WORLD_SIZE=8\nOMPI_COMM_WORLD_RANK=3\n--mesh\ndp=auto,tp=2\n--ranks=mpi"},
        {"srun", "SLURM_PROCID=1\nSLURM_STEP_NUM_TASKS=4\nSLURM_LOCALID=1\n--dtype=f16\n--loss-scale\n1024"},
        {"help", "--help"}};
  if (target == "mesh")
    result = {{"all", "dp=2,tp=2,pp=2,cp=3,ep=2\ninterleaved:2\n3,3,2"},
              {"auto", "dp=auto,tp=4\nzero-bubble\n8"},
              {"large", "dp=1048576,tp=1048576\ninterleaved:65536\n1,1,2147483647"}};
  return result;
}

std::vector<Malformed> malformed_safetensors() {
  const std::string data(16, '\0');
  const auto one = [&](std::string_view rest) { return safetensors_file(fmt::format("{{{}}}", rest), data); };
  const std::string good = entry("a", "F32", "[4]", "[0,16]");
  const std::string whole = one(good);
  std::string huge = whole, wrapping = whole;
  std::memset(huge.data(), 0x7F, 8);
  std::memset(wrapping.data(), 0xFF, 8);
  std::string nested = "1";
  for (int i = 0; i < 100; ++i) nested = "[" + nested + "]";
  return {
      {"truncated_length", whole.substr(0, 5), "byte 5:", "too short for a header; expected at least 8 bytes"},
      {"truncated_header", whole.substr(0, 30), "byte 0:", "the header claims"},
      {"truncated_data", whole.substr(0, whole.size() - 1), "byte 9:", "has bytes [0, 16) of 15"},
      {"huge_header", huge, "byte 0:", "the header claims 9187201950435737471 bytes; expected at most"},
      {"wrapping_header", wrapping, "byte 0:", "the header claims 18446744073709551615 bytes; expected at most"},
      {"overlap", one(entry("a", "F32", "[3]", "[0,12]") + "," + entry("b", "F32", "[2]", "[8,16]")),
       "byte 63:", "begins at byte 8 of the data; expected 12: an overlap"},
      {"same_range", one(good + "," + entry("b", "F32", "[4]", "[0,16]")), "byte 63:", "an overlap"},
      {"hole_in_front", one(entry("a", "F32", "[2]", "[8,16]")), "byte 9:", "expected 0: a hole"},
      {"hole", one(entry("a", "F32", "[1]", "[0,4]") + "," + entry("b", "F32", "[2]", "[8,16]")), "byte 62:", "a hole"},
      {"trailing_bytes", whole + "xyz", "byte 79:", "3 bytes after the last tensor"},
      {"overflowing_shape", one(entry("a", "F32", "[4294967296,4294967296]", "[0,16]")),
       "byte 9:", "too large to exist"},
      {"shape_wrapping_to_16_bytes", one(entry("a", "F32", "[4611686018427387908]", "[0,16]")),
       "byte 9:", "too large to exist"},
      {"overflow_hidden_by_zero", one(entry("a", "F32", "[4611686018427387904,4611686018427387904,0]", "[0,0]")),
       "byte 9:", "too large to exist"},
      {"negative_extent", one(entry("a", "F32", "[-4]", "[0,16]")), "byte 9:", "malformed shape"},
      {"fractional_extent", one(entry("a", "F32", "[4.0]", "[0,16]")), "byte 9:", "malformed shape"},
      {"too_many_dims", one(entry("a", "F32", "[1,1,1,1,1,1,4]", "[0,16]")), "byte 9:", "expected at most 6"},
      {"shape_and_bytes_differ", one(entry("a", "F32", "[3]", "[0,16]")), "byte 9:", "do not fit F32 [3]; expected 12"},
      {"beyond_file", one(entry("a", "F32", "[5]", "[0,20]")), "byte 9:", "has bytes [0, 20) of 16"},
      {"far_beyond_file", one(entry("a", "F32", "[4]", "[18446744073709551600,18446744073709551615]")),
       "byte 9:", "do not fit"},
      {"offsets_reversed", one(entry("a", "F32", "[4]", "[16,0]")), "byte 9:", "do not fit"},
      {"offsets_not_numbers", one(entry("a", "F32", "[4]", R"(["0","16"])")), "byte 9:", "lacks a valid"},
      {"wrong_dtype", one(entry("a", "F8_E4M3", "[16]", "[0,16]")),
       "byte 9:", "has dtype \"F8_E4M3\"; expected one of"},
      {"dtype_not_text", one(R"("a":{"dtype":7,"shape":[4],"data_offsets":[0,16]})"), "byte 9:", "lacks a valid"},
      {"no_shape", one(R"("a":{"dtype":"F32","data_offsets":[0,16]})"), "byte 9:", "lacks a valid"},
      {"entry_not_object", one(R"("a":[])"), "byte 9:", "lacks a valid"},
      {"duplicate_tensor", one(good + "," + good), "byte 63:", "the key \"a\" occurs twice"},
      {"duplicate_key", one(R"("a":{"dtype":"F32","dtype":"F64","shape":[4],"data_offsets":[0,16]})"),
       "byte 28:", "the key \"dtype\" occurs twice"},
      {"duplicate_metadata", one(R"("__metadata__":{"k":"1","k":"2"},)" + good),
       "byte 33:", "the key \"k\" occurs twice"},
      {"metadata_twice", one(R"("__metadata__":{"k":"1"},"__metadata__":{"l":"2"},)" + good),
       "byte 34:", "the key \"__metadata__\" occurs twice"},
      {"metadata_not_text", one(R"("__metadata__":{"k":1},)" + good),
       "byte 25:", "metadata \"k\" is 1; expected a text"},
      {"deep_nesting", one(R"("a":)" + nested), "byte 76:", "nested deeper than 64 levels"},
      {"name_not_utf8", one(entry("\xFF\xFE", "F32", "[4]", "[0,16]")), "byte 10:", "not valid JSON"},
      {"not_a_number", one(entry("a", "F32", "[NaN]", "[0,16]")), "byte 37:", "not valid JSON"},
      {"number_too_large", one(entry("a", "F32", "[1e999]", "[0,16]")), "byte 41:", "not valid JSON"},
      {"not_an_object", safetensors_file("[1, 2]", data), "byte 8:", "not a JSON object"},
      {"not_json", safetensors_file("{\"a\":", data), "byte 13:", "not valid JSON"},
      {"zero_byte_after_json", safetensors_file("{" + good + "}" + std::string("\0{}", 3), data),
       "byte 63:", "a byte of value 0"},
      {"text_after_json", safetensors_file("{" + good + "} {}", data), "byte 64:", "not valid JSON"},
      {"empty_header", safetensors_file("", data), "byte 8:", "not a JSON object"},
      {"empty_file", "", "byte 0:", "too short for a header"}};
}

std::vector<Malformed> malformed_manifests() {
  const auto changed = [](const auto& change) {
    checkpoint::Manifest manifest = valid_manifest();
    change(manifest);
    return to_text(manifest);
  };
  const auto place = [](const std::string& text) { return fmt::format("byte {}:", text.size()); };
  const std::string misaligned = changed([](auto&m) { m.tensors["s"].pieces[0].offset = 49; }),
                    overlap = changed([](auto&m) { m.tensors["s"].pieces[0].offset = 52; }),
                    last_removed = changed([](auto&m) { m.tensors.erase("y"); });
  return {{"misaligned", misaligned, place(misaligned), "tensor \"x\" begins at byte 52 of b; expected 53"},
          {"same_bytes", overlap, place(overlap), "expected 56, where the one before it ends: an overlap"},
          {"last_tensor_removed", last_removed, place(last_removed), "end at byte 20; expected 1048584, its size"},
          {"in_the_header", changed([](auto& m) { m.tensors["y"].pieces[0].offset = 0; }), "byte ", "in its header"}};
}

std::vector<Malformed> malformed_tokenizers() {
  const std::string head = R"({"format":"trireme-tokenizer","version":1,)";
  return {
      {"not_json", R"({"format": )", "byte 11:", "not valid JSON"},
      {"comment", "/* */" + head + R"("kind":"byte"})", "byte 0:", "not valid JSON"},
      {"not_a_number", head + R"("kind":"byte","x":NaN})", "byte 60:", "not valid JSON"},
      {"duplicate_key", head + R"("kind":"char","kind":"byte"})", "byte 56:", "occurs twice"},
      {"deep_nesting", head + R"("x":)" + std::string(100, '[') + std::string(100, ']') + "}", "byte 109:", "deeper"},
      {"not_utf8", head + "\"kind\":\"\xC0\x80\"}", "byte 50:", "not valid JSON"},
      {"open_string", head + R"("kind":"by)", "byte 49:", "does not end"},
      {"two_values", head + R"("kind":"byte"}{})", "byte 56:", "not valid JSON"},
      {"token_not_text", head + R"("kind":"bpe","tokens":["a",1],"merges":[]})", "byte 69:", "entry 1: expected a"},
      {"foreign_character", head + R"("kind":"bpe","tokens":["a b"],"merges":[]})", "byte 65:", "byte alphabet"},
      {"merge_of_one", head + R"("kind":"bpe","tokens":["a"],"merges":["a"]})", "byte 80:", "expected two tokens"},
      {"merge_unknown", head + R"("kind":"bpe","tokens":["a"],"merges":["a b"]})", "byte 80:", "not in the vocab"},
      {"not_ours", "[1,2]", "byte 0:", "not a tokenizer file"}};
}

}  // namespace trireme::fuzz
