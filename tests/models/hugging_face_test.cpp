// Folders in Hugging Face's layout: config.json, the index, and how they are refused; maps of weights.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <numeric>

#include "models/hugging_face/export.h"
#include "models/hugging_face/folder.h"
#include "tests/support/elements.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/hugging_face.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;
using nlohmann::json;
namespace fs = std::filesystem;

namespace hugging_face_test {
namespace {

/// A Llama with these changes; null removes a field.
std::string llama_text(const json& changes = {}) {
  json config = {{"model_type", "llama"},       {"vocab_size", 61},
                 {"hidden_size", 16},           {"intermediate_size", 24},
                 {"num_hidden_layers", 4},      {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},    {"max_position_embeddings", 32},
                 {"rms_norm_eps", 1e-6},        {"tie_word_embeddings", false},
                 {"torch_dtype", "float32"},    {"architectures", {"LlamaForCausalLM"}},
                 {"eos_token_id", {2, 3}},      {"attention_bias", false},
                 {"hidden_act", "silu"},        {"initializer_range", 0.02},
                 {"transformers_version", "5"}, {"rope_theta", 500000.0}};
  for (const auto& [key, value] : changes.items()) {
    if (value.is_null())
      config.erase(key);
    else
      config[key] = value;
  }
  return config.dump();
}

GptConfig parsed(const json& changes) { return hugging_face::parse_config(llama_text(changes), "config.json").gpt; }

std::string refusal(const json& changes) {
  return error_of([&] { parsed(changes); }, ExitCode::data);
}

GptConfig small_llama() {
  GptConfig c = parsed(json::object());
  c.layers = 2;
  return c;
}

/// A model of each architecture.
std::vector<std::pair<std::string, GptConfig>> examples() {
  std::vector<std::pair<std::string, GptConfig>> all;
  const GptConfig llama = small_llama();
  const auto add = [&](const char* type, const std::function<void(GptConfig&)>& change) {
    all.emplace_back(type, llama);
    change(all.back().second);
  };
  all.emplace_back("gpt2", GptConfig{.layers = 2, .heads = 4, .width = 16, .context = 32, .vocab = 61});
  all.emplace_back("gpt2", GptConfig{.layers = 2, .heads = 4, .width = 16, .context = 32, .vocab = 61, .tied = false});
  add("llama", [](GptConfig&) {});
  add("llama", [](GptConfig& c) {
    c.tied = true;
    c.head_width = 6;
    c.rope_scaling = "llama3:8,16,1,4";
    c.activation = Activation::geglu;
  });
  add("llama", [](GptConfig& c) { c.rope_scaling = "yarn:2.5,16,0.5,20"; });
  add("llama", [](GptConfig& c) { c.rope_scaling = "linear:3"; });
  add("mistral", [](GptConfig& c) { c.window = 5; });
  add("qwen2", [](GptConfig& c) { c.qkv_bias = true; });
  add("qwen2", [](GptConfig& c) {
    c.qkv_bias = true;
    c.window = 5;
    c.window_every = 2;
  });
  add("qwen3", [](GptConfig& c) { c.qk_norm = true; });
  add("qwen3", [](GptConfig& c) {
    c.qk_norm = true;
    c.layers = 4;
    c.window = 5;
    c.full_every = 3;
  });
  add("mixtral", [](GptConfig& c) {
    c.experts.count = 4;
    c.experts.norm = nn::RouterNorm::after;
    c.window = 6;
  });
  add("qwen3_moe", [](GptConfig& c) {
    c.qk_norm = true;
    c.experts.count = 4;
    c.experts.top_k = 3;
    c.expert_ffn_width = 8;
    c.moe_every = 2;
  });
  const auto gemma = [](GptConfig& c) {
    c.activation = Activation::geglu;
    c.tied = c.zero_centred_norms = c.scaled_embeddings = true;
  };
  add("gemma", gemma);
  const auto gemma2 = [=](GptConfig& c) {
    gemma(c);
    c.post_norms = true;
    c.head_width = 8;
    c.window = 5;
    c.full_every = 2;
  };
  add("gemma2", [=](GptConfig& c) {
    gemma2(c);
    c.query_pre_attn_scalar = 7;
    c.attention_softcap = 50;
    c.logit_softcap = 30;
  });
  add("gemma3_text", [=](GptConfig& c) {
    gemma2(c);
    c.qk_norm = true;
    c.window_rope_base = 10000;
    c.rope_scaling = "linear:8";
  });
  return all;
}

}  // namespace

TEST_CASE("config.json is written and read back, and names the architecture") {
  for (const auto& [type, config] : examples()) {
    INFO(type);
    CHECK(hugging_face::model_type_of(config) == type);
    const std::string text = hugging_face::config_text(config, DType::bf16, {.ends = {7}});
    const hugging_face::ModelConfig back = hugging_face::parse_config(text, "config.json");
    CHECK(back.model_type == type);
    CHECK(back.end_tokens == std::vector<std::int32_t>{7});
    CHECK(hugging_face::config_text(back.gpt, DType::bf16, {.ends = {7}}) == text);
    CHECK(back.gpt.context == config.context);
    CHECK(text.find("\"query_pre_attn_scalar\": 7.") == std::string::npos);  // transformers takes whole numbers only
  }
}

TEST_CASE("fields of config.json become choices of the model") {
  const GptConfig c = parsed(json::object());
  CHECK(c.layers == 4);
  CHECK(c.rope_base == 500000);
  CHECK(c.norm == Norm::rms);
  CHECK_FALSE(c.bias);
  CHECK_FALSE(c.tied);
  CHECK(c.rope_scaling == "none");
  const json scaling = {{"type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 8192}};
  CHECK(parsed({{"rope_scaling", scaling}}).rope_scaling == "llama3:8,8192");
  CHECK(parsed({{"rope_theta", nullptr}, {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e6}}}})
            .rope_base == 1e6);
  CHECK(parsed({{"rope_theta", nullptr}}).rope_base == 10000);
  CHECK(parsed({{"head_dim", 10}}).head_features() == 10);
  CHECK(parsed({{"model_type", "mistral"}, {"attention_bias", nullptr}, {"sliding_window", 6}}).window == 6);
  const json qwen = {{"model_type", "qwen3"}, {"head_dim", 4}, {"use_sliding_window", true}, {"sliding_window", 6}};
  json alternating = qwen, late = qwen;
  alternating["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention", "full_attention"};
  CHECK(parsed(alternating).full_every == 2);
  late["max_window_layers"] = 2;
  CHECK(says(refusal(late), "max_window_layers is 2; expected a window in every layer"));
}

TEST_CASE("what would change the numbers and is not known is refused by name") {
  CHECK(says(refusal({{"model_type", "phi3"}}), "model_type is \"phi3\"; expected one of gpt2, llama, mistral"));
  CHECK(says(refusal({{"model_type", nullptr}}), "model_type is missing"));
  CHECK(says(refusal({{"clip_qkv", 8}}), "the field \"clip_qkv\" is 8, and this program does not know it"));
  CHECK(says(refusal({{"hidden_size", nullptr}}), "hidden_size is missing; expected a whole number"));
  CHECK(says(refusal({{"hidden_size", 0}}), "hidden_size is 0; expected a whole number from 1"));
  CHECK(says(refusal({{"hidden_size", "16"}}), "hidden_size is \"16\""));
  CHECK(says(refusal({{"num_hidden_layers", 100000}}), "num_hidden_layers is 100000"));
  CHECK(says(refusal({{"num_key_value_heads", 3}}), "a divisor of num_attention_heads, 4"));
  CHECK(says(refusal({{"hidden_size", 18}}), "a divisor of hidden_size, 18"));
  CHECK(says(refusal({{"head_dim", 5}}), "head_dim is 5; expected heads of an even width"));
  CHECK(says(refusal({{"attention_bias", true}}), "attention_bias is true; expected false, the only value"));
  CHECK(says(refusal({{"hidden_act", "relu"}}), "hidden_act is \"relu\"; expected silu or gelu_pytorch_tanh"));
  CHECK(says(refusal({{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}}), "rope_scaling.type is \"dynamic\""));
  CHECK(says(refusal({{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}, {"odd", 1}}}}), "rope_scaling.\"odd\""));
  CHECK(says(refusal({{"rope_scaling", {{"rope_type", "linear"}, {"factor", 0.5}}}}), "rope_scaling.factor is 0.5"));
  CHECK(says(refusal({{"partial_rotary_factor", 0.5}}), "partial_rotary_factor is 0.5"));
  CHECK(
      says(refusal({{"quantization_config", {{"bits", 4}}}}), "quantization_config is {\"bits\":4}; expected weights"));
  CHECK(says(refusal({{"eos_token_id", "x"}}), "eos_token_id is \"x\"; expected a token's id"));
  CHECK(says(error_of([] { hugging_face::parse_config("[1]", "config.json"); }, ExitCode::data), "expected an object"));
  CHECK(parsed({{"temperature", 0.6}, {"use_cache", true}}).layers == 4);  // harmless
}

