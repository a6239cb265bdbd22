#include "train/gpt/gpt_setup.h"

#include <doctest/doctest.h>

using namespace trireme;

TEST_CASE("cuDNN's backward keeps the gradient of a layer's scores, on this rank's heads") {
  GptOptions options;
  Flags flags("train_gpt", "");
  declare_all(flags, options);
  flags.parse({"--layers", "2", "--heads", "8", "--width", "64", "--context", "128", "--micro-batch", "2", "--mesh",
               "dp=1,tp=2", "--vocab", "100", "--dtype", "bf16"});
  resolve(options, 0);
  CHECK(gpt_workspace_bytes(options, options.model.config) == 0);
  options.precision.attention = "cudnn";
  CHECK(gpt_workspace_bytes(options, options.model.config) == 2 * 2 * 4 * 128 * 128);  // bytes, sequences, heads
}
