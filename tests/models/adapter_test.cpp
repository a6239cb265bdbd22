// Adapters of a model with those of other programs: merged weights, and folders in the layout of PEFT.
#include <doctest/doctest.h>

#include "data/safetensors.h"
#include "models/gpt.h"
#include "models/hugging_face/adapter.h"
#include "models/hugging_face/adapter_config.h"
#include "models/hugging_face/export.h"
#include "models/hugging_face/folder.h"
#include "nn/lora.h"
#include "nn/weights.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/largest.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace adapter_test {
namespace {

GptConfig small(bool llama) {
  GptConfig c = {.layers = 2, .heads = 4, .width = 16, .context = 16, .vocab = 31, .bias = !llama};
  c.activation = llama ? Activation::swiglu : Activation::gelu_tanh;
  c.lora = {.rank = 3, .alpha = 5};
  if (!llama) return c;
  c.kv_heads = 2;
  c.norm = Norm::rms;
  c.positions = PositionEncoding::rope;
  return c;
}

/// A model whose adapters are not 0.
std::unique_ptr<Gpt> model_on(const MeshPtr& mesh, const GptConfig& config) {
  auto model = std::make_unique<Gpt>(nn::Build(mesh, DType::f32, 7), config);
  for (const ParameterPtr& p : model->parameters())
    if (nn::is_adapter(p->name)) nn::initialise(*p, nn::Init::normal(0.3), 11);
  return model;
}

Tensor logits_of(Gpt& model) {
  const NoGrad guard;
  Tensor ids = Tensor::zeros({1, 16}, DType::i32);
  for (std::int32_t i = 0; i < 16; ++i) ids.data<std::int32_t>()[i] = i * 7 % 31;
  const Batch batch = model.enter(token_batch(ids, ids, {0}));
  return model.gathered_logits(model.hidden(0, {}, batch));
}

}  // namespace

TEST_CASE("an exported model has its adapters in the weights, from any mesh") {
  for (const bool llama : {true, false}) {
    const GptConfig config = small(llama);
    Tensor expected;
    run_mesh("dp=1", [&](const MeshPtr& mesh) { expected = logits_of(*model_on(mesh, config)); });
    for (const std::string& mesh_text : Meshes{"dp=1", "dp=2,tp=2", "pp=2"}) {
      CAPTURE(mesh_text);
      const TempFolder folder;
      run_mesh(mesh_text, [&](const MeshPtr& mesh) {
        const std::unique_ptr<Gpt> model = model_on(mesh, config);
        const nn::detail::HeldWeights held = nn::detail::held_weights(*model);
        hugging_face::write_folder(folder / "merged", {.config = config}, held.tensors, *held.group);
      });
      run_mesh("dp=1", [&](const MeshPtr& mesh) {
        const hugging_face::Folder merged(folder / "merged");
        CHECK(merged.config().lora.rank == 0);
        Gpt model(nn::Build(mesh, DType::f32, 1), merged.config());
        const nn::detail::HeldWeights held = nn::detail::held_weights(model);
        merged.load(held.tensors, *held.group);
        CHECK(relative_difference(logits_of(model), expected) < 1e-5);
      });
    }
  }
}

