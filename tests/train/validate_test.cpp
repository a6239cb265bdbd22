// Impossible combinations of flags: each is refused with flag, value and what is possible.
#include "train/gpt/validate_gpt.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "core/io.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

std::string refusal(const std::vector<std::string>& arguments) {
  return failure([&] {
    GptOptions options;
    Flags flags("", "");
    declare_all(flags, options);
    flags.parse(arguments);
    resolve(options, 0);
    validate(options);
  });
}

}  // namespace

TEST_CASE("combinations that work are let through") {
  CHECK(refusal({}) == "nothing");
  CHECK(refusal({"--heads", "4", "--width", "128", "--layers", "4", "--mesh", "dp=2,tp=4,pp=4"}) == "nothing");
  CHECK(refusal({"--layers", "5", "--mesh", "pp=4"}) == "nothing");  // uneven stages
  CHECK(refusal({"--optimizer", "sgd", "--momentum", "0"}) == "nothing");
  CHECK(refusal({"--lr-schedule", "constant"}) == "nothing");
  CHECK(refusal({"--warmup-steps", "1000", "--steps", "1000"}) == "nothing");
}

TEST_CASE("weights stay packed only where our own product packs them whole") {
  CHECK(refusal({"--keep-packed", "on", "--micro-batches", "4", "--mesh", "dp=2", "--zero", "2"}) == "nothing");
  CHECK(refusal({"--keep-packed", "on", "--gemm", "trireme", "--micro-batches", "2"}) == "nothing");
  CHECK(contains(refusal({"--keep-packed", "on"}), "64 trireme: [keep-packed] --keep-packed on with one micro-batch"));
  CHECK(contains(refusal({"--keep-packed", "on", "--gemm", "eigen"}), "--gemm trireme, which packs weights itself"));
  CHECK(contains(refusal({"--keep-packed", "on", "--mesh", "dp=2", "--zero", "3"}),
                 "weights are there only while they are used"));
}

TEST_CASE("a spike's window: what is allowed, and that 0 is not what turns the detector off") {
  for (const std::string window : {"0", "4", "-1", "1048577"})
    CHECK(refusal({"--spike-threshold", "9", "--spike-window", window}) ==
          fmt::format("64 trireme: [guards] --spike-window {}: a loss is compared with the median of this many losses; "
                      "expected 5 to 1048576; change --spike-window, or turn the detector off with --spike-threshold 0",
                      window));
  const std::vector<std::string> detector = {"--spike-threshold",  "9", "--out",         "run",
                                             "--checkpoint-every", "5", "--spike-window"};
  for (const std::string window : {"5", "100", "1048576"}) {
    std::vector<std::string> arguments = detector;
    arguments.push_back(window);
    CHECK(refusal(arguments) == "nothing");
  }
  CHECK(refusal({"--spike-window", "many"}) ==
        "64 trireme: [flags] --spike-window: expected an integer; got \"many\"; change --spike-window");
  CHECK(refusal({"--spike-rollbacks", "-1"}) ==
        "64 trireme: [flags] --spike-rollbacks: expected an integer in [0, 1073741824]; got \"-1\"; change "
        "--spike-rollbacks");
  CHECK(refusal({"--spike-window", "100"}) == "nothing");  // the default may be given
}

TEST_CASE("what --zero 3 may be tuned to is told as a range, and not by the default") {
  CHECK(refusal({"--zero-prefetch", "65"}) ==
        "64 trireme: [flags] --zero-prefetch: expected an integer in [0, 64]; got \"65\"; change --zero-prefetch");
  CHECK(refusal({"--zero-resident", "-1"}) ==
        "64 trireme: [flags] --zero-resident: expected an integer of at least 0; got \"-1\"; change --zero-resident");
}

TEST_CASE("a profile needs steps to record and a folder to be written to") {
  CHECK(refusal({"--profile", "trace.json"}) == "nothing");
  const TempFolder folder;
  const std::string absent = folder / "absent";
  CHECK(contains(refusal({"--profile", absent + "/trace.json"}), "there is no folder " + absent));
  CHECK(contains(refusal({"--profile", "/tmp"}), "--profile /tmp is a folder"));
  CHECK(contains(refusal({"--profile", "/dev/null"}), "--profile /dev/null is a device"));
  CHECK(contains(refusal({"--profile", "trace.json", "--steps", "2"}), "after the first 2, and --steps is 2"));
  CHECK(refusal({"--profile", "trace.json", "--profile-steps", "5"}) == "nothing");
  CHECK(contains(refusal({"--profile-steps", "5"}),
                 "64 trireme: [profile] --profile-steps has no effect without --profile"));
}

