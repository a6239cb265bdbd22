// The memory of a run, which is computed from the options alone.
#include "train/report/memory.h"

#include <doctest/doctest.h>

#include "tests/support/errors.h"
#include "train/gpt/gpt_setup.h"

using namespace trireme;
using namespace trireme::testing;

TEST_CASE("estimated memory: each expert is held by the data ranks of one position of ep") {
  const auto estimate = [](const char* mesh) {
    TrainOptions options;
    options.mesh.axes = mesh;
    resolve(options, 0);
    return memory_estimate(options, {.all = 3 << 20, .experts = 2 << 20});
  };
  // 16 bytes a parameter: weight, gradient and two moments in f32.
  CHECK(contains(estimate("dp=1"), "estimated at 48.0 MiB for the 1 rank "));
  CHECK(contains(estimate("dp=2"), "estimated at 96.0 MiB for the 2 ranks "));
  CHECK(contains(estimate("dp=2,ep=2"), "estimated at 64.0 MiB for the 2 ranks "));
}

TEST_CASE("predicted memory: rank 0 has the activations of its own blocks, and logits if it has the last stage") {
  const auto bytes = [](const std::string& mesh, const std::string& stage_layers, const std::string& vocab) {
    GptOptions options;
    Flags flags("train_gpt", "");
    declare_all(flags, options);
    flags.parse({"--layers", "4", "--heads", "2", "--width", "64", "--context", "128", "--micro-batch", "2", "--mesh",
                 mesh, "--stage-layers", stage_layers, "--vocab", vocab});
    resolve(options, 0);
    options.model.config.vocab = *options.model.vocab;
    return gpt_activation_bytes(options, options.model.config, 1);
  };
  CHECK(bytes("pp=2", "3,1", "100") == 3 * bytes("pp=2", "1,3", "100"));
  CHECK(bytes("pp=2", "2,2", "100") == bytes("pp=2", "2,2", "1000"));
  CHECK(bytes("dp=1", "auto", "1000") - bytes("dp=1", "auto", "100") == 900 * 2 * 128 * 4);
}

TEST_CASE("predicted memory: cuDNN's backward keeps the gradient of a layer's scores, on this rank's heads") {
  GptOptions options;
  Flags flags("train_gpt", "");
  declare_all(flags, options);
  flags.parse({"--layers", "2", "--heads", "8", "--width", "64", "--context", "128", "--micro-batch", "2", "--mesh",
               "dp=1,tp=2", "--vocab", "100", "--dtype", "bf16"});
  resolve(options, 0);
  const auto prediction = [&] {
    const GptConfig& model = options.model.config;
    return predicted_memory(options, {}, gpt_activation_bytes(options, model, 1), gpt_workspace_bytes(options, model));
  };
  INFO(prediction());
  CHECK_FALSE(contains(prediction(), "workspace"));
  options.precision.attention = "cudnn";
  CHECK(contains(prediction(), " + 256.0 KiB workspace of cuDNN = "));  // 2 bytes x 2 sequences x 4 heads x 128 x 128
}
