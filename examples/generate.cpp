// Continues a text with a model that train_gpt has saved:
//
//   build/bin/generate --checkpoint run1 --prompt "The "
//   build/bin/generate --checkpoint run1 --prompt-file - --samples 3 < beginning.txt
//
// Read next: train/gpt/generate.h, train/runs/saved_run.h.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "core/cores.h"
#include "core/cpu/processor.h"
#include "core/io.h"
#include "core/parallel_for.h"
#include "cuda/runtime/open.h"
#include "data/utf8.h"
#include "models/gpt.h"
#include "train/gpt/generate.h"
#include "train/gpt/saved_gpt.h"
#include "train/gpt/validate_gpt.h"
#include "train/options/flags.h"
#include "train/program/launcher.h"
#include "train/program/output.h"
#include "train/program/program.h"
#include "train/program/screen.h"
#include "train/runs/saved_run.h"
#include "train/validate/validate.h"

using namespace trireme;

namespace {

struct Options {
  std::string checkpoint, prompt, prompt_file;
  GenerateOptions generate;
  std::int64_t samples = 1, seed = 1337;
  bool stop_at_end = true, speed = false;
  std::string device = "cpu";
  std::optional<std::int64_t> threads;
};

void declare(Flags& flags, Options& o) {
  flags.example("generate --checkpoint run1 --prompt \"The \" --length 200 --temperature 0.8");
  flags.group("what");
  flags.add(
      "checkpoint", "PATH", o.checkpoint,
      "the --out folder of train_gpt, for its newest checkpoint; with /best after it, for the one with the lowest "
      "validation loss; or one checkpoint");
  flags.add("prompt", "TEXT", o.prompt, "what the text begins with");
  flags.add("prompt-file", "FILE", o.prompt_file,
            "file with what the text begins with, its last newline included; -: standard input");
  flags.not_empty();
  flags.add("length", "N", o.generate.length, "tokens to generate, at most", Range::at_least(1));
  flags.add("samples", "N", o.samples, "texts to generate; the seed of number i, from 0, is --seed + i",
            Range::count());
  flags.add_switch("stop-at-end", o.stop_at_end,
                   "a text ends at the tokenizer's end-of-text token; off: it goes on with the next document");
  flags.group("how");
  flags.add("temperature", "F", o.generate.temperature,
            "below 1: safer, above 1: wilder, 0: always the likeliest token", Range::at_least(0));
  flags.add("top-k", "N", o.generate.top_k, "choose among the N likeliest tokens; 0: all", Range::at_least(0));
  flags.add("top-p", "F", o.generate.top_p, "choose among the likeliest tokens with this total probability",
            Range{.low = 0, .high = 1, .low_open = true});
  flags.add("seed", "N", o.seed, "of the choices", Range::at_least(0));
  flags.add_choice("device", o.device, {"cpu", "cuda"}, "where the model runs; cuda: a GPU, or an error");
  flags.add("threads", "N", o.threads, "auto", "auto: all cores", Range{.low = 1, .high = 4096});
  flags.add_switch("speed", o.speed,
                   "print tokens per second on standard error; without this flag only if that is a terminal", true);
}

void validate(const Options& o) {
  if (o.checkpoint.empty())
    fail(ExitCode::usage, "checkpoint", "--checkpoint is missing; expected the --out folder of train_gpt");
  if (!o.prompt.empty() && !o.prompt_file.empty())
    fail(ExitCode::usage, "prompt", "--prompt and --prompt-file are two prompts; expected one; drop one of them");
  if (o.prompt.empty() && o.prompt_file.empty())
    fail(ExitCode::usage, "prompt", "--prompt is missing or empty; expected at least one character");
  if (launcher_ranks() > 1)
    fail(ExitCode::usage, "generate",
         "{} processes would all write the same text; expected one; start it without mpirun", launcher_ranks());
  const GenerateOptions initial;
  if (o.generate.temperature == 0 && (o.generate.top_k != initial.top_k || o.generate.top_p != initial.top_p))
    fail(ExitCode::usage, "generate",
         "--top-k and --top-p have no effect with --temperature 0, which always takes the likeliest token; expected "
         "--temperature above 0; drop them or change --temperature");
  if (o.generate.temperature == 0 && o.samples > 1)
    fail(ExitCode::usage, "generate",
         "--samples {} with --temperature 0, which always takes the likeliest token, are {} equal texts; expected "
         "--temperature above 0; drop --samples or change --temperature",
         o.samples, o.samples);
  validate_device(o.device);
  static_cast<void>(cpu::bf16_unit());  // refuses a TRIREME_ISA that this processor does not support
}

std::string read_prompt(const Options& o) {
  if (o.prompt_file.empty()) return o.prompt;
  std::string text = o.prompt_file == "-" ? read_standard_input() : read_file(o.prompt_file);
  if (text.empty())
    fail(ExitCode::usage, "prompt", "--prompt-file {} is empty; expected at least one character", o.prompt_file);
  return text;
}

std::vector<std::int32_t> encode(const Tokenizer& tokenizer, const std::string& prompt) {
  try {
    return tokenizer.encode_with_special(prompt);
  } catch (const Error& error) {  // invalid text is reported as an invalid flag here
    throw Error(ExitCode::usage, "prompt", error.reason() + "; change --prompt or --prompt-file");
  }
}

/// Writes the prompt and its continuation. Returns the number of generated tokens.
std::int64_t write_text(Gpt& model, const Tokenizer& tokenizer, const std::string& prompt,
                        const std::vector<std::int32_t>& ids, const GenerateOptions& options) {
  Utf8Stream printable;  // a token may end inside a character
  std::int64_t tokens = 0;
  write_out(prompt);
  generate(model, ids, options, [&](std::int32_t token) {
    ++tokens;
    write_out(printable.push(tokenizer.decode(std::span(&token, 1))));
  });
  write_out(printable.finish() + "\n");
  return tokens;
}

void print_speed(std::int64_t tokens, double seconds) {
  const std::string line = fmt::format("{} tokens in {:.2f} s, {:.1f} tok/s\n", tokens, seconds,
                                       static_cast<double>(tokens) / std::max(seconds, 1e-9));
  std::fputs(line.c_str(), stderr);
}

int run(const Options& o) {
  validate(o);
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
  const std::string prompt = read_prompt(o);
  const std::vector<std::int32_t> ids = encode(*saved.tokenizer, prompt);
  const auto mesh = std::make_shared<const DeviceMesh>(alone, MeshShape{});
  Gpt model(nn::Build(mesh, saved.dtype, 0, {}, on_gpu ? Device::cuda : Device::cpu), saved.config);
  load_weights(checkpoint, model);

  GenerateOptions options = o.generate;
  options.vocab_size = saved.tokenizer->vocab_size();
  if (o.stop_at_end) options.stop = saved.tokenizer->end_of_text();
  std::int64_t tokens = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < o.samples; ++i) {
    if (o.samples > 1) write_out(fmt::format("--- sample {} of {} ---\n", i + 1, o.samples));
    options.seed = static_cast<std::uint64_t>(o.seed + i);
    tokens += write_text(model, *saved.tokenizer, prompt, ids, options);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (o.speed || ::isatty(STDERR_FILENO) == 1) print_speed(tokens, seconds);
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