TEST_CASE("a profile replaces nothing but a profile") {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "run" / "checkpoints");
  const auto file = (folder / "file").string(), out = (folder / "run").string();
  write_file(file, "a text to learn from");
  CHECK(
      contains(refusal({"--profile", file}), "64 trireme: [profile] --profile " + file + " exists and is not a trace"));
  CHECK(read_file(file) == "a text to learn from");
  write_file(file, "");  // as mktemp makes them
  CHECK(refusal({"--profile", file}) == "nothing");
  write_file(file, R"({"displayTimeUnit": "ms", "traceEvents": []})");
  CHECK(refusal({"--profile", file}) == "nothing");

  for (const std::string name : {"/metrics.jsonl", "/checkpoints/trace.json", "/../run/config.json"})
    CHECK(contains(refusal({"--out", out, "--profile", out + name}), "is in the folder of --out"));
  CHECK(refusal({"--out", out, "--profile", file}) == "nothing");
  CHECK(refusal({"--out", out, "--profile", out + ".json"}) == "nothing");
}

TEST_CASE("recomputing every K-th block needs K blocks") {
  CHECK(refusal({"--layers", "4", "--recompute", "every:4"}) == "nothing");
  CHECK(contains(refusal({"--layers", "4", "--recompute", "every:5"}),
                 "64 trireme: [--recompute] every:5 of 4 layers recomputes no block; expected at most every:4"));
}

TEST_CASE("pipelines: schedules and stages that fit, and those that do not") {
  CHECK(refusal({"--layers", "4", "--mesh", "pp=2", "--pipeline", "interleaved:2"}) == "nothing");
  CHECK(refusal({"--layers", "4", "--pipeline", "interleaved:4"}) == "nothing");  // chunks of one rank
  CHECK(refusal({"--layers", "4", "--mesh", "pp=4", "--pipeline", "zero-bubble"}) == "nothing");
  CHECK(refusal({"--layers", "8", "--mesh", "pp=3", "--stage-layers", "2,5,1"}) == "nothing");
  CHECK(refusal({"--layers", "8", "--mesh", "pp=2", "--pipeline", "interleaved:2", "--stage-layers", "2,3,2,1"}) ==
        "nothing");

  CHECK(refusal({"--layers", "5", "--mesh", "pp=2", "--pipeline", "interleaved:3"}) ==
        "64 trireme: [--pipeline] --layers 5 are fewer than 2 x 3 = 6 stages (pp=2 ranks of --pipeline "
        "interleaved:3), and a stage holds at least one layer; expected at most 5 stages; change --layers, --pipeline, "
        "or pp in --mesh");
  for (const char* name : {"interleaved", "interleaved:", "interleaved:0", "interleaved:-2", "interleaved:two",
                           "interleaved:1.5", "zigzag", ""}) {
    const std::string refused = refusal({"--pipeline", name});
    CHECK_MESSAGE(contains(refused, "64 trireme: [pipeline]"), name, ": ", refused);
    CHECK_MESSAGE(contains(refused, "(--pipeline)"), name, ": ", refused);
  }
  CHECK(contains(refusal({"--layers", "8", "--mesh", "pp=3", "--stage-layers", "3,3,3"}),
                 "places 3 + 3 + 3 = 9 layers; the model has 8; change --stage-layers or --layers"));
  CHECK(contains(refusal({"--layers", "8", "--mesh", "pp=2", "--stage-layers", "3,3,2"}),
                 "names 3 stages; the pipeline has 2"));
  CHECK(
      contains(refusal({"--layers", "8", "--mesh", "pp=2", "--stage-layers", "8,0"}), "is not a list of layer counts"));
}

