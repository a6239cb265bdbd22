#include "tests/fuzz/seeds.h"

#include <fmt/core.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/hash.h"
#include "data/npy.h"
#include "data/npy_layout.h"
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

std::string array_of(DType dtype, const Shape& shape) {
  return npy_layout::header_of(dtype, shape) +
         std::string(static_cast<std::size_t>(shape.count()) * size_of(dtype), '\2');
}

/// A .npy file of version 1.0 with this dictionary.
std::string array_with(std::string_view dictionary, std::string_view data) {
  std::string text("\x93NUMPY\1\0", 8);
  const auto length = static_cast<std::uint16_t>(dictionary.size());
  text.append(reinterpret_cast<const char*>(&length), sizeof length);
  return text + std::string(dictionary) + std::string(data);
}

/// An archive of these files. `change` may alter what the directory says about each, and its bytes.
template <class Change>
std::string archive_of(const std::vector<std::pair<std::string, std::string>>& files, const Change& change) {
  std::string text, directory;
  for (const auto& [name, content] : files) {
    npy_layout::ArchivedFile file{.name = name,
                                  .begin = static_cast<std::uint32_t>(text.size()),
                                  .bytes = static_cast<std::uint32_t>(content.size()),
                                  .crc = crc32(content)};
    text += npy_layout::local_header(file) + content;
    change(file);
    directory += npy_layout::directory_entry(file);
  }
  const auto begin = static_cast<std::uint32_t>(text.size());
  return text + directory + npy_layout::directory_end(files.size(), directory.size(), begin);
}
std::string archive_of(const std::vector<std::pair<std::string, std::string>>& files) {
  return archive_of(files, [](const auto&) {});
}

std::vector<Seed> valid_npy() {
  const std::string wide = array_of(DType::i64, {2, 3});
  std::string second("\x93NUMPY\2\0", 8);
  const auto length = static_cast<std::uint32_t>(wide.find('\n') - 9);
  second.append(reinterpret_cast<const char*>(&length), sizeof length);
  return {{"matrix", array_of(DType::f32, {2, 3})},
          {"scalar", array_of(DType::f64, {})},
          {"vector", array_of(DType::u8, {5})},
          {"empty", array_of(DType::f16, {0, 7})},
          {"second", second + wide.substr(10)},
          {"fortran", array_with("{'descr': '<i4', 'fortran_order': True, 'shape': (1, 2)}", std::string(8, '\3'))}};
}

