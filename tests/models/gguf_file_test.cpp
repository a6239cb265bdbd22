// Models as GGUF files: every architecture from one mesh onto others with the same weights, storages, and what is
// refused.
#include <doctest/doctest.h>

#include "data/byte_tokenizer.h"
#include "data/char_tokenizer.h"
#include "data/gguf/writer.h"
#include "models/config_difference.h"
#include "models/gguf/architectures.h"
#include "models/gguf/export.h"
#include "models/gguf/model_file.h"
#include "models/gpt.h"
#include "nn/weights.h"
#include "tests/support/elements.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace gguf_file_test {
namespace {

GptConfig llama() {
  GptConfig c = {.layers = 2, .heads = 4, .width = 32, .context = 32, .vocab = 256, .bias = false};
  c.activation = Activation::swiglu;
  c.kv_heads = 2;
  c.ffn_width = 64;
  c.norm = Norm::rms;
  c.norm_eps = 1e-6;
  c.positions = PositionEncoding::rope;
  c.tied = false;
  return c;
}

/// A model of each architecture.
std::vector<std::pair<std::string, GptConfig>> examples() {
  std::vector<std::pair<std::string, GptConfig>> all;
  const auto add = [&](const char* name, const std::function<void(GptConfig&)>& change) {
    all.emplace_back(name, llama());
    change(all.back().second);
  };
  all.emplace_back("gpt2", GptConfig{.layers = 2, .heads = 4, .width = 32, .context = 32, .vocab = 256});
  all.back().second.activation = Activation::gelu_tanh;
  add("llama", [](GptConfig&) {});
  add("llama", [](GptConfig& c) {
    c.tied = true;
    c.head_width = 16;
    c.rope_base = 5e5;
    c.rope_scaling = "llama3:8,8192";
    c.norm_eps = 1e-5;
  });
  add("llama", [](GptConfig& c) { c.rope_scaling = "llama3:4,64,1,2"; });
  add("llama", [](GptConfig& c) { c.rope_scaling = "yarn:2.5,16,0.5,20"; });
  add("llama", [](GptConfig& c) { c.rope_scaling = "linear:3"; });
  add("llama", [](GptConfig& c) {
    c.experts = {.count = 4, .top_k = 2, .norm = nn::RouterNorm::after};
    c.window = 32;
  });
  add("qwen2", [](GptConfig& c) { c.qkv_bias = true; });
  add("qwen3", [](GptConfig& c) { c.qk_norm = true, c.head_width = 12; });
  add("qwen3moe", [](GptConfig& c) {
    c.qk_norm = true;
    c.experts = {.count = 8, .top_k = 3, .norm = nn::RouterNorm::after};
    c.expert_ffn_width = 32;
  });
  const auto make_gemma = [](GptConfig& c) {
    c.activation = Activation::geglu;
    c.zero_centred_norms = c.scaled_embeddings = c.tied = true;
    c.head_width = 16;
  };
  add("gemma", make_gemma);
  add("gemma2", [&](GptConfig& c) {
    make_gemma(c);
    c.post_norms = true;
    c.query_pre_attn_scalar = 16;
    c.window = 8;
    c.full_every = 2;
    c.attention_softcap = 50;
    c.logit_softcap = 30;
  });
  add("gemma3", [&](GptConfig& c) {
    make_gemma(c);
    c.post_norms = c.qk_norm = true;
    c.window = 8;
    c.full_every = 6;
    c.rope_base = 1e6;
    c.window_rope_base = 1e4;
  });
  return all;
}

std::uint64_t write(const fs::path& path, const std::string& mesh_text, const gguf::Exported& exported,
                    DType dtype = DType::f32) {
  std::atomic<std::uint64_t> bytes{0};
  run_mesh(mesh_text, [&](const MeshPtr& mesh) {
    Gpt model(nn::Build(mesh, dtype, 3), exported.config);
    randomise(model.parameters(), 0.25);
    const nn::detail::HeldWeights held = nn::detail::held_weights(model);
    bytes += gguf::write_file(path, exported, held.tensors, *held.group);
  });
  return bytes;
}

/// Calls compare(name, read, expected) with each whole tensor of the model that write() makes.
void compare_read(const fs::path& path, const std::string& mesh_text, const GptConfig& config,
                  const std::function<void(const std::string&, const Tensor&, const Tensor&)>& compare) {
  run_mesh(mesh_text, [&](const MeshPtr& mesh) {
    const gguf::ModelFile file(path);
    Gpt expected(nn::Build(mesh, DType::f32, 3), config), model(nn::Build(mesh, DType::f32, 4), file.config());
    randomise(expected.parameters(), 0.25);
    const nn::detail::HeldWeights held = nn::detail::held_weights(model);
    file.load(held.tensors, *held.group);
    REQUIRE(model.parameters().size() == expected.parameters().size());
    for (std::size_t i = 0; i < model.parameters().size(); ++i) {
      const Parameter &a = *model.parameters()[i], &b = *expected.parameters()[i];
      compare(a.name, whole(a.local, a, *mesh), whole(b.local, b, *mesh));
    }
  });
}

}  // namespace

