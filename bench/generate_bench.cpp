// Times generation, one token at a time, batch 1, from a model with random weights:
//
//   build/bin/generate_bench --model gpt2-124m --dtype bf16 --threads 2 --steps 50
//
// A step is one token: the time from one call of generate()'s callback to the next, greedy, after a prompt
// of --prompt tokens, whose keys and values are cached (nn/kv_cache.h). Each token reads all weights, but
// only one row of a lookup table. So the least time is "weight_bytes" over memory bandwidth. Prompt plus
// steps must stay within the context: beyond it nothing can be cached. Read next: bench/turns.h,
// train/gpt/generate.h.
#include "bench/gpt.h"
#include "bench/turns.h"
#include "core/parallel_for.h"
#include "core/random.h"
#include "parallel/mesh/mesh.h"
#include "train/gpt/generate.h"
#include "train/gpt/gpt_options.h"
#include "train/gpt/gpt_setup.h"
#include "train/gpt/validate_gpt.h"
#include "train/launch/ranks.h"
#include "train/program/launcher.h"
#include "train/program/program.h"

using namespace trireme;

namespace {

/// The tokens of the prompt.
std::vector<std::int32_t> random_prompt(std::int64_t length, std::int64_t vocab) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < length; ++i)
    ids.push_back(static_cast<std::int32_t>(random_word(1, 1, static_cast<std::uint64_t>(i)) %
                                            static_cast<std::uint64_t>(vocab)));
  return ids;
}

/// Generates a first token, which processes the whole prompt, then `count` tokens, and reports the time of each of
/// these.
void turn(Gpt& model, const std::vector<std::int32_t>& prompt, std::int64_t count, bool silent) {
  std::optional<bench::Usage> usage;
  generate(model, prompt, {.length = count + 1, .temperature = 0}, [&](std::int32_t) {
    if (usage && !silent) bench::Turns::say(usage->json());
    usage.emplace();
  });
}

/// How many weights a token reads. A tied embedding is read whole, as the head; a separate one is only looked up.
std::int64_t weights_read(const GptConfig& c) {
  std::int64_t unread_rows = c.tied ? 0 : c.vocab - 1;
  if (c.positions == PositionEncoding::learned) unread_rows += c.context - 1;
  return parameter_count(c) - unread_rows * c.width;
}

nlohmann::json facts(const GptOptions& o, std::int64_t prompt) {
  const GptConfig& c = o.model.config;
  return {{"parameters", parameter_count(c)},
          {"weight_bytes", weights_read(c) * static_cast<std::int64_t>(size_of(o.precision.dtype))},
          {"prompt", prompt},
          {"threads", threads()},
          {"dtype", name(o.precision.dtype)}};
}

void measure(const GptOptions& o, std::int64_t prompt_length, bench::Turns& turns, const Rank& rank) {
  const auto mesh = std::make_shared<const DeviceMesh>(rank.world, o.mesh.shape);
  const std::unique_ptr<Gpt> gpt = make_gpt(o, o.model.config, mesh);
  Gpt& model = *gpt;
  const std::vector<std::int32_t> prompt = random_prompt(prompt_length, o.model.config.vocab);
  turn(model, prompt, turns.warm_up(), true);
  bench::Turns::say({{"ready", facts(o, prompt_length)}});
  while (const std::int64_t count = turns.next()) turn(model, prompt, count, false);
  bench::Turns::say({{"end", {{"peak_rss", bench::Usage::peak_rss()}}}});
}

}  // namespace

int main(int argc, char** argv) {
  return run_program([&] {
    GptOptions options;
    options.model.vocab = options.model.config.vocab;
    std::int64_t prompt = 64;
    bench::Turns turns;
    Flags flags("generate_bench", "Times the generation of tokens by a model with random weights.");
    turns.declare(flags);
    flags.add("prompt", "N", prompt, "tokens before the first that is generated", Range{.low = 1, .high = 1 << 20});
    declare_model(flags, options.model);
    flags.group("precision and machine");
    flags.add_choice("dtype", options.precision.dtype, {{"f32", DType::f32}, {"bf16", DType::bf16}}, "of weights");
    flags.add("threads", "N", options.precision.threads, "auto", "auto: all cores", Range{.low = 1, .high = 4096});
    if (!flags.parse_or_print(argc, argv)) return 0;
    if (launcher_ranks() > 1)
      fail(ExitCode::usage, "generate_bench",
           "{} processes would disturb each other; expected one; start it without "
           "mpirun",
           launcher_ranks());
    if (prompt > options.model.config.context)
      fail(ExitCode::usage, "generate_bench",
           "--prompt {} is longer than --context {}; expected at most as many tokens; change --prompt", prompt,
           options.model.config.context);
    resolve(options, 0);
    options.model.config = bench::model_on_random_tokens(options.model);
    validate(options);
    return run_ranks(options, [&](Rank& rank) { measure(options, prompt, turns, rank); });
  });
}