TEST_CASE("a model that no architecture has is refused with the flags that are too many") {
  GptConfig c = small_llama();
  c.logit_softcap = 3;
  c.rope_interleaved = true;
  const std::string message = error_of([&] { hugging_face::model_type_of(c); }, ExitCode::usage);
  CHECK(says(message, "--logit-softcap 3"));
  CHECK(says(message, "--rope-interleaved on"));
  GptConfig no_bias{.bias = false};
  CHECK(says(error_of([&] { hugging_face::model_type_of(no_bias); }, ExitCode::usage), "--bias off"));
}

TEST_CASE("the map of every architecture names all weights of its model") {
  for (const auto& [type, config] : examples()) {
    INFO(type);
    const WeightMap map = hugging_face_map(config);
    run_mesh("dp=1", [&](const MeshPtr& mesh) {
      const Gpt model(nn::Build(mesh, DType::f32, 1), config);
      CHECK(map.size() == model.parameters().size());
      std::map<std::string, Shape> shapes;
      for (const WeightEntry& entry : map) shapes[entry.name] = entry.shape;
      for (const ParameterPtr& p : model.parameters()) {
        REQUIRE_MESSAGE(shapes.contains(p->name), p->name);
        CHECK(shapes[p->name] == p->global_shape.with(0, p->logical_rows));
      }
    });
  }
}

