// Continues a text with a model that train_gpt has saved:
//
//   build/bin/generate --checkpoint run1 --prompt "The "
//
// Read next: train/gpt/generate.h, train/runs/saved_run.h.
#include "core/cores.h"
#include "core/cpu/processor.h"
#include "core/parallel_for.h"
#include "cuda/runtime/open.h"
#include "data/utf8.h"
#include "models/gpt.h"
#include "train/gpt/generate.h"
#include "train/gpt/saved_gpt.h"
#include "train/gpt/validate_gpt.h"
#include "train/options/flags.h"
#include "train/program/launcher.h"
#include "train/program/program.h"
#include "train/program/screen.h"
#include "train/runs/saved_run.h"
#include "train/validate/validate.h"

using namespace trireme;

namespace {

struct Options {
  std::string checkpoint, prompt;
  GenerateOptions generate;
  std::int64_t seed = 1337;
  std::string device = "cpu";
  std::optional<std::int64_t> threads;
};

void declare(Flags& flags, Options& o) {
  flags.group("what");
  flags.add(
      "checkpoint", "PATH", o.checkpoint,
      "the --out folder of train_gpt, for its newest checkpoint; with /best after it, for the one with the lowest "
      "validation loss; or one checkpoint");
  flags.add("prompt", "TEXT", o.prompt, "what the text begins with");
  flags.add("length", "N", o.generate.length, "tokens to generate", Range::at_least(1));
  flags.group("how");
  flags.add("temperature", "F", o.generate.temperature,
            "below 1: safer, above 1: wilder, 0: always the likeliest token", Range::at_least(0));
  flags.add("top-k", "N", o.generate.top_k, "choose among the N likeliest tokens; 0: all", Range::at_least(0));
  flags.add("top-p", "F", o.generate.top_p, "choose among the likeliest tokens with this total probability",
            Range{.low = 0, .high = 1, .low_open = true});
  flags.add("seed", "N", o.seed, "of the choices", Range::at_least(0));
  flags.add_choice("device", o.device, {"cpu", "cuda"}, "where the model runs; cuda: a GPU, or an error");
  flags.add("threads", "N", o.threads, "auto", "auto: all cores", Range{.low = 1, .high = 4096});
}

int run(const Options& o) {
  if (o.checkpoint.empty())
    fail(ExitCode::usage, "checkpoint", "--checkpoint is missing; expected the --out folder of train_gpt");
  if (o.prompt.empty())
    fail(ExitCode::usage, "prompt", "--prompt is missing or empty; expected at least one character");
  if (launcher_ranks() > 1)
    fail(ExitCode::usage, "generate",
         "{} processes would all write the same text; expected one; start it without mpirun", launcher_ranks());
  const GenerateOptions initial;
  if (o.generate.temperature == 0 && (o.generate.top_k != initial.top_k || o.generate.top_p != initial.top_p))
    fail(ExitCode::usage, "generate",
         "--top-k and --top-p have no effect with --temperature 0, which always takes the likeliest token; expected "
         "--temperature above 0; drop them or change --temperature");
  validate_device(o.device);
  static_cast<void>(cpu::bf16_unit());  // refuses a TRIREME_ISA that this processor does not support
  const bool on_gpu = o.device == name(Device::cuda);
  if (on_gpu) cuda::open_device();
  const int team = static_cast<int>(o.threads.value_or(cores()));
  set_threads(team);
  const OwnCores own_cores(0, team);
  const std::shared_ptr<ProcessGroup> alone = self_group();
  checkpoint::Checkpoint checkpoint = open_saved_run(*alone, o.checkpoint);
  Screen::of_process().warn("checkpoint: " + checkpoint.path().string());
  const SavedGpt saved = read_saved_gpt(checkpoint);
  validate_heads(saved.config, on_gpu ? Device::cuda : Device::cpu);
  std::vector<std::int32_t> prompt;
  try {
    prompt = saved.tokenizer->encode_with_special(o.prompt);
  } catch (const Error& error) {  // invalid text is reported as an invalid flag here
    throw Error(ExitCode::usage, "prompt", std::string(error.what()) + "; change --prompt");
  }
  const auto mesh = std::make_shared<const DeviceMesh>(alone, MeshShape{});
  Gpt model(nn::Build(mesh, saved.dtype, 0, {}, on_gpu ? Device::cuda : Device::cpu), saved.config);
  load_weights(checkpoint, model);

  GenerateOptions options = o.generate;
  options.seed = static_cast<std::uint64_t>(o.seed);
  options.vocab_size = saved.tokenizer->vocab_size();
  Utf8Stream printable;  // a token may end inside a character
  write_for_programs(o.prompt);
  generate(model, prompt, options, [&](std::int32_t token) {
    write_for_programs(printable.push(saved.tokenizer->decode(std::span(&token, 1))));
  });
  write_for_programs(printable.finish() + "\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] {
    Options options;
    Flags flags("generate", "Continues a text with a model that train_gpt has saved.");
    declare(flags, options);
    if (!flags.parse_or_print(argc, argv)) return 0;
    return run(options);
  });
}
