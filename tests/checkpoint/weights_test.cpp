// Weights in one .safetensors file: the same bytes from every mesh, read back on every other, whole or in part.
#include "nn/weights.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "data/safetensors.h"
#include "nn/mlp.h"
#include "optim/optimizer.h"
#include "tests/checkpoint/support.h"

using namespace trireme;
using namespace trireme::testing;

namespace weights_test {
namespace {

struct Block : nn::Module {
  nn::LayerNorm norm;
  nn::Mlp mlp;
  BufferPtr steps;
  Block(const nn::Build& b, std::int64_t width)
      : Module(b),
        norm(b / "norm", width),
        mlp(b / "mlp", {.width = width, .hidden = 4 * width}),
        steps(b.buffer("steps", {3}, {}, 1.5)) {}
  Tensor forward(const Tensor& x) override { return x + mlp(norm(x)); }
};

nn::Build one_rank(DType dtype = DType::f32, std::uint64_t seed = 7) {
  return {std::make_shared<const DeviceMesh>(self_group(), MeshShape{}), dtype, seed};
}

template <class M>
void fill_all(M& model, double value) {
  for (const ParameterPtr& p : model.parameters()) kernels(p->local.device()).fill(p->local, value);
  for (const BufferPtr& b : model.buffers()) kernels(b->value.device()).fill(b->value, value);
}

/// What a few lines of any language do with such a file.
std::map<std::string, std::vector<float>> parsed_plainly(const std::string& content) {
  std::uint64_t length = 0;
  std::memcpy(&length, content.data(), 8);
  const auto header = nlohmann::json::parse(content.substr(8, length));
  std::map<std::string, std::vector<float>> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    REQUIRE(entry["dtype"] == "F32");
    const std::size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    std::vector<float> values((end - begin) / 4);
    std::memcpy(values.data(), content.data() + 8 + length + begin, end - begin);
    tensors[name] = std::move(values);
  }
  return tensors;
}

GptConfig config_of(bool experts) {
  GptConfig config = small_config();
  if (experts) config.experts = {.count = 4, .top_k = 2};
  return config;
}

/// The file that a GPT's first weights make on a mesh.
std::string saved_on(const std::string& mesh_text, bool experts, const std::filesystem::path& path) {
  run_mesh(mesh_text, [&](const MeshPtr& mesh) {
    Gpt model(nn::Build(mesh, DType::f32, 5), config_of(experts));
    nn::save_weights(model, path);
  });
  return content_of(path);
}

}  // namespace

TEST_CASE("a module's weights and buffers come back bit by bit, under names within the module") {
  const TempFolder folder;
  Block block(one_rank() / "blocks" / "3", 8);
  std::vector<Tensor> before;
  for (const ParameterPtr& p : block.parameters()) before.push_back(clone(p->local));
  nn::save_weights(block, folder / "block.safetensors");
  const SafetensorsFile file(folder / "block.safetensors");
  CHECK(file.names() == std::vector<std::string>{"mlp.down.bias", "mlp.down.weight", "mlp.up.bias", "mlp.up.weight",
                                                 "norm.bias", "norm.weight", "steps"});
  CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
  fill_all(block, 777);
  const nn::LoadReport report = nn::load_weights(block, folder / "block.safetensors");
  CHECK(report.loaded.size() == 7);
  CHECK((report.missing.empty() && report.extra.empty()));
  for (std::size_t i = 0; i < before.size(); ++i) CHECK(same_bits(block.parameters()[i]->local, before[i]));
  CHECK(block.steps->value.data<float>()[2] == 1.5F);
}

TEST_CASE("a few lines of plain parsing read the file") {
  const TempFolder folder;
  const nn::Build b = one_rank();
  Block block(b, 8);
  nn::save_weights(block, folder / "file");
  const auto tensors = parsed_plainly(content_of(folder / "file"));
  CHECK(tensors.size() == 7);
  for (const ParameterPtr& p : block.parameters()) {
    const auto values = p->local.detach().span<float>();
    CHECK(std::equal(values.begin(), values.end(), tensors.at(p->name).begin(), tensors.at(p->name).end()));
  }
}

TEST_CASE("the Python package safetensors reads the file, if it is installed") {
  if (std::system("python3 -c 'import safetensors, numpy' 2>/dev/null") != 0) {
    MESSAGE("skipped: python3 has no packages safetensors and numpy");
    return;
  }
  const TempFolder folder;
  Block block(one_rank(), 8);
  fill_all(block, 2);
  nn::save_weights(block, folder / "file");
  const std::string script =
      "from safetensors.numpy import load_file; t = load_file('" + (folder / "file").string() +
      "'); assert len(t) == 7 and t['mlp.up.weight'].shape == (32, 8) and (t['mlp.up.weight'] == 2).all()";
  CHECK(std::system(("python3 -c \"" + script + "\"").c_str()) == 0);
}