TEST_CASE("a folder of adapters has PEFT's names and shapes, and our values") {
  const TempFolder folder;
  for (const bool llama : {true, false}) {
    const GptConfig config = small(llama);
    const std::filesystem::path to = folder / (llama ? "llama" : "gpt2");
    run_mesh("dp=2,tp=2", [&](const MeshPtr& mesh) {
      const std::unique_ptr<Gpt> model = model_on(mesh, config);
      const nn::detail::HeldWeights held = nn::detail::held_weights(*model);
      hugging_face::write_adapter(to, {.config = config, .base = "hub/base"}, held.tensors, *held.group);
    });
    CHECK(content_of(to / hugging_face::adapter_config_name).find("\"base_model_name_or_path\": \"hub/base\"") !=
          std::string::npos);
    const SafetensorsFile file(to / hugging_face::adapter_weights_name);
    const std::string base = "base_model.model.";
    run_mesh("dp=1", [&](const MeshPtr& mesh) {
      const std::unique_ptr<Gpt> model = model_on(mesh, config);
      const auto ours = [&](const char* name) { return matching(model->parameters(), name).front()->local.detach(); };
      if (llama) {
        CHECK(file.names().size() == 2 * 2 * 7);
        const std::string up = base + "model.layers.1.mlp.up_proj";
        CHECK(same_bits(file.read(up + ".lora_A.weight"), view::select(ours("blocks.1.mlp.gate_up.lora_a"), 0, 1)));
        CHECK(same_bits(file.read(up + ".lora_B.weight"), view::select(ours("blocks.1.mlp.gate_up.lora_b"), 0, 1)));
      } else {
        CHECK(file.names().size() == 2 * 2 * 4);
        const std::string qkv = base + "transformer.h.0.attn.c_attn";
        CHECK(same_bits(file.read(qkv + ".lora_A.weight"), ours("blocks.0.attn.qkv.lora_a")));
        CHECK(
            same_bits(file.read(qkv + ".lora_B.weight"), view::reshape(ours("blocks.0.attn.qkv.lora_b"), {3 * 16, 3})));
      }
    });
  }
  GptConfig plain = small(true);
  plain.lora = {};
  CHECK(error_of([&] { hugging_face::require_adapters(plain); }, ExitCode::usage).find("has no adapters") !=
        std::string::npos);
}

namespace {

std::filesystem::path written(const TempFolder& folder, const GptConfig& config, const std::string& name) {
  run_mesh("dp=1", [&](const MeshPtr& mesh) {
    const std::unique_ptr<Gpt> model = model_on(mesh, config);
    const nn::detail::HeldWeights held = nn::detail::held_weights(*model);
    hugging_face::write_adapter(folder / name, {.config = config}, held.tensors, *held.group);
  });
  return folder / name;
}

/// A copy of a folder of adapters with only those tensors whose names contain one of `parts`.
std::filesystem::path only(const TempFolder& folder, const std::filesystem::path& from,
                           const std::vector<std::string>& parts, const std::string& name) {
  const std::filesystem::path to = folder / name;
  std::filesystem::create_directory(to);
  std::filesystem::copy_file(from / hugging_face::adapter_config_name, to / hugging_face::adapter_config_name);
  const SafetensorsFile file(from / hugging_face::adapter_weights_name);
  std::vector<SafetensorsEntry> entries;
  for (const std::string& tensor : file.names())
    if (std::any_of(parts.begin(), parts.end(), [&](const auto& p) { return tensor.find(p) != std::string::npos; }))
      entries.push_back({tensor, file.dtype(tensor), file.shape(tensor)});
  SafetensorsWriter writer(to / hugging_face::adapter_weights_name, entries, {});
  for (const SafetensorsEntry& entry : entries) writer.write(file.read(entry.name));
  writer.commit();
  return to;
}

GptConfig without_adapters(GptConfig config) {
  config.lora = {};
  return config;
}

}  // namespace

TEST_CASE("adapters are read back on any mesh, and written with the same bytes") {
  for (const bool llama : {true, false}) {
    const TempFolder folder;
    const std::filesystem::path from = written(folder, small(llama), "from");
    for (const std::string& mesh_text : Meshes{"dp=1", "dp=2,tp=2", "pp=2"}) {
      const std::filesystem::path back = folder / ("back-" + mesh_text);
      run_mesh(mesh_text, [&](const MeshPtr& mesh) {
        GptConfig config = without_adapters(small(llama));
        const hugging_face::Adapter adapter(from, config);
        CHECK(adapter.lora() == small(llama).lora);
        config.lora = adapter.lora();
        Gpt model(nn::Build(mesh, DType::f32, 1), config);
        const nn::detail::HeldWeights held = nn::detail::held_weights(model);
        adapter.load(held.tensors, *held.group);
        hugging_face::write_adapter(back, {.config = config}, held.tensors, *held.group);
      });
      for (const char* name : {hugging_face::adapter_weights_name, hugging_face::adapter_config_name})
        CHECK(content_of(back / name) == content_of(from / name));
    }
  }
}