TEST_CASE("model against itself and against the mesh") {
  CHECK(refusal({"--width", "100", "--heads", "3"}) ==
        "64 trireme: [model] --width 100 is not a multiple of --heads 3: 100 / 3 leaves 1; expected --heads that "
        "divide the width; change --width or --heads, or give --head-width");
  CHECK(refusal({"--heads", "6", "--width", "384", "--mesh", "tp=4"}) ==
        "64 trireme: [model] --heads 6 cannot be shared by tp=4 ranks: 6 / 4 leaves 2; expected tp of 1, 2, 3 or 6; "
        "change --heads, or tp in "
        "--mesh");
  CHECK(refusal({"--layers", "3", "--mesh", "pp=4"}) ==
        "64 trireme: [model] --layers 3 are fewer than pp=4 stages, and a stage holds at least one layer; expected pp "
        "of at most 3; change "
        "--layers, or pp in --mesh");
}

TEST_CASE("a sequence cut over cp: its length, and the heads that ulysses exchanges") {
  const std::vector<std::string> model = {"--heads", "4", "--width", "64", "--context", "48"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), model.begin(), model.end());
    return refusal(more);
  };
  CHECK(with({"--mesh", "cp=2"}) == "nothing");
  CHECK(with({"--mesh", "cp=4", "--context-parallel", "ulysses"}) == "nothing");
  CHECK(with({"--mesh", "cp=2,tp=2", "--context-parallel", "ulysses"}) == "nothing");
  CHECK(with({"--mesh", "cp=5"}) ==
        "64 trireme: [model] --context 48 cannot be cut into 2 x cp = 10 chunks: 48 / 10 leaves 8; expected a multiple "
        "of 10; change --context, or cp in --mesh");
  CHECK(with({"--mesh", "cp=4,tp=2", "--context-parallel", "ulysses"}) ==
        "64 trireme: [model] --context-parallel ulysses exchanges heads for tokens, and cp=4 ranks cannot share the 2 "
        "heads that tp=2 leaves of --heads 4: 2 / 4 leaves 2; expected cp of 1 or 2; change cp in --mesh or --heads, "
        "or use --context-parallel ring");
  CHECK(with({"--mesh", "cp=4,tp=2"}) == "nothing");  // the ring does not split heads
  CHECK(with({"--mesh", "cp=2,tp=2", "--kv-heads", "2"}) == "nothing");
  CHECK(contains(with({"--mesh", "cp=2,tp=2", "--kv-heads", "2", "--context-parallel", "ulysses"}),
                 "cp=2 ranks cannot share the 1 heads that tp=2 leaves of --kv-heads 2: 1 / 2 leaves 1"));
  CHECK(contains(with({"--context", "52", "--mesh", "cp=2,tp=4"}),
                 "each of cp x tp = 2 x 4 = 8 ranks an equal part of --context 52: 52 / 8 leaves 4"));
  CHECK(contains(with({"--context-parallel", "ulysses"}), "--context-parallel has no effect with --mesh"));
}

TEST_CASE("a run prints in one way") {
  for (const char* flag : {"--quiet", "--verbose", "--json"}) CHECK(refusal({flag}) == "nothing");
  CHECK(contains(refusal({"--quiet", "--verbose"}), "64 trireme: [output] --quiet with --verbose"));
  CHECK(contains(refusal({"--quiet", "--dry-run"}), "64 trireme: [output] --quiet with --dry-run"));
  CHECK(contains(refusal({"--quiet", "--json"}), "64 trireme: [output] --json with --quiet"));
  CHECK(contains(refusal({"--json", "--verbose"}), "64 trireme: [output] --json with --verbose"));
}

TEST_CASE("checkpoints need a folder") {
  CHECK(refusal({"--checkpoint-every", "5", "--out", "none"}) ==
        "64 trireme: [checkpoint] --checkpoint-every has no effect with --out none, as checkpoints are in that folder; "
        "expected --out DIR or auto; change --out or drop it");
  for (const auto& flags : std::vector<std::vector<std::string>>{
           {"--checkpoint-minutes", "0.5"}, {"--keep", "2"}, {"--resume", "auto"}, {"--checkpoint-every", "5"}}) {
    const auto with_out = [&](const std::string& out) {
      std::vector<std::string> all = flags;
      all.insert(all.end(), {"--out", out});
      return refusal(all);
    };
    CHECK(contains(with_out("none"), "--out"));
    CHECK(with_out("run") == "nothing");
    if (flags.front() == "--resume")
      CHECK(contains(refusal(flags), "--resume auto continues the run in the folder of --out, and --out is auto"));
    else
      CHECK(refusal(flags) == "nothing");
  }
}