namespace {

/// A folder with new weights.
void write_model(const fs::path& folder, const GptConfig& config, const std::string& mesh_text = "dp=1",
                 std::uint64_t shard_bytes = 1 << 30, DType dtype = DType::f32) {
  run_mesh(mesh_text, [&](const MeshPtr& mesh) {
    Gpt model(nn::Build(mesh, dtype, 3), config);
    randomise(model.parameters(), 0.1);
    hugging_face::write_folder(folder, {.config = config, .dtype = dtype, .shard_bytes = shard_bytes},
                               nn::detail::held_weights(model).tensors, mesh->world());
  });
}

std::string refused(const fs::path& folder) {
  return error_of([&] { const hugging_face::Folder opened(folder); }, ExitCode::data);
}

void change_config(const fs::path& folder, const json& changes) {
  json config = json::parse(content_of(folder / "config.json"));
  config.update(changes);
  write_plainly(folder / "config.json", config.dump());
}

}  // namespace

TEST_CASE("a folder that is written on a mesh has the same files as one rank's, and any mesh loads it") {
  for (const auto& [type, config] : examples()) {
    INFO(type);
    const TempFolder place;
    write_model(place / "one", config, "dp=1", 4000);
    write_model(place / "many", config, "dp=2,tp=2,pp=2", 4000);
    std::size_t files = 0;
    for (const auto& entry : fs::directory_iterator(place / "one")) {
      CHECK(content_of(entry.path()) == content_of(place / "many" / entry.path().filename().string()));
      ++files;
    }
    CHECK(files > 4);  // several shards
    const hugging_face::Folder folder(place / "one");
    const WeightMap map = hugging_face_map(config);
    std::map<std::string, Tensor> one;
    for (const std::string& mesh_text : Meshes{"dp=1", "tp=2", "pp=2,dp=2"})
      run_mesh(mesh_text, [&](const MeshPtr& mesh) {
        Gpt model(nn::Build(mesh, DType::f32, 9), folder.config());
        folder.load(nn::detail::held_weights(model).tensors, mesh->world());
        const auto all = their_values(nn::detail::held_weights(model).tensors, map, mesh->world());
        if (mesh->rank() != 0) return;
        if (one.empty()) one = all;
        CHECK(all.size() == one.size());
        for (const auto& [name, tensor] : all) CHECK(values(tensor) == values(one.at(name)));
      });
  }
}