TEST_CASE("adapters beside some layers: the targets name these, and gate may have one without up") {
  const TempFolder folder;
  const GptConfig base = without_adapters(small(true));
  const std::filesystem::path all = written(folder, small(true), "all");
  const std::filesystem::path some = only(folder, all, {"q_proj", "1.mlp.gate_proj"}, "some");
  const hugging_face::Adapter adapter(some, base);
  CHECK(adapter.lora().targets == "*.attn.q,blocks.1.mlp.gate_up");
  run_mesh("tp=2", [&](const MeshPtr& mesh) {
    GptConfig config = base;
    config.lora = adapter.lora();
    const std::unique_ptr<Gpt> model = model_on(mesh, config), whole = model_on(mesh, small(true));
    const nn::detail::HeldWeights held = nn::detail::held_weights(*model);
    adapter.load(held.tensors, *held.group);
    for (const char* name : {"blocks.1.mlp.gate_up.lora_a", "blocks.1.mlp.gate_up.lora_b"}) {
      const Tensor ours = matching(model->parameters(), name).front()->local.detach();
      const Tensor theirs = matching(whole->parameters(), name).front()->local.detach();
      CHECK(same_bits(view::select(ours, 0, 0), view::select(theirs, 0, 0)));
      const Tensor up = contiguous(view::select(ours, 0, 1));
      CHECK(same_bits(up, Tensor::zeros(up.shape(), up.dtype())));
    }
  });
}

TEST_CASE("adapters that do not fit, and kinds that are not known, are refused with their names") {
  const TempFolder folder;
  const GptConfig base = without_adapters(small(true));
  const std::filesystem::path all = written(folder, small(true), "all");
  const auto refused = [&](const std::filesystem::path& path, const GptConfig& config, ExitCode code,
                           const std::string& part) {
    const std::string text = error_of([&] { hugging_face::Adapter(path, config); }, code);
    CHECK_MESSAGE(text.find(part) != std::string::npos, text);
  };
  refused(folder / "none", base, ExitCode::usage, "has no adapter_config.json");
  refused(all, small(true), ExitCode::usage, "has adapters itself, of rank 3");
  refused(all, without_adapters(small(false)), ExitCode::data, "not used by the model");
  refused(only(folder, all, {"q_proj.lora_A"}, "halves"), base, ExitCode::data, "missing: ");
  refused(only(folder, all, {"nothing"}, "empty"), base, ExitCode::data, "has no tensors");
  GptConfig wider = base;
  wider.width = 32;
  refused(all, wider, ExitCode::data, "of another shape");

  const auto parse = [](const std::string& fields) {
    return hugging_face::parse_adapter_config(R"({"peft_type": "LORA", "r": 4, "lora_alpha": 6)" + fields + "}", "a");
  };
  CHECK(parse("").scale() == 1.5);
  CHECK(parse(R"(, "use_rslora": true)").scale() == 3);
  CHECK(parse(R"(, "lora_dropout": 0.25, "rank_pattern": {}, "modules_to_save": null)").dropout == 0.25);
  for (const char* field :
       {R"("use_dora": true)", R"("rank_pattern": {"q_proj": 8})", R"("bias": "all")", R"("modules_to_save": ["x"])",
        R"("init_lora_weights": "pissa")", R"("loftq_config": {"bits": 4})", R"("lora_dropout": 1)",
        R"("something_new": 1)", R"("peft_type": "IA3")", R"("use_dora": 3)"}) {
    const std::string text = error_of([&] { parse(std::string(", ") + field); }, ExitCode::data);
    const std::string name = std::string(field).substr(1, std::string(field).find('"', 1) - 1);
    CHECK_MESSAGE(text.find(name) != std::string::npos, text);
  }
}

}  // namespace adapter_test
