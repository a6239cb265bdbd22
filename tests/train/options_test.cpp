// The flags of the training programs: defaults, presets, the inferred values, round trips.
#include "train/gpt/gpt_options.h"

#include <doctest/doctest.h>

#include <cmath>

#include "core/kernels.h"
#include "tests/support/errors.h"
#include "train/gpt/validate_gpt.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

GptOptions parse(const std::vector<std::string>& arguments) {
  GptOptions options;
  Flags flags("train_gpt", "");
  declare_all(flags, options);
  flags.parse(arguments);
  return options;
}

GptOptions resolved(const std::vector<std::string>& arguments, int launcher_ranks = 0) {
  GptOptions options = parse(arguments);
  resolve(options, launcher_ranks);
  return options;
}

/// The options that --config makes of what --print-config prints; printed again, they are the same text.
GptOptions taken_back(const std::string& text) {
  GptOptions again;
  Flags flags("", "");
  declare_all(flags, again);
  flags.read_config(text, "printed");
  resolve(again, 0);
  CHECK(config_text(again) == text);
  return again;
}

}  // namespace

TEST_CASE("a preset sets the model, and explicit flags override it wherever they stand") {
  const GptOptions plain = parse({"--model", "gpt2-124m"});
  CHECK(plain.model.config.layers == 12);
  CHECK(plain.model.config.width == 768);
  CHECK(plain.model.config.activation == Activation::gelu_tanh);
  CHECK(plain.model.vocab == 50257);
  for (const GptOptions& o : {parse({"--layers", "3", "--vocab=auto", "--model", "gpt2-124m"}),
                              parse({"--model", "gpt2-124m", "--vocab=auto", "--layers=3"})}) {
    CHECK(o.model.config.layers == 3);
    CHECK(o.model.config.heads == 12);
    CHECK_FALSE(o.model.vocab.has_value());
  }
}

TEST_CASE("a Llama is a GPT of other parts: by preset, or part by part") {
  const GptConfig preset = parse({"--model", "tinyllama-1.1b"}).model.config;
  CHECK(preset.key_value_heads() == 4);
  CHECK(preset.hidden() == 5632);
  const GptConfig c = parse({"--heads", "8", "--width", "256", "--kv-heads", "2", "--norm", "rms", "--positions",
                             "rope", "--activation", "swiglu", "--tied", "off"})
                          .model.config;
  CHECK(c.key_value_heads() == 2);
  CHECK(c.norm == Norm::rms);
  CHECK(c.positions == PositionEncoding::rope);
  CHECK_FALSE(c.tied);
  CHECK(c.hidden() == 704);  // 8/3 of 256 is 682.7
  CHECK(parse({"--width", "256"}).model.config.hidden() == 1024);
  CHECK(parse({"--width", "256", "--ffn-width", "100"}).model.config.hidden() == 100);
  CHECK(parse({"--heads", "3"}).model.config.key_value_heads() == 3);
}

TEST_CASE("sequence parallelism is on with tp unless said otherwise, and nothing without") {
  CHECK(resolved({"--mesh", "tp=2"}).mesh.parallelism().sequence);
  CHECK(resolved({"--mesh", "tp=2", "--sequence-parallel", "on"}).mesh.parallelism().sequence);
  CHECK_FALSE(resolved({"--mesh", "tp=2", "--sequence-parallel", "off"}).mesh.parallelism().sequence);
  CHECK_FALSE(resolved({"--mesh", "dp=2"}).mesh.parallelism().sequence);
  CHECK_FALSE(resolved({"--mesh", "dp=2", "--sequence-parallel", "on"}).mesh.parallelism().sequence);
}

TEST_CASE("what --print-config prints of a Llama, --config takes") {
  const std::string text = config_text(resolved({"--kv-heads", "3", "--norm", "rms", "--positions", "rope", "--tied",
                                                 "off", "--mesh", "tp=2", "--sequence-parallel", "off"}));
  CHECK(contains(text, "\"ffn-width\": \"auto\""));
  CHECK(contains(text, "\"sequence-parallel\": \"off\""));
  const GptOptions again = taken_back(text);
  CHECK(again.model.config.kv_heads == 3);
  CHECK(again.model.config.positions == PositionEncoding::rope);
  CHECK_FALSE(again.mesh.parallelism().sequence);
}