TEST_CASE("16-bit weights stay as they are, and are converted when they are asked for in another dtype") {
  const TempFolder place;
  const GptConfig config = small_llama();
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const std::string name(trireme::name(dtype));
    write_model(place / name, config, "dp=1", 1 << 30, dtype);
    const hugging_face::Folder folder(place / name);
    CHECK(folder.dtype() == dtype);
    run_mesh("tp=2", [&](const MeshPtr& mesh) {
      Gpt same(nn::Build(mesh, dtype, 1), config), wide(nn::Build(mesh, DType::f32, 1), config);
      folder.load(nn::detail::held_weights(same).tensors, mesh->world());
      folder.load(nn::detail::held_weights(wide).tensors, mesh->world());
      for (std::size_t i = 0; i < same.parameters().size(); ++i) {
        const std::int64_t rows = nn::detail::held_weights(same).tensors[i].value.size(0);
        CHECK(values(view::slice(same.parameters()[i]->local, 0, 0, rows)) ==
              values(view::slice(wide.parameters()[i]->local, 0, 0, rows)));
      }
      const auto again = place / fmt::format("{} again", name);
      hugging_face::write_folder(again, {.config = config, .dtype = dtype}, nn::detail::held_weights(same).tensors,
                                 mesh->world());
    });
    CHECK(content_of(place / name / "model.safetensors") ==
          content_of(place / fmt::format("{} again", name) / "model.safetensors"));
  }
}

TEST_CASE("tensors that do not fit are all listed") {
  const TempFolder place;
  write_model(place / "m", small_llama());
  change_config(place / "m", {{"num_hidden_layers", 3}, {"intermediate_size", 28}, {"tie_word_embeddings", false}});
  const std::string message = refused(place / "m");
  for (const char* part :
       {"\"model.layers.2.mlp.gate_proj.weight\"", "\"model.layers.2.input_layernorm.weight\"",
        "; of another shape: ", "\"model.layers.0.mlp.up_proj.weight\" is [24, 16], and [28, 16] in the model",
        "\"model.layers.1.mlp.down_proj.weight\" is [16, 24], and [16, 28] in the model", "nothing was loaded"})
    CHECK(says(message, part));
  change_config(place / "m", {{"num_hidden_layers", 1}, {"intermediate_size", 24}});
  CHECK(says(refused(place / "m"), "; not used by the model: \"model.layers.1.input_layernorm.weight\", "));
  change_config(place / "m", {{"num_hidden_layers", 4000}});
  CHECK(says(refused(place / "m"), "describes 4000 blocks, and the files hold 21 tensors"));
}

TEST_CASE("a folder with the names of a base model, and older buffers, is read") {
  const TempFolder place;
  GptConfig config = small_llama();
  config.tied = true;
  write_model(place / "m", config);
  const SafetensorsFile file(place / "m" / "model.safetensors");
  fs::create_directory(place / "base");
  write_plainly(place / "base" / "config.json", content_of(place / "m" / "config.json"));
  std::vector<SafetensorsEntry> entries;
  for (const std::string& name : file.names()) entries.push_back({name.substr(6), file.dtype(name), file.shape(name)});
  entries.push_back({"layers.0.self_attn.rotary_emb.inv_freq", DType::f32, {2}});
  SafetensorsWriter writer(place / "base" / "model.safetensors", entries, {});
  for (const std::string& name : file.names()) writer.write(file.read(name));
  writer.write(Tensor::zeros({2}));
  writer.commit();
  const hugging_face::Folder base(place / "base"), whole(place / "m");
  run_mesh("dp=1", [&](const MeshPtr& mesh) {
    Gpt a(nn::Build(mesh, DType::f32, 1), config), b(nn::Build(mesh, DType::f32, 2), config);
    base.load(nn::detail::held_weights(a).tensors, mesh->world());
    whole.load(nn::detail::held_weights(b).tensors, mesh->world());
    for (std::size_t i = 1; i < a.parameters().size(); ++i)
      CHECK(values(a.parameters()[i]->local) == values(b.parameters()[i]->local));
  });
}

TEST_CASE("a tied model may have its head twice in the files, but not another one") {
  const TempFolder place;
  write_model(place / "m", small_llama());  // with a head of its own
  change_config(place / "m", {{"tie_word_embeddings", true}});
  const auto loaded = [&] {
    return caught([&] {
      const hugging_face::Folder folder(place / "m");
      run_mesh("dp=2", [&](const MeshPtr& mesh) {
        Gpt model(nn::Build(mesh, DType::f32, 1), folder.config());
        folder.load(nn::detail::held_weights(model).tensors, mesh->world());
      });
    });
  };
  const Caught other = loaded();
  CHECK(other.code == ExitCode::data);
  CHECK(other.has("lm_head.weight is not the same as model.embed_tokens.weight"));
  const SafetensorsFile file(place / "m" / "model.safetensors");
  std::vector<SafetensorsEntry> entries;
  for (const std::string& name : file.names()) entries.push_back({name, file.dtype(name), file.shape(name)});
  std::vector<Tensor> tensors;
  for (const std::string& name : file.names())
    tensors.push_back(file.read(name == "lm_head.weight" ? "model.embed_tokens.weight" : name));
  SafetensorsWriter writer(place / "m" / "model.safetensors", entries, {});
  for (const Tensor& tensor : tensors) writer.write(tensor);
  writer.commit();
  CHECK(loaded().message.empty());
}