TEST_CASE("threads that no machine has") {
  CHECK(contains(refusal({"--mesh", "dp=100000"}), "are 100000 ranks; expected at most 1024 as threads"));
  CHECK(
      contains(refusal({"--threads", "100000"}), "--threads 100000 x 1 ranks = 100000 threads; expected at most 4096"));
}

TEST_CASE("a fast reduction needs processes") {
  CHECK(refusal({"--mesh", "dp=2", "--reduction", "exact"}) == "nothing");
  CHECK(refusal({"--mesh", "dp=2", "--reduction", "auto"}) == "nothing");
  CHECK(refusal({"--mesh", "dp=2", "--reduction", "fast"}) ==
        "64 trireme: [reduction] --reduction fast lets NCCL or MPI add, and ranks that are threads use neither; "
        "expected auto or exact, or a launcher; change or drop --reduction, or start processes with mpirun");
  CHECK(refusal({"--ranks", "mpi", "--reduction", "fast"}) == "nothing");
}

TEST_CASE("documents") {
  CHECK(refusal({"--document-mask", "on"}) == "nothing");
  CHECK(refusal({"--document-mask", "on", "--document-separator", "3"}) == "nothing");
  CHECK(refusal({"--packing", "best-fit", "--document-separator", "3"}) == "nothing");
  CHECK(
      contains(refusal({"--document-separator", "3"}), "--document-separator has no effect with --document-mask off"));
  DataOptions o;
  CHECK(o.separator(7, 10) == std::nullopt);
  o.document_mask = true;
  CHECK(o.separator(7, 10) == 7);
  CHECK(contains(failure([&] { o.separator(std::nullopt, 10); }), "this tokenizer has no end-of-text token"));
  o.document_separator = 3;
  CHECK(o.separator(std::nullopt, 10) == 3);
  o.document_separator = 10;
  CHECK(
      contains(failure([&] { o.separator(7, 10); }), "--document-separator 10 is not a token: the vocabulary has 10"));
}

TEST_CASE("experts") {
  CHECK(refusal({"--experts", "8", "--mesh", "dp=4,ep=4"}) == "nothing");
  CHECK(
      refusal({"--experts", "6", "--mesh", "dp=4,ep=4"}) ==
      "64 trireme: [experts] --experts 6 cannot be shared by ep=4 ranks: 6 / 4 leaves 2; expected ep of 1, 2, 3 or 6; "
      "change --experts, or ep in --mesh");
  CHECK(
      contains(refusal({"--experts", "2", "--top-k", "3"}), "--top-k 3 is more than --experts 2; expected at most 2"));
  CHECK(contains(refusal({"--experts", "4", "--top-k", "1", "--router-norm", "after"}),
                 "the softmax of one chosen expert is always 1, so the router would not learn"));
  CHECK(contains(refusal({"--moe-every", "2"}),
                 "--moe-every has no effect with --experts 0; expected --experts above 0"));
  CHECK(refusal({"--experts", "4", "--moe-every", "2"}) == "nothing");
  CHECK(contains(refusal({"--experts", "4", "--layers", "4", "--moe-every", "5"}),
                 "--moe-every 5 of 4 layers leaves 4 / 5 = 0 blocks with experts; expected at most 4"));
  CHECK(contains(refusal({"--mesh", "dp=2,ep=2"}), "[--mesh] ep=2 divides experts over ranks, and there are none"));
  CHECK(contains(refusal({"--experts", "4", "--capacity-factor", "0"}), "--capacity-factor"));
  CHECK(contains(refusal({"--experts", "4", "--capacity-factor", "-1"}), "--capacity-factor"));
  CHECK(contains(refusal({"--experts", "4", "--expert-ffn-width", "7", "--mesh", "tp=2"}),
                 "experts of 7 hidden features cannot be split over tp=2 ranks"));
  const std::vector<std::pair<std::string, std::string>> others = {
      {"--expert-ffn-width", "8"}, {"--top-k", "3"},    {"--router-norm", "after"}, {"--capacity-factor", "1.5"},
      {"--shared-experts", "1"},   {"--aux-loss", "0"}, {"--z-loss", "0"},          {"--aux-scope", "batch"}};
  for (const auto& [flag, value] : others) {
    CHECK(contains(refusal({flag, value}), flag + " has no effect with --experts 0; expected --experts above 0"));
    CHECK(refusal({"--experts", "4", flag, value}) == "nothing");
  }
  CHECK(contains(refusal({"--experts", "4", "--aux-scope", "batch", "--aux-loss", "0"}),
                 "--aux-scope has no effect with --aux-loss 0; expected --aux-loss above 0"));
  CHECK(contains(refusal({"--experts", "4", "--aux-scope", "batch", "--micro-batch", "2", "--global-batch", "8"}),
                 "8 sequences / (micro-batch 2 x dp) are 4 micro-batches; expected 1"));
}