TEST_CASE("a model of every architecture goes through a GGUF file, from any mesh onto any mesh") {
  const TempFolder folder;
  int number = 0;
  for (const auto& [name, config] : examples()) {
    CAPTURE(name);
    const fs::path path = folder / fmt::format("{}.gguf", number++);
    CHECK(gguf::architecture_of(config).name == name);
    const bool experts = config.experts.count > 0;
    write(path, experts ? "dp=2,tp=2,ep=2" : "tp=2,pp=2", {.config = config});
    const gguf::ModelFile file(path);
    CHECK(gguf::is_file(path));
    CHECK(file.architecture() == name);
    CHECK(file.dtype() == DType::f32);
    CHECK_FALSE(file.has_tokenizer());
    GptConfig expected = config;
    if (config.window == config.context) expected.window.reset();
    for (const ConfigDifference& difference : config_differences(file.config(), expected))
      CHECK_MESSAGE(experts, difference.flag, " ", difference.value, " ", difference.other);
    for (const std::string& mesh : experts ? Meshes{"dp=1", "tp=2", "dp=2,ep=2"} : Meshes{"dp=1", "tp=4", "pp=2"})
      compare_read(path, mesh, config, [&](const std::string& tensor, const Tensor& read, const Tensor& expected) {
        const bool rounded = config.zero_centred_norms && tensor.find("norm") != std::string::npos;
        CHECK_MESSAGE((rounded ? relative_difference(read, expected) < 1e-6 : same_bits(read, expected)), tensor);
      });
  }
}

TEST_CASE("bf16 and f16 files have the bits of a model of that dtype; Q8_0 is within half a percent") {
  const TempFolder folder;
  const GptConfig config = llama();
  for (const auto& [storage, dtype] :
       std::vector<std::pair<GgufStorage, DType>>{{GgufStorage::bf16, DType::bf16}, {GgufStorage::f16, DType::f16}}) {
    const fs::path path = folder / std::string(name(storage));
    write(path, "tp=2", {.config = config, .storage = storage});
    const gguf::ModelFile file(path);
    CHECK(file.dtype() == dtype);
    compare_read(path, "dp=1", config, [&, d = dtype](const std::string& name, const Tensor& a, const Tensor& b) {
      CHECK_MESSAGE(same_bits(a, b.dims() < 2 ? b : cast(cast(b, d), DType::f32)), name);
    });
  }
  const fs::path path = folder / "q.gguf";
  const std::uint64_t bytes = write(path, "dp=1", {.config = config, .storage = GgufStorage::q8_0});
  CHECK(bytes < 1.15 * static_cast<double>(parameter_count(config)) + 8192);
  CHECK(gguf::ModelFile(path).dtype() == DType::f32);
  compare_read(path, "tp=2", config, [](const std::string& name, const Tensor& a, const Tensor& b) {
    CHECK_MESSAGE((b.dims() < 2 ? same_bits(a, b) : relative_difference(a, b) < 0.0065), name);
  });
  GptConfig ragged = config;
  ragged.ffn_width = 40;
  write(path, "dp=1", {.config = ragged, .storage = GgufStorage::q8_0});
  CHECK(GgufFile(path).find("blk.0.ffn_down.weight")->storage == GgufStorage::f16);
  CHECK(GgufFile(path).find("blk.0.ffn_up.weight")->storage == GgufStorage::q8_0);
  CHECK(GgufFile(path).find("blk.0.attn_norm.weight")->storage == GgufStorage::f32);
}

