#include "check/explore/sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>

#include "ops/tracking/tracker.h"

namespace trireme::explore {
namespace {

/// Ranks along dp, tp, pp and cp; mostly 1 or 2.
std::map<std::string, int> draw_axes(RandomChoices& random) {
  const int most = random.chance(0.12) ? 24 : 8;
  while (true) {
    std::map<std::string, int> axes;
    int ranks = 1;
    for (const char* axis : {"dp", "tp", "pp", "cp"}) {
      axes[axis] = random.pick(std::vector<int>{1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 4});
      ranks *= axes[axis];
    }
    if (ranks <= most) return axes;
  }
}

void draw_experts(Arguments& flags, std::map<std::string, int>& axes, RandomChoices& random) {
  const int data = axes["dp"] * axes["cp"];
  std::vector<int> divisors;
  for (int d = 1; d <= data; ++d)
    if (data % d == 0) divisors.push_back(d);
  axes["ep"] = random.pick(divisors);
  const std::int64_t count = axes["ep"] * random.between(1, 3);
  flags["experts"] = std::to_string(count);
  if (random.chance(0.3))
    flags["expert-ffn-width"] = std::to_string(axes["tp"] * random.pick(std::vector<int>{1, 3, 8}));
  flags["top-k"] = std::to_string(random.between(1, std::min<std::int64_t>(count, 3)));
}

void draw_batch(Arguments& flags, int dp, RandomChoices& random) {
  if (random.chance(0.15)) {
    flags["global-batch"] = std::to_string(dp * random.between(1, 4));
    return;
  }
  flags["micro-batch"] = std::to_string(random.between(1, 3));
  if (random.chance(0.7)) flags["micro-batches"] = std::to_string(random.between(1, 5));
}

}  // namespace

std::map<std::string, int> parse_axes(const std::string& mesh) {
  std::map<std::string, int> axes;
  std::istringstream parts(mesh);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t equals = part.find('=');
    if (equals != std::string::npos) axes[part.substr(0, equals)] = std::atoi(part.c_str() + equals + 1);
  }
  return axes;
}

std::string axes_text(const std::map<std::string, int>& axes) {
  std::string text;
  for (const auto& [axis, size] : axes)
    if (size > 1) text += fmt::format("{}{}={}", text.empty() ? "" : ",", axis, size);
  return text.empty() ? "dp=1" : text;
}

int ranks_of(const Arguments& flags) {
  int ranks = 1;
  if (!flags.contains("mesh")) return ranks;
  for (const auto& [axis, size] : parse_axes(flags.at("mesh")))
    if (axis != "ep") ranks *= size;
  return ranks;
}

Arguments draw_sizes(RandomChoices& random, bool train) {
  std::map<std::string, int> axes = draw_axes(random);
  const int tp = axes["tp"], pp = axes["pp"], cp = axes["cp"];
  Arguments flags;
  if (random.chance(0.35)) draw_experts(flags, axes, random);
  flags["mesh"] = axes_text(axes);
  flags["layers"] = std::to_string(random.between(pp, pp + (random.chance(0.5) ? 1 : pp + 3)));
  const std::int64_t heads = tp * (random.chance(0.3) ? cp : 1) * random.pick(std::vector<int>{1, 1, 2, 3});
  flags["heads"] = std::to_string(heads);
  flags["width"] = std::to_string(heads * random.pick(std::vector<int>{1, 2, 2, 3, 4, 4, 5, 6, 8, 13}));
  if (random.chance(0.3))
    flags["kv-heads"] = std::to_string(random.pick(std::vector<std::int64_t>{1, tp, heads / 2 + 1}));
  if (random.chance(0.2)) flags["head-width"] = std::to_string(random.pick(std::vector<int>{1, 2, 4, 5, 8}));
  const int chunks = cp > 1 ? 2 * cp : 1;
  flags["context"] =
      std::to_string(chunks * (random.chance(0.8) ? tp : 1) * random.pick(std::vector<int>{1, 2, 3, 5, 7}));
  if (random.chance(0.5)) flags["ffn-width"] = std::to_string(tp * random.pick(std::vector<int>{1, 3, 5, 11, 16}));
  draw_batch(flags, axes["dp"], random);
  const std::vector<int> vocabularies = {1, 2, 3, 5, 13, 31, 64, 65, 127, 257, 1025};
  if (!train) {
    if (random.chance(0.8)) flags["vocab"] = std::to_string(random.pick(vocabularies));
    return flags;
  }
  const int kinds = random.pick(text_kinds()), vocab = random.pick(vocabularies);
  flags["data"] = "text-" + std::to_string(kinds);
  if (vocab >= kinds && random.chance(0.5)) flags["vocab"] = std::to_string(vocab);
  if (!flags.contains("vocab") && random.chance(0.1)) flags["tokenizer"] = "byte";
  return flags;
}