TEST_CASE("parts of later decoders: what has no effect, and what is no value") {
  CHECK(refusal({"--width", "50", "--heads", "4", "--head-width", "8"}) == "nothing");
  CHECK(contains(refusal({"--positions", "rope", "--head-width", "7"}),
                 "a head has --head-width 7 of them; expected an even"));
  CHECK(contains(refusal({"--head-width", "0"}), "--head-width"));
  CHECK(contains(refusal({"--chat-template", "chatml", "--packing", "best-fit"}),
                 "--packing has no effect with --chat-template chatml"));
  CHECK(contains(refusal({"--lora-alpha", "8"}), "--lora-alpha has no effect with --lora-rank 0"));
  CHECK(contains(refusal({"--lora-targets", "*.attn.q"}), "--lora-targets has no effect with --lora-rank 0"));
  CHECK(refusal({"--lora-rank", "4", "--lora-dropout", "0.1", "--lora-targets", "*.up"}) == "nothing");
  CHECK(contains(refusal({"--qkv-bias", "on"}), "--qkv-bias has no effect with --bias on"));
  CHECK(refusal({"--qkv-bias", "on", "--bias", "off"}) == "nothing");
  CHECK(contains(refusal({"--rope-base", "500000"}), "--rope-base has no effect with --positions learned"));
  CHECK(contains(refusal({"--rope-scaling", "linear:2"}), "--rope-scaling has no effect with --positions learned"));
  CHECK(contains(refusal({"--rope-interleaved", "on"}), "--rope-interleaved has no effect with --positions learned"));
  CHECK(contains(refusal({"--window-every", "2"}), "--window-every has no effect with --window auto"));
  CHECK(contains(refusal({"--full-every", "2"}), "--full-every has no effect with --window auto"));
  CHECK(contains(refusal({"--window", "8", "--full-every", "2", "--window-every", "2"}),
                 "--window-every has no effect with --full-every 2"));
  CHECK(refusal({"--window", "8", "--full-every", "2"}) == "nothing");
  CHECK(refusal({"--window", "8", "--window-every", "2"}) == "nothing");
  CHECK(contains(refusal({"--restart-positions", "on"}), "--restart-positions has no effect with --document-mask off"));
  const auto scaling = [](const std::string& text) { return refusal({"--positions", "rope", "--rope-scaling", text}); };
  for (const char* text :
       {"none", "linear:2", "llama3:8,8192", "llama3:8,8192,1,4", "yarn:4,32768", "yarn:4,4096,1,32"})
    CHECK(scaling(text) == "nothing");
  for (const char* text : {"linear", "linear:", "linear:x", "linear:2,3", "llama3:8", "llama3:8,8192,1", "yarn:4,",
                           "ntk:2", "linear:2 ", "yarn:inf,4"})
    CHECK_MESSAGE(contains(scaling(text), "[rope scaling]"), text, ": ", scaling(text));
  CHECK(scaling("linear:0.5") ==
        "64 trireme: [rope scaling] 'linear:0.5' has a factor below 1; expected none, linear:F, "
        "llama3:F,ORIGINAL[,LOW,HIGH] or yarn:F,ORIGINAL[,LOW,HIGH], as in llama3:8,8192; change the text of "
        "parse_rope_scaling() (--rope-scaling)");
  CHECK(contains(scaling("yarn:4,0"), "has an original context below 1"));
  CHECK(contains(scaling("llama3:8,8192,4,1"), "needs 0 < LOW < HIGH"));
  CHECK(contains(refusal({"--window-rope-base", "100", "--positions", "rope"}),
                 "--window-rope-base has no effect with --window auto"));
  CHECK(contains(refusal({"--window-rope-base", "100", "--window", "8"}),
                 "--window-rope-base has no effect with --positions learned"));
  for (const char* flag : {"--norm-eps", "--query-pre-attn-scalar", "--window", "--window-every", "--logit-softcap",
                           "--attention-softcap"})
    CHECK(contains(refusal({flag, "0"}), flag));
}