TEST_CASE("damaged folders are refused with what is wrong") {
  const TempFolder place;
  const fs::path folder = place / "m";
  write_model(folder, small_llama(), "dp=1", 6000);
  const std::string index = content_of(folder / "model.safetensors.index.json");
  REQUIRE(!index.empty());
  std::vector<fs::path> shards;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") shards.push_back(entry.path());
  std::sort(shards.begin(), shards.end());
  REQUIRE(shards.size() > 2);

  const std::string whole = content_of(shards[1]);
  write_plainly(shards[1], whole.substr(0, whole.size() - 8));
  CHECK(says(refused(folder), shards[1].filename().string()));
  fs::remove(shards[1]);
  fs::remove(shards[2]);
  CHECK(says(refused(folder), fmt::format(R"(names files that are not there: "{}", "{}")",
                                          shards[1].filename().string(), shards[2].filename().string())));
  write_plainly(shards[1], whole);
  write_plainly(shards[2], whole);
  CHECK(says(refused(folder), "is in two files"));

  const auto with_index = [&](const std::string& text) {
    write_plainly(folder / "model.safetensors.index.json", text);
    return refused(folder);
  };
  CHECK(says(with_index(R"({"weight_map": {"a": "../model.safetensors"}})"), "expected a name without folders"));
  CHECK(says(with_index(R"({"weight_map": {"a": 1}})"), "the file of \"a\" is 1"));
  CHECK(says(with_index(R"({"metadata": {}})"), "weight_map is missing"));
  CHECK(says(with_index(fmt::format(R"({{"weight_map": {{"a": "{}"}}}})", shards[0].filename().string())),
             "tensors are not in the files that it names: \"a\""));
  fs::remove(folder / "model.safetensors.index.json");
  CHECK(says(refused(folder), "has neither model.safetensors nor model.safetensors.index.json"));
  CHECK_FALSE(hugging_face::is_folder(place / "none"));
  CHECK(hugging_face::is_folder(folder));
  CHECK(says(error_of([&] { hugging_face::Folder(place / "none"); }, ExitCode::usage), "has no config.json"));
}

TEST_CASE("a tokenizer with more tokens than the model is refused; texts are copied from another folder") {
  const TempFolder place;
  const GptConfig config = small_llama();
  write_model(place / "m", config);
  CHECK(says(error_of([&] { hugging_face::Folder(place / "m").tokenizer(); }, ExitCode::usage), "has no tokenizer"));
  const std::shared_ptr<const Tokenizer> bytes = make_tokenizer("byte", {});
  CHECK(says(error_of([&] { hugging_face::require_vocabulary(*bytes, config, "t.json"); }, ExitCode::data),
             "t.json: the tokenizer has 256 tokens, and the model vectors for 61"));
  write_plainly(place / "m" / "tokenizer_config.json", R"({"chat_template": "x"})");
  write_plainly(place / "m" / "generation_config.json", R"({"eos_token_id": [5, 6]})");
  CHECK(hugging_face::Folder(place / "m").end_tokens() == std::vector<std::int32_t>{5, 6});
  run_mesh("dp=1", [&](const MeshPtr& mesh) {
    Gpt model(nn::Build(mesh, DType::f32, 3), config);
    hugging_face::write_folder(place / "copy", {.config = config, .texts_from = place / "m"},
                               nn::detail::held_weights(model).tensors, mesh->world());
  });
  CHECK(content_of(place / "copy" / "tokenizer_config.json") == R"({"chat_template": "x"})");
  run_mesh("dp=1", [&](const MeshPtr& mesh) {  // as after a fine-tuning that added the end of a turn
    Gpt model(nn::Build(mesh, DType::f32, 3), config);
    hugging_face::write_folder(place / "tuned", {.config = config, .end_tokens = {5, 6, 7}, .texts_from = place / "m"},
                               nn::detail::held_weights(model).tensors, mesh->world());
  });
  CHECK(hugging_face::Folder(place / "tuned").end_tokens() == std::vector<std::int32_t>{5, 6, 7});
  write_plainly(place / "m" / "generation_config.json", R"({"eos_token_id": 61})");
  CHECK(says(error_of([&] { hugging_face::Folder(place / "m"); }, ExitCode::data), "eos_token_id has 61"));
  CHECK(hugging_face::Folder(place / "copy").end_tokens() == std::vector<std::int32_t>{5, 6});
}