std::vector<Seed> valid_npz() {
  return {{"two", archive_of({{"a.npy", array_of(DType::f32, {2, 3})}, {"b.npy", array_of(DType::i64, {1})}})},
          {"none", archive_of({})}};
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

namespace {

/// config.json of each architecture, an index, adapters, and some with a part that is refused.
std::vector<Seed> model_configs() {
  constexpr const char* sizes =
      R"("vocab_size":61,"hidden_size":16,"intermediate_size":24,"num_hidden_layers":4,"num_attention_heads":4,)"
      R"("num_key_value_heads":2,"head_dim":4,"max_position_embeddings":32,"rms_norm_eps":1e-6,"rope_theta":5e5)";
  std::vector<Seed> seeds = {
      {"gpt2",
       R"({"model_type":"gpt2","vocab_size":61,"n_embd":16,"n_layer":2,"n_head":4,"n_positions":32,"n_inner":null,)"
       R"("activation_function":"gelu_new","layer_norm_epsilon":1e-5,"eos_token_id":50256})"},
      {"index",
       R"({"metadata":{"total_size":12},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"m.safetensors"}})"},
      {"index_out", R"({"weight_map":{"a":"../m.safetensors"}})"},
      {"adapter", R"({"peft_type":"LORA","r":3,"lora_alpha":5,"lora_dropout":0.1,"use_rslora":true,"bias":"none",)"
                  R"("rank_pattern":{},"loftq_config":{},"init_lora_weights":"gaussian","target_modules":["q_proj"]})"},
      {"adapter_infinite", R"({"peft_type":"LORA","r":9,"lora_alpha":1e308,"use_rslora":true})"},
      {"adapter_dora", R"({"peft_type":"LORA","r":3,"lora_alpha":5,"use_dora":true})"}};
  const auto add = [&](const char* name, const char* type, const char* more) {
    seeds.push_back({name, fmt::format(R"({{"model_type":"{}",{}{}}})", type, sizes, more)});
  };
  add("llama", "llama",
      R"(,"rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
      R"("original_max_position_embeddings":8},"eos_token_id":[1,2],"tie_word_embeddings":true)");
  add("yarn", "llama", R"(,"rope_parameters":{"rope_type":"yarn","factor":4,"rope_theta":1e4,"beta_fast":32})");
  add("unknown", "llama", R"(,"clip_qkv":8)");
  add("mistral", "mistral", R"(,"sliding_window":5)");
  add("qwen2", "qwen2", R"(,"use_sliding_window":true,"sliding_window":5,"max_window_layers":0)");
  add("qwen3", "qwen3",
      R"(,"use_sliding_window":true,"sliding_window":5,"layer_types":["sliding_attention","full_attention",)"
      R"("sliding_attention","full_attention"])");
  add("mixtral", "mixtral", R"(,"num_local_experts":4,"num_experts_per_tok":2)");
  add("qwen3_moe", "qwen3_moe", R"(,"moe_intermediate_size":8,"num_experts":4,"num_experts_per_tok":3)");
  add("gemma2", "gemma2", R"(,"query_pre_attn_scalar":7,"final_logit_softcapping":null,"sliding_window":5)");
  add("gemma3", "gemma3_text",
      R"(,"sliding_window":5,"rope_parameters":{"full_attention":{"rope_type":"linear","factor":8.0},)"
      R"("sliding_attention":{"rope_theta":10000.0}})");
  return seeds;
}

}  // namespace

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
  if (target == "npy") {
    result = valid_npy();
    for (Malformed& bad : malformed_npy()) result.push_back({"bad_" + bad.name, std::move(bad.content)});
  }
  if (target == "npz") {
    result = valid_npz();
    for (Malformed& bad : malformed_npz()) result.push_back({"bad_" + bad.name, std::move(bad.content)});
  }
  if (target == "tokenizer" || target == "hugging_face" || target == "tiktoken" || target == "sentencepiece" ||
      target == "regex")
    result = tokenizer_seeds(target);
  if (target == "gguf") result = gguf_seeds();
  if (target == "chat_template" || target == "json_lines") result = chat_seeds(target);
  if (target == "token_shard") result = {{"u16", shard(2, 5, {0, 3})}, {"i32", shard(4, 3, {})}};
  if (target == "metrics")
    result = {
        {"one", "{\"step\":1,\"loss\":4.5,\"lr\":0.001,\"tokens\":128}\n"},
        {"evaluated", "{\"step\":10,\"loss\":2.5}\n{\"step\":20,\"loss\":null,\"val_loss\":-1e99}\n{\"step\":30"}};
  if (target == "trace")
    result = {
        {"wait",
         R"({"otherData":{"mesh":"dp=2","pipeline":"1f1b","micro-batches":2,"device":"cpu"},"parameters":[[{"name":"w",)"
         R"("pp":0,"shape":[2,3],"tp":"I","ep":"R","edp":"R"}]],"traceEvents":[)"
         R"({"name":"step 1","cat":"step","ph":"X","pid":0,"tid":0,"ts":0,"dur":100},)"
         R"({"name":"forward stage 0 micro-batch 0","cat":"pipeline","ph":"X","pid":0,"tid":0,"ts":1,"dur":9},)"
         R"({"name":"wait","cat":"collective","ph":"X","pid":0,"tid":0,"ts":20,"dur":60},)"
         R"({"name":"sum","cat":"collective","ph":"X","pid":0,"tid":0,"ts":21,"dur":58,"args":{"group":"dp","bytes":8,"number":1}},)"
         R"({"name":"memory","ph":"C","pid":0,"ts":30,"args":{"activations":64}},)"
         R"({"name":"step 1","cat":"step","ph":"X","pid":1,"tid":0,"ts":1,"dur":98},)"
         R"({"name":"sum","cat":"collective","ph":"X","pid":1,"tid":1,"ts":50,"dur":29,"args":{"group":"dp","bytes":8,"number":1}}]})"},
        {"message",
         R"({"otherData":{"mesh":"pp=2"},"traceEvents":[{"name":"step 1","cat":"step","ph":"X","pid":0,"ts":0,"dur":9},)"
         R"({"name":"step 1","cat":"step","ph":"X","pid":1,"ts":0,"dur":9},)"
         R"({"name":"send","cat":"message","ph":"X","pid":0,"ts":3,"dur":1,"args":{"group":"pp","peer":1,"tag":2,"bytes":4}},)"
         R"({"name":"recv","cat":"message","ph":"X","pid":1,"tid":0,"ts":1,"dur":4,"args":{"group":"pp","peer":0,"tag":2}}]})"}};
  if (target == "model_config") result = model_configs();
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
        {"scaling", "--positions=rope\n--rope-scaling\nllama3:8,8192,1,4\n--rope-base\n5e5\n--window\n8"},
        {"help", "--help"}};
  if (target == "records" || target == "compressed" || target == "prepare_state" || target == "mixture" ||
      target == "llmc")
    result = prepare_seeds(target);
  if (target == "links")
    result = {{"fat_tree", R"({"ranks_per_node":4,"within":{"latency_us":5,"gb_per_s":10},
                        "between":{"latency_us":100,"gb_per_s":1},"oversubscription":2})"},
              {"rail", R"({"ranks_per_node":8,"within":{"latency_us":0,"gb_per_s":1e9},
                    "between":{"latency_us":1e3,"gb_per_s":0.01},"topology":"rail"})"},
              {"torus", R"({"ranks_per_node":1,"within":{"latency_us":1,"gb_per_s":1},
                     "between":{"latency_us":2,"gb_per_s":3},"topology":"torus","torus":[4,3,2]})"}};
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
      {"truncated_data", whole.substr(0, whole.size() - 1),
       "byte 9:", "has bytes [0, 16) of the data, of which the file has 15"},
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
      {"beyond_file", one(entry("a", "F32", "[5]", "[0,20]")), "byte 9:", "of the data, of which the file has 16"},
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