TEST_CASE("the parts of later decoders are printed, and taken back") {
  const std::string text = config_text(resolved({"--positions",
                                                 "rope",
                                                 "--rope-base",
                                                 "5e5",
                                                 "--rope-scaling",
                                                 "llama3:8,8192",
                                                 "--norm-eps",
                                                 "1e-6",
                                                 "--qk-norm",
                                                 "on",
                                                 "--window",
                                                 "128",
                                                 "--full-every",
                                                 "6",
                                                 "--logit-softcap",
                                                 "30",
                                                 "--attention-softcap",
                                                 "50",
                                                 "--activation",
                                                 "relu2",
                                                 "--rope-interleaved",
                                                 "on"}));
  const GptOptions again = taken_back(text);
  const GptConfig& c = again.model.config;
  CHECK(c.rope_base == 5e5);
  CHECK(c.rope_scaling == "llama3:8,8192");
  CHECK(c.rope_interleaved);
  CHECK(c.norm_eps == 1e-6);
  CHECK(c.qk_norm);
  CHECK(c.window == 128);
  CHECK(c.full_every == 6);
  CHECK(c.logit_softcap == 30);
  CHECK(c.attention_softcap == 50);
  CHECK(c.activation == Activation::relu2);
}

TEST_CASE("a preset on the command line overrides the sizes of a configuration file") {
  GptOptions options;
  Flags flags("", "");
  declare_all(flags, options);
  flags.read_config(R"({"layers": 3, "width": 96, "model": "custom"})", "c.json");
  flags.parse({"--model", "gpt2-350m"});
  CHECK(options.model.config.layers == 24);
  CHECK(options.model.config.width == 1024);
}

TEST_CASE("the vocabulary is the tokenizer's unless a larger one is asked for") {
  const ModelOptions automatic;
  CHECK(automatic.with_vocab(65).vocab == 65);
  ModelOptions given;
  given.vocab = 100;
  CHECK(given.with_vocab(65).vocab == 100);
  CHECK(failure([&] { (void)given.with_vocab(101); }) ==
        "64 trireme: [model] --vocab 100 is smaller than the tokenizer's vocabulary; expected at least 101; change or "
        "drop --vocab");
}

TEST_CASE("what --print-config prints, --config takes: the same options again") {
  const std::vector<std::string> arguments = {
      "--data",         "book.txt",  "--model",   "gpt2-124m", "--layers",       "4",   "--lr",       "0.0003",
      "--mesh",         "tp=2,dp=2", "--steps",   "77",        "--optimizer",    "sgd", "--momentum", "0.5",
      "--dtype",        "bf16",      "--clip",    "0.1",       "--bias",         "off", "--seed",     "5",
      "--eval-batches", "all",       "--threads", "1",         "--global-batch", "24"};
  const GptOptions options = resolved(arguments);
  const std::string text = config_text(options);
  CHECK(contains(text, "\"mesh\": \"dp=2,tp=2,pp=1\""));
  CHECK(contains(text, "\"micro-batch\": 12"));
  CHECK(contains(text, "\"micro-batches\": \"auto\""));
  CHECK(contains(text, "\"lr\": 0.0003,"));
  const GptOptions again = taken_back(text);
  CHECK(again.precision.dtype == DType::bf16);
  CHECK(again.schedule.lr == 0.0003);
  CHECK_FALSE(again.run.eval_batches.has_value());
}

TEST_CASE("a saved configuration runs on another mesh with the same global batch") {
  const std::string text = config_text(resolved({"--micro-batch", "3", "--micro-batches", "4"}));
  GptOptions other;
  Flags flags("", "");
  declare_all(flags, other);
  flags.read_config(text, "config.json");
  flags.parse({"--mesh", "dp=2"});
  resolve(other, 0);
  CHECK(other.batch_sizes().global_batch == 12);
  CHECK(other.batch_sizes().micro_batches == 2);
}