std::optional<std::string> draw_stage_layers(const Arguments& flags, RandomChoices& random) {
  const auto value = [&](const char* flag) { return flags.contains(flag) ? flags.at(flag) : std::string(); };
  const std::string pipeline = value("pipeline");
  const std::size_t colon = pipeline.find(':');
  const int chunks = colon == std::string::npos ? 1 : std::atoi(pipeline.c_str() + colon + 1);
  std::map<std::string, int> axes = parse_axes(value("mesh"));
  const int stages = std::max(1, axes["pp"]) * chunks, layers = std::atoi(value("layers").c_str());
  if (stages < 2 || layers < stages) return std::nullopt;
  std::vector<int> of_stage(static_cast<std::size_t>(stages), 1);
  for (int more = layers - stages; more > 0; --more) ++of_stage[random.below(of_stage.size())];
  std::string list;
  for (const int count : of_stage) list += (list.empty() ? "" : ",") + std::to_string(count);
  return list;
}

bool is_fixed(const std::string& flag) {
  static const std::vector<std::pair<const char*, std::set<std::string>>> fixed = {
      {"files, and models that are not tiny",
       {"data", "tokenizer", "chat-template", "model", "out", "profile", "profile-steps", "init-from", "init-adapter",
        "export-hf"}},
      {"times", {"checkpoint-minutes", "timeout"}},
      {"what is printed", {"quiet", "verbose", "json"}},
      {"chosen with the text", {"vocab"}},
      {"set by the kinds of cases", {"steps", "resume", "max-skipped", "allow-fault-injection", "dry-run"}},
      {"set by the kind faults", {"spike-threshold", "spike-window", "spike-rollbacks"}},
      {"where a run is made", {"ranks", "reduction", "collectives", "links", "device", "threads", "pin"}},
      {"drawn where bits are compared", {"log-every", "checkpoint-every", "keep", "verify"}}};
  const Trackers trackers = all_trackers();  // whose flags are drawn there, too
  return std::any_of(fixed.begin(), fixed.end(), [&](const auto& reason) { return reason.second.contains(flag); }) ||
         std::any_of(trackers.begin(), trackers.end(), [&](const auto& t) { return t->example().first == flag; });
}

bool is_needed(const std::string& flag) {
  // Without these flags, a model has the default sizes, which are larger.
  static const std::set<std::string> needed = {"data",  "steps",   "layers",      "heads",
                                               "width", "context", "micro-batch", "global-batch"};
  return needed.contains(flag);
}

const std::vector<std::string>* values_to_draw(const std::string& flag) {
  static const std::map<std::string, std::vector<std::string>> sizes = {
      {"gemm", {"auto", "trireme", "eigen"}},
      {"val-fraction", {"0", "0.1", "0.3"}},
      {"lr", {"1e-3", "1e-2"}},
      {"min-lr", {"auto", "0", "1e-4"}},
      {"lr-factor", {"*=0.5", "*weight=2,*norm*=0"}},
      {"freeze", {"", "*norm*", "wte.weight,blocks.0.*", "*weight"}},
      {"decay-factor", {"*=0", "*weight=0.5"}},
      {"seed", {"0", "1", "17", "123456789"}},
      {"dropout", {"0", "0.1", "0.5"}},
      {"bias-update", {"0", "0.05"}},
      {"clip", {"0", "0.05", "1"}},
      {"eps", {"1e-8", "1e-3"}},
      {"zero-resident", {"0", "64", "1000", "100000"}},
      {"sample-every", {"1", "2", "3"}},
      {"loss-scale", {"auto", "dynamic", "64", "1024", "16384"}},
      {"document-separator", {"0", "1"}},
      {"norm-eps", {"1e-6", "1e-5", "0.1"}},
      {"rope-base", {"100", "10000", "500000"}},
      {"rope-scaling", {"none", "linear:2", "llama3:4,8", "yarn:8,4"}},
      {"attention-softcap", {"none", "1", "30"}},
      {"query-pre-attn-scalar", {"auto", "1", "24"}},
      {"window-rope-base", {"auto", "50", "10000"}},
      {"logit-softcap", {"none", "1", "30"}},
      {"lora-rank", {"0", "1", "3"}},
      {"lora-alpha", {"1", "16"}},
      {"lora-dropout", {"0", "0.3"}},
      {"lora-targets", {"*.attn.*,*.mlp.*", "*.proj", "*.attn.q*,*.attn.v"}},
  };
  const auto found = sizes.find(flag);
  return found == sizes.end() ? nullptr : &found->second;
}

const std::vector<int>& text_kinds() {
  static const std::vector<int> kinds = {1, 2, 3, 7, 17, 40};
  return kinds;
}

std::string made_up_text(int kinds) {
  constexpr std::uint64_t characters = 4000;
  std::string text;
  for (std::uint64_t i = 0; i < characters; ++i) {
    const std::uint32_t word = random_word(7, static_cast<std::uint64_t>(kinds), i / 3 + i % 3 * 5);
    text += static_cast<char>('0' + word % static_cast<unsigned>(kinds));
  }
  return text;
}

}  // namespace trireme::explore