TEST_CASE("key-value heads, hidden features, rotated pairs and positions that do not divide") {
  CHECK(refusal({"--heads", "6", "--width", "384", "--kv-heads", "4"}) ==
        "64 trireme: [model] --kv-heads 4 cannot be shared by --heads 6: 6 / 4 leaves 2; expected --kv-heads of 1, 2, "
        "3 or 6; change --kv-heads or --heads");
  CHECK(refusal({"--heads", "12", "--width", "384", "--kv-heads", "3", "--mesh", "tp=2"}) ==
        "64 trireme: [model] --kv-heads 3 cannot be shared by tp=2 ranks: 3 / 2 leaves 1, and 2 / 3 leaves 2; expected "
        "that one divides the other; change --kv-heads, or tp in --mesh");
  CHECK(refusal({"--heads", "12", "--width", "384", "--kv-heads", "2", "--mesh", "tp=4"}) == "nothing");
  CHECK(
      contains(refusal({"--ffn-width", "101", "--mesh", "tp=2"}),
               "an MLP of 101 hidden features cannot be split over tp=2 ranks: 101 / 2 leaves 1; change --ffn-width"));
  CHECK(contains(refusal({"--heads", "4", "--width", "36", "--positions", "rope"}),
                 "--positions rope turns pairs of features, and a head has --width 36 / --heads 4 = 9 of them"));
  CHECK(refusal({"--context", "33", "--mesh", "tp=2"}) ==
        "64 trireme: [mesh] sequence parallelism gives each of tp=2 ranks an equal part of --context 33: 33 / 2 leaves "
        "1; change --context or tp in --mesh, or give --sequence-parallel off");
  CHECK(refusal({"--context", "33", "--mesh", "tp=2", "--sequence-parallel", "off"}) == "nothing");
  CHECK(refusal({"--context", "33", "--sequence-parallel", "on"}) == "nothing");  // tp=1: nothing is cut
}

TEST_CASE("schedule") {
  CHECK(contains(refusal({"--lr", "1e-4", "--min-lr", "1e-3"}),
                 "64 trireme: [schedule] --min-lr 0.001 is above --lr 0.0001; expected at most 0.0001"));
  CHECK(contains(refusal({"--steps", "10", "--warmup-steps", "11"}),
                 "--warmup-steps 11 is more than --steps 10; expected at most 10"));
  CHECK(contains(refusal({"--warmup-steps", "10", "--lr", "0.1", "--warmup-lr", "0.2"}),
                 "--warmup-lr 0.2 is above --lr 0.1, to which the rate rises; expected at most 0.1"));
  CHECK(contains(refusal({"--warmup-lr", "0"}), "--warmup-lr has no effect with --warmup-steps 0"));
  CHECK(refusal({"--warmup-steps", "10", "--warmup-lr", "0"}) == "nothing");
  CHECK(contains(refusal({"--warmup-steps", "100", "--decay-steps", "50"}),
                 "--decay-steps 50 comes before --warmup-steps 100 are over; expected at least 100"));
  CHECK(contains(refusal({"--lr-schedule", "wsd", "--steps", "10", "--warmup-steps", "5", "--decay-steps", "6"}),
                 "5 + --decay-steps 6 = 11 is more than --steps 10"));
  CHECK(contains(refusal({"--lr-schedule", "constant", "--min-lr", "0"}),
                 "--min-lr has no effect with --lr-schedule constant; expected --lr-schedule cosine, linear or wsd"));
  CHECK(contains(refusal({"--lr-schedule", "constant", "--decay-steps", "5"}), "--decay-steps has no effect"));
}