TEST_CASE("every mesh writes the same bytes, and loads those of another") {
  for (const bool experts : {false, true}) {
    const TempFolder folder;
    const std::string whole = saved_on("dp=1", experts, folder / "one");
    REQUIRE(whole.size() > 1000);
    const std::vector<std::string> meshes =
        experts ? Meshes{"dp=2,ep=2", "dp=2,ep=2,tp=2"} : Meshes{"dp=2", "tp=2", "cp=2", "pp=2", "dp=2,tp=2,pp=2"};
    for (const std::string& text : meshes) {
      CAPTURE(text);
      CHECK((saved_on(text, experts, folder / "many") == whole));
      run_mesh(text, [&](const MeshPtr& mesh) {
        Gpt model(nn::Build(mesh, DType::f32, 99), config_of(experts));
        fill_all(model, 777);
        nn::load_weights(model, folder / "one");
        nn::save_weights(model, folder / "again");
      });
      CHECK((content_of(folder / "again") == whole));
    }
  }
}

TEST_CASE("with ZeRO, trained weights are saved and loaded, also those that are gathered on use") {
  const TempFolder folder;
  std::string expected;
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    GptOptions o;
    o.model.config = {.layers = 2, .heads = 2, .width = 16, .context = 8, .vocab = test_vocab};
    o.mesh.axes = "dp=2";
    o.mesh.zero = stage;
    if (stage == 3) o.mesh.zero_resident = 0;
    o.batch.global_batch = 8;
    o.batch.micro_batch = 4;  // one micro-batch: all stages sum in the same order
    resolve(o, 0);
    validate(o);
    run_mesh("dp=2", [&](const MeshPtr& mesh) {
      GptRun run(o, mesh);
      run.steps(2);
      nn::save_weights(run.trainer.model(), folder / "trained");
      const double next = run.gradients();
      scramble(run.trainer);
      nn::load_weights(run.trainer.model(), folder / "trained");
      CHECK(run.gradients() == next);
    });
    const std::string bytes = content_of(folder / "trained");
    if (stage == 0) expected = bytes;
    CHECK((bytes == expected));
  }
}

TEST_CASE("a module of one pipeline stage is saved by the ranks of that stage") {
  const TempFolder folder;
  run_mesh("pp=2,tp=2", [&](const MeshPtr& mesh) {
    const nn::Build b(mesh, DType::f32, 7);
    nn::Mlp mlp(b / "mlp", {.width = 8, .hidden = 32});
    const auto path = folder / fmt::format("stage{}", mesh->coord(Axis::pp));
    nn::save_weights(mlp, path);
    fill_all(mlp, 777);
    nn::load_weights(mlp, path);
    nn::save_weights(mlp, path);
  });
  nn::Mlp mlp(one_rank() / "mlp", {.width = 8, .hidden = 32});
  nn::save_weights(mlp, folder / "one");
  CHECK((content_of(folder / "stage0") == content_of(folder / "one")));
  CHECK((content_of(folder / "stage1") == content_of(folder / "one")));
}

TEST_CASE("a file that does not fit is refused with all differences, and nothing is written") {
  const TempFolder folder;
  Block saved(one_rank(), 8);
  nn::save_weights(saved, folder / "file", {.name_in_file = [](const std::string& name) {
                     return name == "norm.bias" ? "norm.shift" : name == "steps" ? "" : name;
                   }});
  Block other(one_rank(DType::f32, 8), 16);
  fill_all(other, 3);
  const std::string said = error_of([&] { nn::load_weights(other, folder / "file"); }, ExitCode::data);
  CHECK(says(said, "[load_weights] " + (folder / "file").string() + " does not fit the module; of another shape: "));
  CHECK(says(said, "\"mlp.up.weight\" is [32, 8], and [64, 16] in the module"));
  CHECK(says(said, "\"norm.weight\" is [8], and [16] in the module"));
  CHECK(says(said, "; missing in the file: \"norm.bias\", \"steps\"; not used by the module: \"norm.shift\"; "));
  CHECK(says(said, "nothing was loaded"));
  CHECK(error_of([&] { nn::load_weights(other, folder / "file", {.strict = false}); }, ExitCode::data) == said);
  for (const ParameterPtr& p : other.parameters()) CHECK(same_bits(p->local, Tensor::full(p->local.shape(), 3)));
  CHECK(error_of([&] { nn::load_weights(other, folder / "absent"); }, ExitCode::io).size() > 0);
}