std::vector<Malformed> malformed_npy() {
  const std::string data(16, '\0'), good = array_of(DType::f32, {4});
  const auto with = [&](std::string_view dictionary) { return array_with(dictionary, data); };
  const auto shape = [&](std::string_view text) {
    return with(fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': {}}}", text));
  };
  const auto dtype = [&](std::string_view text) {
    return with(fmt::format("{{'descr': {}, 'fortran_order': False, 'shape': (4,)}}", text));
  };
  std::string huge = good, version = good;
  huge[8] = huge[9] = '\xFF';
  version[6] = '\x09';
  return {
      {"empty", "", "byte 0:", "not an array of NumPy"},
      {"other_magic", "PK\3\4 and more", "byte 0:", "not an array of NumPy"},
      {"version", version, "byte 6:", "version 9.0 of the format"},
      {"length_cut", std::string("\x93NUMPY\2\0\1\1", 10), "byte 10:", "inside the header's length"},
      {"huge_header", huge, "byte 8:", "the header claims 65535 bytes; expected at most"},
      {"too_short", good.substr(0, good.size() - 1), "byte 128:", "15 bytes of elements; expected 16 for f32 [4]"},
      {"too_long", good + "x", "byte 128:", "17 bytes of elements; expected 16"},
      {"big_endian", dtype("'>f4'"), "byte 20:", "dtype \">f4\"; expected one of"},
      {"complex", dtype("'<c8'"), "byte 20:", "dtype \"<c8\"; expected one of"},
      {"objects", dtype("'|O'"), "byte 20:", "dtype \"|O\"; expected one of"},
      {"structured", dtype("[('x', '<f4')]"), "byte 20:", "a structured array"},
      {"no_tuple", shape("(4)"), "byte 62:", "the shape is no tuple"},
      {"list", shape("[4]"), "byte 60:", "expected '('"},
      {"negative", shape("(-4,)"), "byte 61:", "the shape is malformed"},
      {"fraction", shape("(4.0,)"), "byte 62:", "the shape is no tuple"},
      {"too_many_dims", shape("(1,1,1,1,1,1,4)"), "byte 61:", "more than 6 dims"},
      {"overflow", shape("(4294967296, 4294967296)"), "byte 61:", "too large to exist"},
      {"wrapping", shape("(18446744073709551620,)"), "byte 61:", "more than 2^48"},
      {"overflow_hidden_by_zero", shape("(281474976710656, 281474976710656, 0)"), "byte 61:", "too large to exist"},
      {"not_a_boolean", with("{'descr': '<f4', 'fortran_order': 1, 'shape': (4,)}"), "byte 44:", "neither True nor"},
      {"twice", with("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (4,)}"),
       "byte 27:", "occurs twice"},
      {"unknown_key", with("{'dtype': '<f4'}"), "byte 11:", "the key \"dtype\" is unknown"},
      {"no_shape", with("{'descr': '<f4', 'fortran_order': False}"), "byte 10:", "lacks descr"},
      {"open_text", with("{'descr"), "byte 11:", "does not end"},
      {"after", with("{'descr': '<f4', 'fortran_order': False, 'shape': (4,)} + evil()"), "byte 66:", "text after"},
      {"no_dictionary", with("evil()"), "byte 10:", "expected '{'"}};
}

std::vector<Malformed> malformed_npz() {
  const std::string array = array_of(DType::f32, {4});
  const std::vector<std::pair<std::string, std::string>> files = {{"a.npy", array}, {"b.npy", array}};
  const std::string good = archive_of(files);
  const std::size_t directory = 2 * (npy_layout::local_bytes + 5 + array.size());
  const auto at_directory = [&](std::size_t offset, char value) {
    std::string text = good;
    text[directory + offset] = value;
    return text;
  };
  const auto changed = [&](const auto& change) { return archive_of(files, change); };
  const std::string here = fmt::format("byte {}:", directory), end = fmt::format("byte {}:", good.size() - 22);
  std::string damaged = good, parts = good, outside = good;
  damaged[100] ^= 1;
  parts[good.size() - 18] = 1;
  outside[good.size() - 6] ^= 1;
  return {
      {"empty", "", "byte 0:", "no end of a ZIP archive"},
      {"cut", good.substr(0, good.size() - 1), fmt::format("byte {}:", good.size() - 1), "no end of a ZIP archive"},
      {"after", good + "x", fmt::format("byte {}:", good.size() + 1), "no end of a ZIP archive"},
      {"parts", parts, end, "an archive of several parts"},
      {"directory_elsewhere", outside, end, "the directory is said to be"},
      {"not_an_entry", at_directory(0, 'X'), here, "not an entry of a ZIP directory"},
      {"encrypted", at_directory(8, 1), here, "\"a.npy\" is encrypted"},
      {"compressed", at_directory(10, 8), here, "is compressed (method 8)"},
      {"two_sizes", at_directory(20, 1), here, "has two sizes"},
      {"long_name", at_directory(29, 1), here, "reaches beyond its end"},
      {"not_an_array", archive_of({{"a.txt", array}}), "byte ", "names in UTF-8 that end in .npy"},
      {"twice", archive_of({{"a.npy", array}, {"a.npy", array}}), "byte ", "two files \"a.npy\"; expected one"},
      {"begins_elsewhere", changed([](auto& file) { file.begin += 4; }), here, "said to begin at byte 4"},
      {"begins_outside", changed([](auto& file) { file.begin = 1 << 30; }), here, "said to begin at byte 1073741824"},
      {"too_large", changed([](auto& file) { file.bytes = 1 << 30; }), here, "1073741824 bytes from byte 35"},
      {"size_missing", changed([](auto& file) { file.bytes = 0xFFFFFFFF; }), here, "a size that is missing"},
      {"overlap", changed([](auto& file) { file.begin = 0; }), "byte 0:", "a file overlaps"},
      {"same_bytes", changed([](auto& file) { file.bytes += 8; }), "byte 0:", "a file overlaps"},
      {"damaged", damaged, "byte 35:", "\"a\" is damaged: its checksum is"},
      {"no_array_inside", archive_of({{"a.npy", "text"}}), "byte 35:", "not an array of NumPy"}};
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

}  // namespace trireme::fuzz