TEST_CASE("optimizer flags that would be ignored") {
  CHECK(
      refusal({"--momentum", "0.5"}) ==
      "64 trireme: [optimizer] --momentum has no effect with --optimizer adamw; expected --optimizer sgd or muon; drop "
      "--momentum or change --optimizer");
  CHECK(contains(refusal({"--optimizer", "sgd", "--beta1", "0.8"}), "--beta1 has no effect"));
  CHECK(contains(refusal({"--optimizer", "sgd", "--beta2", "0.8"}), "--beta2 has no effect"));
  CHECK(contains(refusal({"--optimizer", "sgd", "--eps", "1"}), "--eps has no effect"));
  CHECK(contains(refusal({"--optimizer", "lion", "--eps", "1"}), "--eps has no effect with --optimizer lion"));
  CHECK(contains(refusal({"--optimizer", "lion", "--nesterov", "on"}), "--nesterov has no effect"));
  CHECK(contains(refusal({"--lr-factor", "wte.weight=0.5,head"}),
                 "64 trireme: [--lr-factor] 'head' is not of the form PATTERN=F, with F at least 0"));
  CHECK(contains(refusal({"--decay-factor", "wte.*=-1"}), "[--decay-factor] 'wte.*=-1' is not of the form"));
  CHECK(refusal({"--lr-factor", "wte.weight=0.5,blocks.*=1e-1"}) == "nothing");
  CHECK(contains(refusal({"--eval-ema", "on"}), "--eval-ema has no effect with --ema-decay none"));
  CHECK(contains(refusal({"--muon-lr", "0.1"}), "--muon-lr has no effect with --optimizer adamw"));
  CHECK(contains(refusal({"--optimizer", "lion", "--muon-scale", "match-rms-adamw"}), "--muon-scale has no effect"));
  CHECK(refusal({"--optimizer", "muon", "--muon-lr", "0.1", "--momentum", "0", "--nesterov", "off"}) == "nothing");
  CHECK(refusal({"--optimizer", "adafactor", "--adafactor-clip", "0.5", "--adafactor-relative", "on"}) == "nothing");
  CHECK(contains(refusal({"--adafactor-decay", "0.5"}), "--adafactor-decay has no effect with --optimizer adamw"));
  CHECK(contains(refusal({"--optimizer", "adafactor", "--beta2", "0.9"}), "--beta2 has no effect"));
  CHECK(contains(refusal({"--optimizer", "adafactor", "--moments", "bf16"}),
                 "keeps only a row and a column of each matrix; expected --moments f32"));
  for (const char* optimizer : {"sgd", "muon"}) {
    CHECK(contains(refusal({"--optimizer", optimizer, "--nesterov", "on", "--momentum", "0"}),
                   "--nesterov on looks ahead along the momentum, got --momentum 0; expected above 0"));
  }
}

TEST_CASE("run") {
  CHECK(contains(refusal({"--val-fraction", "0", "--eval-every", "10"}),
                 "--eval-every 10 needs validation text, and --val-fraction is 0"));
  CHECK(contains(refusal({"--steps", "5", "--sample-every", "10"}), "--sample-every 10 is more than --steps 5"));
  CHECK(contains(refusal({"--sample-length", "10"}), "--sample-length has no effect with --sample-every 0"));
  CHECK(refusal({"--sample-length", "10", "--sample-every", "10"}) == "nothing");
  CHECK(contains(refusal({"--val-fraction", "0", "--eval-batches", "3"}),
                 "--eval-batches has no effect with --val-fraction 0"));
  CHECK(contains(refusal({"--val-fraction", "0", "--eval-batches", "all"}), "--eval-batches has no effect"));
  CHECK(refusal({"--val-fraction", "0"}) == "nothing");
}

TEST_CASE("a flag without effect is named as such, whatever its value") {
  CHECK(contains(refusal({"--dp-shard", "3", "--mesh", "dp=2"}), "--dp-shard has no effect with --zero 0"));
  CHECK(contains(refusal({"--lr-schedule", "constant", "--min-lr", "1"}), "--min-lr has no effect"));
  for (const std::string window : {"9", "0"})
    CHECK(contains(refusal({"--spike-window", window}), "--spike-window has no effect with --spike-threshold 0;"));
}