TEST_CASE("a part of a file is loaded by prefix and names, and the report says what was not") {
  const TempFolder folder;
  Block saved(one_rank(), 8);
  nn::save_weights(saved, folder / "file", {.prefix = "encoder.", .metadata = {}});
  const nn::Build b = one_rank(DType::f32, 8);
  Block whole(b / "whole", 8);
  CHECK(says(error_of([&] { nn::load_weights(whole, folder / "file"); }, ExitCode::data), "missing in the file: "));
  nn::load_weights(whole, folder / "file", {.prefix = "encoder."});
  CHECK(same_bits(whole.parameter("mlp.up.weight")->local, saved.parameter("mlp.up.weight")->local));

  nn::Mlp mlp(b / "part", {.width = 8, .hidden = 32});
  const nn::LoadReport report = nn::load_weights(
      mlp, folder / "file", {.strict = false, .prefix = "encoder.mlp.", .name_in_file = [](const std::string& name) {
                               return name == "up.bias" ? "" : name == "down.bias" ? "down.offset" : name;
                             }});
  CHECK(report.loaded == std::vector<std::string>{"down.weight", "up.weight"});
  CHECK(report.missing == std::vector<std::string>{"down.offset"});
  CHECK(report.extra == std::vector<std::string>{"down.bias", "up.bias"});
  CHECK(same_bits(mlp.parameter("up.weight")->local, saved.parameter("mlp.up.weight")->local));
}

TEST_CASE("floating dtypes are converted; two tensors of one name are refused") {
  const TempFolder folder;
  Block saved(one_rank(), 8);
  nn::save_weights(saved, folder / "file", {.dtype = DType::bf16});
  CHECK(SafetensorsFile(folder / "file").dtype("mlp.up.weight") == DType::bf16);
  Block wide(one_rank(DType::f64), 8);
  nn::load_weights(wide, folder / "file");
  const Tensor rounded = cast(cast(saved.parameter("mlp.up.weight")->local, DType::bf16), DType::f64);
  CHECK(same_bits(wide.parameter("mlp.up.weight")->local.detach(), rounded));
  CHECK(says(error_of([&] { nn::save_weights(saved, folder / "f", {.name_in_file = [](auto&) { return "w"; }}); },
                      ExitCode::usage),
             "[save_weights] two tensors would have the name \"w\" in the file"));
  CHECK(!std::filesystem::exists(folder / "f"));
}

TEST_CASE("on every rank, a file that cannot be written is refused, and leaves the old one") {
  const TempFolder folder;
  run_mesh("tp=2", [&](const MeshPtr& mesh) {
    const nn::Build b(mesh, DType::f32, 7);
    nn::Mlp mlp(b / "mlp", {.width = 8, .hidden = 32});
    CHECK(error_of([&] { nn::save_weights(mlp, folder / "no" / "such" / "folder"); }, ExitCode::io).size() > 0);
    nn::save_weights(mlp, folder / "file");
  });
  CHECK(SafetensorsFile(folder / "file").names().size() == 4);
}

TEST_CASE("16-bit weights of which an optimizer keeps a copy are refused, as its next step would undo the load") {
  const TempFolder folder;
  const nn::Build b = one_rank(DType::bf16);
  Block block(b / "block", 8);
  nn::save_weights(block, folder / "file");
  auto optimizer = optim::make_sgd(b.parameters(), {});
  CHECK(says(error_of([&] { nn::load_weights(block, folder / "file"); }, ExitCode::usage),
             "[load_weights] an optimizer keeps a copy of block.norm.weight, in f32"));
  optimizer.reset();
  nn::load_weights(block, folder / "file");
}

TEST_CASE("f32 weights of which an optimizer keeps an average are refused, as the average would not follow") {
  const TempFolder folder;
  const nn::Build b = one_rank(DType::f32);
  Block block(b / "block", 8);
  nn::save_weights(block, folder / "file");
  auto optimizer = optim::make_sgd(b.parameters(), {});
  nn::load_weights(block, folder / "file");  // f32 weights are their own masters
  optimizer->average_weights(0.9);
  const std::string said = error_of([&] { nn::load_weights(block, folder / "file"); }, ExitCode::usage);
  CHECK(says(said, "[load_weights] an optimizer keeps a copy of block.norm.weight, in f32 or as an average"));
  CHECK(says(said, "load them before you make the optimizer"));
  optimizer.reset();
  nn::load_weights(block, folder / "file");
}

}  // namespace weights_test