TEST_CASE("ranks are threads without a launcher and processes under one") {
  CHECK_FALSE(resolved({}).mesh.processes);
  CHECK(resolved({"--mesh", "dp=auto,tp=2"}, 8).mesh.processes);
  CHECK(resolved({"--mesh", "dp=auto,tp=2"}, 8).mesh.ranks == "auto");  // a saved configuration works either way
  CHECK(resolved({"--mesh", "dp=auto,tp=2"}, 8).mesh.shape.size(Axis::dp) == 4);
  CHECK_FALSE(resolved({"--ranks", "threads"}, 1).mesh.processes);
  CHECK(resolved({"--ranks", "mpi"}).mesh.processes);
  CHECK(contains(failure([] { resolved({"--ranks", "mpi", "--mesh", "dp=2"}); }), "64 "));
  CHECK(contains(failure([] {
                   resolved({"--ranks", "threads"}, 8);
                 }),
                 "64 trireme: [mesh] --ranks threads under a launcher of 8 processes"));
  CHECK(contains(failure([] { resolved({"--mesh", "dp=3"}, 8); }), "64 "));
  CHECK(contains(failure([] { resolved({"--mesh", "dp=2,ranks=4"}); }), "unknown axis 'ranks'"));
}

TEST_CASE("defaults that depend on other options") {
  GptOptions o;
  o.schedule.lr = 1e-3;
  o.schedule.steps = 2000;
  CHECK(o.schedule.final_lr() == doctest::Approx(1e-4));
  CHECK(o.schedule.decay_begin() == 0);
  CHECK(o.schedule.decay_end() == 2000);
  o.schedule.lr_schedule = optim::LrShape::wsd;
  CHECK(o.schedule.decay_begin() == 1800);
  CHECK(o.schedule.decay_end() == 2000);
  o.schedule.steps = 3;
  CHECK(o.schedule.decay_begin() == 2);
  o.schedule.min_lr = 0.0;
  CHECK(o.schedule.final_lr() == 0);
  CHECK_FALSE(o.corpus().tokenizer.has_value());
  o.data.tokenizer = "byte";
  CHECK(o.corpus().tokenizer == "byte");
}

TEST_CASE("what to recompute and how to scale the loss are read and checked") {
  using Kind = nn::Recompute::Kind;
  const auto plan = [](const char* text) {
    PrecisionOptions o;
    o.recompute = text;
    return o.recompute_plan();
  };
  CHECK(plan("none").kind == Kind::none);
  CHECK(plan("selective").kind == Kind::selective);
  CHECK(plan("full").of_block(0));
  CHECK(plan("every:3").of_block(2));
  CHECK_FALSE(plan("every:3").of_block(3));
  for (const char* bad : {"every:0", "every:", "every:2x", "ful", ""})
    CHECK(contains(failure([&] { plan(bad); }), "expected none, selective, full or every:K"));

  PrecisionOptions f16;
  f16.dtype = DType::f16;
  CHECK(f16.make_scaler().active());
  CHECK(f16.make_scaler().scale() == 65536);
  f16.loss_scale = "128";
  CHECK(f16.make_scaler().scale() == 128);
  for (const char* bad : {"0", "-1", "none", "1x", "inf", "nan"}) {
    f16.loss_scale = bad;
    CHECK(contains(failure([&] { f16.make_scaler(); }), "f16 needs a scale"));
  }
  f16.loss_scale = "128";
  f16.scaling.window = 5;
  CHECK(contains(failure([&] { f16.make_scaler(); }), "have no effect with --loss-scale 128, which is fixed"));
  f16.loss_scale = "dynamic";
  CHECK(f16.make_scaler().active());
  PrecisionOptions f32;
  CHECK_FALSE(f32.make_scaler().active());
  f32.loss_scale = "dynamic";
  CHECK(contains(failure([&] { f32.make_scaler(); }), "expected --dtype f16"));
}