TEST_CASE("a model of SentencePiece that has no tokenizer.json goes along as tokenizer.model") {
  const TempFolder place;
  const auto golden = nlohmann::json::parse(content_of("tests/golden/sentencepiece.json"));
  std::string file;
  for (const auto& entry : golden["models"])
    if (entry["name"] == "unigram") file = bytes_of_hex(entry["file"]);
  write_plainly(place / "tokenizer.model", file);
  const auto tokenizer = make_tokenizer("sentencepiece:" + place.path().string(), {});
  GptConfig config = small_llama();
  config.vocab = tokenizer->vocab_size();
  hugging_face::require_exportable(config, tokenizer.get());
  run_mesh("dp=1", [&](const MeshPtr& mesh) {
    Gpt model(nn::Build(mesh, DType::f32, 3), config);
    hugging_face::write_folder(place / "out", {.config = config, .tokenizer = tokenizer.get()},
                               nn::detail::held_weights(model).tensors, mesh->world());
  });
  CHECK(content_of(place / "out" / "tokenizer.model") == file);
  CHECK_FALSE(fs::exists(place / "out" / "tokenizer.json"));
  CHECK(hugging_face::Folder(place / "out").tokenizer()->hash() == tokenizer->hash());
  const auto texts = nlohmann::json::parse(content_of(place / "out" / "tokenizer_config.json"));
  CHECK(texts["eos_token"] == "</s>");
  CHECK(texts["add_bos_token"] == true);
}

TEST_CASE("tokenizer_config.json names the end of a text as the tokenizer spells it") {
  const auto golden = nlohmann::json::parse(content_of("tests/golden/tokenizers.json"));
  for (const char* name : {"gpt2", "llama3", "qwen2", "llama2", "gemma"}) {
    CAPTURE(name);
    const TempFolder place;
    for (const auto& entry : golden["hugging_face"])
      if (entry["name"] == name) write_plainly(place / "tokenizer.json", entry["tokenizer"].dump());
    const auto tokenizer = make_tokenizer("bpe:" + (place / "tokenizer.json").string(), {});
    REQUIRE(tokenizer->end_of_text());
    GptConfig config = small_llama();
    config.vocab = tokenizer->vocab_size();
    run_mesh("dp=1", [&](const MeshPtr& mesh) {
      Gpt model(nn::Build(mesh, DType::f32, 3), config);
      hugging_face::write_folder(place / "out", {.config = config, .tokenizer = tokenizer.get()},
                                 nn::detail::held_weights(model).tensors, mesh->world());
    });
    const auto texts = nlohmann::json::parse(content_of(place / "out" / "tokenizer_config.json"));
    CHECK(texts.value("eos_token", "") == tokenizer->decode(std::array{*tokenizer->end_of_text()}));
    CHECK(hugging_face::Folder(place / "out").tokenizer()->hash() == tokenizer->hash());
  }
}

TEST_CASE("config.json and generation_config.json name the tokens that begin a text and fill it up") {
  const TempFolder place;
  GptConfig config = small_llama();
  config.vocab = 256;
  const std::shared_ptr<const Tokenizer> bytes = make_tokenizer("byte", {});
  run_mesh("dp=1", [&](const MeshPtr& mesh) {
    Gpt model(nn::Build(mesh, DType::f32, 3), config);
    hugging_face::write_folder(place / "m",
                               {.config = config,
                                .tokenizer = bytes.get(),
                                .special_tokens = {{"bos_token", "^"}, {"pad_token", "~"}, {"unk_token", "none"}}},
                               nn::detail::held_weights(model).tensors, mesh->world());
  });
  for (const char* name : {"config.json", "generation_config.json"}) {
    const std::string text = content_of(place / "m" / name);
    CHECK(says(text, "\"bos_token_id\": 94"));
    CHECK(says(text, "\"pad_token_id\": 126"));
  }
  const std::string texts = content_of(place / "m" / "tokenizer_config.json");
  CHECK(says(texts, "\"bos_token\": \"^\""));
  CHECK(texts.find("unk_token") == std::string::npos);
}