TEST_CASE("tokenizer, end of text and chat template are in the file") {
  const TempFolder folder;
  const fs::path path = folder / "model.gguf";
  const ByteTokenizer bytes;
  write(path, "dp=1", {.config = llama(), .tokenizer = &bytes, .chat_template = "{{ x }}", .name = "small"});
  const gguf::ModelFile file(path);
  CHECK(file.tokenizer()->encode("a\xFF") == bytes.encode("a\xFF"));
  CHECK(file.end_tokens() == std::vector<std::int32_t>{0});
  CHECK(file.chat_template() == "{{ x }}");
  CHECK(GgufFile(path).layout().find("general.name")->text() == "small");
  GptConfig fewer = llama();
  fewer.vocab = 200;
  const CharTokenizer characters({U'a', U'b'});
  CHECK(
      says(error_of([&] { gguf::require_exportable({.config = llama(), .tokenizer = &characters}); }, ExitCode::usage),
           "is of the kind char"));
}

TEST_CASE("a model that llama.cpp does not have is refused with the flags") {
  const auto refused = [](const std::function<void(GptConfig&)>& change) {
    GptConfig c = llama();
    change(c);
    return error_of([&] { gguf::require_exportable({.config = c}); }, ExitCode::usage);
  };
  CHECK(says(refused([](GptConfig& c) { c.window = 5; }),
             "the nearest is llama, which differs in --window 5 (there: auto)"));
  CHECK(says(refused([](GptConfig& c) { c.activation = Activation::relu2; }), "--activation relu2"));
  CHECK(says(refused([](GptConfig& c) { c.rope_interleaved = true; }), "--rope-interleaved on"));
  CHECK(says(refused([](GptConfig& c) { c.experts = {.count = 4, .top_k = 2}; }), "--router-norm before"));
  CHECK(says(refused([](GptConfig& c) {
               c.experts = {.count = 4, .top_k = 2, .norm = nn::RouterNorm::after};
               c.moe_every = 2;
             }),
             "--moe-every 2"));
  CHECK(says(refused([](GptConfig& c) { c.query_pre_attn_scalar = 5; }), "--query-pre-attn-scalar 5"));
}

TEST_CASE("files that do not fit together are refused before anything is loaded") {
  const TempFolder folder;
  const fs::path path = folder / "x.gguf";
  const auto changed = [&](const std::function<void(GgufValues&, std::vector<GgufEntry>&)>& change) {
    write(path, "dp=1", {.config = llama()});
    std::string tensors_text;
    {
      const GgufFile good(path);
      GgufValues values;
      std::vector<GgufEntry> entries;
      for (const auto& [name, stored] : good.layout().tensors) entries.push_back({name, stored.storage, stored.shape});
      change(values, entries);
      for (const auto& [key, value] : good.layout().values)
        if (!values.contains(key)) values.add(key, value);
      GgufWriter writer(folder / "y.gguf", values, entries);
      for (const GgufEntry& entry : entries) writer.write(Tensor::zeros(entry.shape));
      writer.commit();
    }
    return error_of([&] { gguf::ModelFile(folder / "y.gguf"); }, ExitCode::data);
  };
  using Entries = std::vector<GgufEntry>;
  CHECK(says(changed([](GgufValues& v, Entries&) { v.add("general.architecture", "rwkv7"); }),
             "general.architecture is \"rwkv7\"; expected gpt2, llama"));
  CHECK(says(changed([](GgufValues& v, Entries&) { v.add("llama.block_count", std::uint32_t{0}); }),
             "llama.block_count is 0; expected a whole number from 1 to 4096"));
  CHECK(says(changed([](GgufValues& v, Entries&) { v.add("llama.attention.head_count_kv", std::uint32_t{3}); }),
             "llama.attention.head_count_kv is 3; expected a divisor of the 4 heads"));
  CHECK(says(changed([](GgufValues& v, Entries&) { v.add("llama.rope.scaling.type", "longrope"); }),
             "is \"longrope\"; expected none, linear or yarn"));
  CHECK(says(changed([](GgufValues& v, Entries&) { v.add("split.count", std::uint32_t{2}); }), "split.count is 2"));
  CHECK(says(changed([](GgufValues& v, Entries&) { v.add("llama.block_count", std::uint32_t{3}); }),
             "missing: \"blk.2.attn_norm.weight\""));
  CHECK(says(changed([](GgufValues&, Entries& entries) {
               for (GgufEntry& entry : entries)
                 if (entry.name == "blk.1.ffn_up.weight") entry.shape = {65, 32};
               entries.push_back({"extra", GgufStorage::f32, {2}});
             }),
             "of another shape: \"blk.1.ffn_up.weight\" is [65, 32], and [64, 32] in the model"));
  CHECK(says(changed([](GgufValues&, Entries& entries) {
               entries.push_back({gguf::rope_divisors_name, GgufStorage::f32, {4}});
             }),
             "is not the scaling of Llama 3"));
}

}  // namespace gguf_file_test