TEST_CASE("implementations by name: auto is what the device has best, and a name is the device's own") {
  CHECK(resolved({}).precision.gemm == gemm_names().front());
  CHECK(resolved({"--gemm", "auto"}).precision.gemm == gemm_names().front());
  CHECK(resolved({"--gemm", "eigen"}).precision.gemm == "eigen");
  CHECK(resolved({}).precision.attention == "auto");
  GptOptions o = resolved({"--micro-batch", "4"});
  o.precision.gemm = "sm90";
  CHECK(contains(failure([&] { validate(o); }), "--gemm sm90 is not for --device cpu; expected auto, trireme"));
  o.precision.gemm = "eigen";
  o.precision.attention = "sm80";
  CHECK(contains(failure([&] { validate(o); }),
                 "--attention sm80 is not for --device cpu; expected auto, trireme; change"));
  o.precision.attention = "trireme";  // what the CPU has
  CHECK_NOTHROW(validate(o));
  CHECK(contains(failure([] { parse({"--attention", "abacus"}); }), "--attention: expected "));
}

TEST_CASE("every flag refuses a value that it does not take, and is named") {
  GptOptions options;
  Flags flags("train_gpt", "");
  declare_all(flags, options);
  for (const Flags::Declared& flag : flags.declared()) {
    std::vector<std::string> wrong;
    if (flag.kind != Flags::Kind::text || !flag.choices.empty()) wrong.emplace_back("no-such-value");
    if (std::isfinite(flag.range.low)) wrong.push_back(fmt::format("{}", flag.range.low - 1));
    if (std::isfinite(flag.range.high)) wrong.push_back(fmt::format("{}", flag.range.high + 1));
    for (const std::string& value : wrong)
      CHECK_MESSAGE(contains(failure([&] { parse({fmt::format("--{}={}", flag.name, value)}); }), "--" + flag.name),
                    value);
  }
}

TEST_CASE("help lists every flag of the command-line contract once") {
  GptOptions options;
  Flags flags("train_gpt", "");
  declare_all(flags, options);
  const std::string help = flags.help_text();
  const auto check_listed = [&help](const char* flag) {
    const std::string head = fmt::format("\n  --{}", flag);
    std::size_t found = 0;
    for (std::size_t at = help.find(head); at != std::string::npos; at = help.find(head, at + 1)) {
      const char after = help[at + head.size()];
      found += after == ' ' || after == '\n' ? 1U : 0U;
    }
    CHECK_MESSAGE(found == 1, "--", flag);
  };
  for (const char* flag : {"data",
                           "tokenizer",
                           "val-fraction",
                           "model",
                           "layers",
                           "heads",
                           "width",
                           "context",
                           "vocab",
                           "dropout",
                           "bias",
                           "activation",
                           "micro-batch",
                           "global-batch",
                           "micro-batches",
                           "steps",
                           "lr",
                           "min-lr",
                           "warmup-steps",
                           "warmup-lr",
                           "decay-steps",
                           "lr-schedule",
                           "optimizer",
                           "weight-decay",
                           "beta1",
                           "beta2",
                           "eps",
                           "momentum",
                           "nesterov",
                           "muon-lr",
                           "muon-scale",
                           "adafactor-decay",
                           "adafactor-clip",
                           "adafactor-relative",
                           "clip",
                           "lr-factor",
                           "decay-factor",
                           "ema-decay",
                           "moments",
                           "eval-ema",
                           "mesh",
                           "pipeline",
                           "ranks",
                           "reduction",
                           "dtype",
                           "device",
                           "gemm",
                           "attention",
                           "threads",
                           "pin",
                           "keep-packed",
                           "seed",
                           "eval-every",
                           "eval-batches",
                           "sample-every",
                           "sample-length",
                           "out",
                           "log-every",
                           "resume",
                           "dry-run",
                           "quiet",
                           "verbose",
                           "json",
                           "config",
                           "print-config",
                           "help",
                           "recompute",
                           "loss-scale",
                           "verify",
                           "timeout",
                           "stage-layers",
                           "checkpoint-every",
                           "checkpoint-minutes",
                           "keep",
                           "keep-best"}) {
    check_listed(flag);
  }
  for (const char* flag : {"kv-heads", "ffn-width", "norm", "positions", "tied", "sequence-parallel"})
    check_listed(flag);
  CHECK(contains(help, fmt::format("--gemm {}", gemm_names().front())));
  CHECK(contains(failure([] { parse({"--gemm", "slide-rule"}); }), "--gemm: expected one of "));
}