// ---- maps that no architecture of Hugging Face has ------------------------------------------------------------------

namespace {

/// Tensors in memory, which remember how much of each was read.
class InMemory : public TensorSource {
 public:
  std::map<std::string, Tensor, std::less<>> tensors;
  std::string path() const override { return "memory"; }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors) names.push_back(name);
    return names;
  }
  std::optional<Stored> find(std::string_view name) const override {
    const auto found = tensors.find(name);
    if (found == tensors.end()) return std::nullopt;
    return Stored{found->second.dtype(), found->second.shape()};
  }
  void read(std::string_view name, const Shape& start, Tensor& into) const override {
    Tensor part = tensors.find(name)->second;
    for (int dim = 0; dim < start.dims(); ++dim) part = view::slice(part, dim, start[dim], into.size(dim));
    copy(part, into);
  }
  void require_whole() const override {}
};

/// A Llama's map with fused q, k and v, stacked and transposed gate and up, and rows of q and k as neighbours.
WeightMap odd_map(const GptConfig& c) {
  WeightMap map = hugging_face_map(c);
  const std::int64_t d = c.width, q = c.attention_width(), kv = c.key_value_heads() * c.head_features(), f = c.hidden();
  for (WeightEntry& entry : map) {
    const std::string block = entry.name.substr(0, entry.name.find("attn"));
    const auto fuse = [&](std::int64_t first, std::int64_t heads) {
      entry.parts = {{.name = block + "qkv", .shape = {q + 2 * kv, d}, .first_row = first, .interleaved_heads = heads}};
    };
    if (entry.name.ends_with("attn.q.weight")) fuse(0, c.heads);
    if (entry.name.ends_with("attn.k.weight")) fuse(q, c.key_value_heads());
    if (entry.name.ends_with("attn.v.weight")) fuse(q + kv, 0);
    if (entry.name.ends_with("gate_up.weight"))
      for (std::int64_t i = 0; i < 2; ++i)
        entry.parts[static_cast<std::size_t>(i)] = {
            .name = entry.name, .shape = {2, d, f}, .at = {i}, .at_theirs = {1 - i}, .transposed = true};
  }
  return map;
}

Tensor numbered(const Shape& shape, double first) {
  Tensor x = Tensor::empty(shape);
  std::iota(x.data<float>(), x.data<float>() + x.count(), static_cast<float>(first));
  return x;
}

}  // namespace

TEST_CASE("fused, stacked, transposed and interleaved tensors are read and written on every mesh") {
  GptConfig config = small_llama();
  config.head_width = 6;
  const WeightMap map = odd_map(config);
  InMemory source;
  double first = 0;
  for (const TheirTensor& tensor : their_tensors(map)) {
    source.tensors[tensor.name] = numbered(tensor.shape, first);
    first += 1000;
  }
  require_fit(source, map, {}, "test");
  for (const std::string& mesh_text : Meshes{"dp=1", "tp=2", "tp=4", "dp=2,tp=2"})
    run_mesh(mesh_text, [&](const MeshPtr& mesh) {
      Gpt model(nn::Build(mesh, DType::f32, 1), config);
      const auto held = nn::detail::held_weights(model).tensors;
      read_weights(source, map, held, mesh->world(), {}, mesh_text == "tp=2" ? 300 : 1 << 20);  // 300: a few rows
      if (mesh_text == "dp=1") {  // row 1 of a head is the first of the second pair there: row 2
        const Tensor q = model.parameters()[2]->local;
        REQUIRE(model.parameters()[2]->name == "blocks.0.attn.q.weight");
        const Tensor fused = source.tensors.at("blocks.0.qkv");
        CHECK(values(view::select(q, 0, 1)) == values(view::select(fused, 0, 2)));
        CHECK(values(view::select(q, 0, 6 + 3)) == values(view::select(fused, 0, 6 + 1)));
      }
      for (const auto& [name, tensor] : their_values(held, map, mesh->world()))
        CHECK_MESSAGE(values(tensor) == values(source.tensors.at(name)), name, " on ", mesh_text);
    });
}

}  // namespace hugging_face_test
