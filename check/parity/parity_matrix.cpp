#include "check/parity/parity_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "core/device.h"
#include "parallel/pipeline/schedules.h"

namespace trireme {
namespace {

struct Mesh {
  int dp = 1, tp = 1, pp = 1, cp = 1;
};

std::vector<Mesh> meshes() {
  std::vector<Mesh> found;
  for (const int ranks : {1, 2, 4, 8})
    for (int dp = 1; dp <= ranks; dp *= 2)
      for (int tp = 1; dp * tp <= ranks; tp *= 2)
        for (int pp = 1; dp * tp * pp <= ranks; pp *= 2) found.push_back({dp, tp, pp, ranks / (dp * tp * pp)});
  return found;
}

/// Cycles through `choices`. For options that hardly interact with others, so that not all combinations are needed.
class Rotation {
 public:
  explicit Rotation(std::vector<std::string> choices) : choices_(std::move(choices)) {}
  const std::string& next() { return choices_[turn_++ % choices_.size()]; }

 private:
  std::vector<std::string> choices_;
  std::size_t turn_ = 0;
};

/// The smallest sizes that every mesh of up to 8 ranks divides: 8 layers for pp = 8, 8 heads for tp = 8, 32 tokens for
/// two chunks of cp = 8 that tp = 2 splits again.
constexpr int layers = 8;
const std::vector<std::string> base = {
    "--layers", std::to_string(layers), "--heads", "8", "--width", "32", "--context", "32", "--micro-batch",
    "auto",     "--global-batch",       "8"};

const std::map<std::string, std::vector<std::string>> models = {
    {"gpt", {}},
    {"llama", {"--norm", "rms", "--positions", "rope", "--activation", "swiglu", "--kv-heads", "2", "--bias", "off"}},
    {"moe",
     {"--experts", "4", "--top-k", "2", "--shared-experts", "1", "--aux-loss", "0.01", "--z-loss", "0.001",
      "--ffn-width", "32"}}};

/// Parts of later decoders. Parts that hardly interact share a model, because each model also has to be computed on one
/// rank.
const std::map<std::string, std::vector<std::string>> parts = {
    {"none", {}},
    {"heads", {"--head-width", "6"}},
    {"gemma",
     {"--zero-centred-norms", "on", "--post-norms", "on", "--scaled-embeddings", "on", "--query-pre-attn-scalar", "9",
      "--activation", "geglu"}},
    // The outputs of a tiny model's layers are small: with an eps of 1e-5 their norms enlarge rounding by 100.
    {"gemma3",
     {"--zero-centred-norms", "on", "--post-norms", "on", "--qk-norm", "on", "--window", "5", "--full-every", "3",
      "--window-rope-base", "100", "--activation", "geglu", "--norm-eps", "1e-2"}},
    {"lora", {"--lora-rank", "2", "--lora-alpha", "6"}},
    {"lora-some", {"--lora-rank", "3", "--lora-dropout", "0.2", "--lora-targets", "*.attn.q*,*.down"}},
    {"frozen", {"--freeze", "wte.weight,*norm*,blocks.0.*"}},
    {"mixtral", {"--activation", "swiglu", "--bias", "off", "--router-norm", "after", "--expert-ffn-width", "24"}},
    {"qkv-bias", {"--qkv-bias", "on", "--head-width", "8"}},
    {"norms", {"--qk-norm", "on", "--activation", "relu2"}},
    {"windows", {"--window", "5", "--full-every", "2", "--norm-eps", "1e-2"}},
    {"caps", {"--attention-softcap", "2", "--logit-softcap", "3", "--activation", "geglu"}},
    {"yarn", {"--rope-scaling", "yarn:4,8", "--window", "11"}},
    {"llama3", {"--rope-scaling", "llama3:4,8", "--rope-interleaved", "on", "--qk-norm", "on"}}};

class Matrix {
 public:
  std::vector<Combination> build() {
    for (const Mesh& mesh : meshes())
      for (const std::string& schedule : schedules(mesh))
        for (const char* zero : {"0", "1", "2", "3"})
          for (const auto& [model, flags] : models)
            for (const char* tied : {"on", "off"})
              for (const char* sequence : {"on", "off"}) {
                if (mesh.tp > 1 || sequence == std::string("off")) add(mesh, schedule, zero, model, tied, sequence);
              }
    return std::move(all_);
  }

 private:
  static std::vector<std::string> schedules(const Mesh& mesh) {
    if (mesh.pp == 1) return {"1f1b"};
    std::vector<std::string> names = pipeline::schedule_examples();
    std::erase_if(names, [&](const std::string& name) { return mesh.pp * pipeline::chunks_per_rank(name) > layers; });
    return names;
  }

  void add(const Mesh& mesh, const std::string& schedule, const char* zero, const std::string& model, const char* tied,
           const char* sequence) {
    std::map<std::string, std::string> options = {{"dp", std::to_string(mesh.dp)},
                                                  {"tp", std::to_string(mesh.tp)},
                                                  {"pp", std::to_string(mesh.pp)},
                                                  {"cp", std::to_string(mesh.cp)},
                                                  {"pipeline", schedule},
                                                  {"zero", zero},
                                                  {"model", model},
                                                  {"tied", tied},
                                                  {"sequence-parallel", sequence}};
    options["recompute"] = recompute_.next();
    options["micro-batches"] = micro_batches(mesh);
    options["context-parallel"] = mesh.cp > 1 ? context_parallel(mesh, model) : "none";
    options["ep"] = model == "moe" ? ep(mesh) : "1";
    options["dropout"] = dropout_.next();
    options["capacity-factor"] = model == "moe" && mesh.cp == 1 ? capacity_.next() : "none";
    options["moe-every"] = model == "moe" ? moe_every_.next() : "1";
    options["bias-update"] = model == "moe" ? bias_update_.next() : "0";
    options["parts"] = (model == "llama" ? llama_parts_ : model == "moe" ? moe_parts_ : parts_).next();
    all_.push_back({arguments(options), std::move(options)});
  }

  /// 1, 2 or 4, but at most the number of sequences of a dp rank; the global batch has 8.
  std::string micro_batches(const Mesh& mesh) {
    std::string wanted = micro_batches_.next();
    return std::to_string(std::min(std::stoi(wanted), 8 / mesh.dp));
  }

  /// Ulysses splits the heads of a tp rank over cp.
  std::string context_parallel(const Mesh& mesh, const std::string& model) {
    const int kv_heads = model == "llama" ? 2 : 8;
    return kv_heads % (mesh.tp * mesh.cp) == 0 ? context_.next() : "ring";
  }

  std::string ep(const Mesh& mesh) {
    const int data = mesh.dp * mesh.cp, wanted = std::stoi(ep_.next());
    return std::to_string(std::min(wanted, std::min(data, 4)));
  }

  static std::vector<std::string> arguments(const std::map<std::string, std::string>& o) {
    std::vector<std::string> list = {"--mesh", fmt::format("dp={},tp={},pp={},cp={},ep={}", o.at("dp"), o.at("tp"),
                                                           o.at("pp"), o.at("cp"), o.at("ep"))};
    list.insert(list.end(), base.begin(), base.end());
    const auto& model = models.at(o.at("model"));
    list.insert(list.end(), model.begin(), model.end());
    for (const char* flag : {"pipeline", "zero", "recompute", "tied", "micro-batches", "dropout"}) {
      list.push_back(fmt::format("--{}", flag));
      list.push_back(o.at(flag));
    }
    if (o.at("tp") != "1") list.insert(list.end(), {"--sequence-parallel", o.at("sequence-parallel")});
    if (o.at("cp") != "1") list.insert(list.end(), {"--context-parallel", o.at("context-parallel")});
    if (o.at("capacity-factor") != "none") list.insert(list.end(), {"--capacity-factor", o.at("capacity-factor")});
    if (o.at("moe-every") != "1") list.insert(list.end(), {"--moe-every", o.at("moe-every")});
    if (o.at("bias-update") != "0") list.insert(list.end(), {"--bias-update", o.at("bias-update")});
    const auto& newer = parts.at(o.at("parts"));
    list.insert(list.end(), newer.begin(), newer.end());
    if (o.at("zero") == "3") list.insert(list.end(), {"--zero-resident", "256"});
    return list;
  }

  // The lengths differ in their divisors, so that most pairs of choices occur together.
  Rotation recompute_{{"none", "selective", "full", "every:2", "none"}};
  Rotation micro_batches_{{"1", "4", "2"}};
  Rotation context_{{"ring", "ulysses"}};
  Rotation ep_{{"4", "2", "1", "4", "2"}};
  Rotation dropout_{{"0", "0", "0.1", "0", "0", "0", "0.1"}};
  Rotation capacity_{{"none", "1.25"}};
  Rotation moe_every_{{"1", "2", "1", "1", "3", "1", "2", "1", "1", "1", "2"}};
  Rotation bias_update_{{"0", "0.05", "0.05", "0"}};
  Rotation parts_{{"none", "norms", "lora-some", "windows", "heads", "caps", "gemma", "lora", "frozen"}};
  Rotation moe_parts_{{"none", "mixtral", "lora", "norms", "mixtral"}};
  Rotation llama_parts_{{"none", "yarn", "norms", "none", "llama3", "windows", "qkv-bias", "caps", "gemma3", "gemma",
                         "lora", "lora-some"}};
  std::vector<Combination> all_;
};

using Choice = std::pair<std::string, std::string>;
using Pair = std::pair<Choice, Choice>;

std::vector<Pair> pairs_of(const Combination& combination) {
  std::vector<Pair> pairs;
  for (auto a = combination.options.begin(); a != combination.options.end(); ++a)
    for (auto b = std::next(a); b != combination.options.end(); ++b) pairs.emplace_back(*a, *b);
  return pairs;
}

/// Gives a flag that is in the list another value, or removes it.
void replace_flag(std::vector<std::string>& arguments, std::string_view flag, const std::optional<std::string>& value) {
  const auto found = std::find(arguments.begin(), arguments.end(), flag);
  if (found == arguments.end()) return;
  if (value) *std::next(found) = *value;
  if (!value) arguments.erase(found, std::next(found, 2));
}

}  // namespace

std::string to_string(const Combination& combination) {
  return fmt::format("build/bin/parity {}", fmt::join(combination.arguments, " "));
}

std::vector<Combination> parity_matrix() { return Matrix().build(); }

Combination in_bf16(const Combination& combination) {
  Combination result = combination;
  replace_flag(result.arguments, "--top-k", "4");
  replace_flag(result.arguments, "--capacity-factor", std::nullopt);
  result.arguments.insert(result.arguments.end(), {"--dtype", "bf16"});
  result.options["dtype"] = "bf16";
  return result;
}

Combination on_device(const Combination& combination, const std::string& device) {
  if (device == name(Device::cpu)) return combination;
  Combination result = combination;
  replace_flag(result.arguments, "--attention-softcap", std::nullopt);
  result.arguments.insert(result.arguments.end(), {"--device", device});
  result.options["device"] = device;
  return result;
}

std::vector<Combination> covering_subset(const std::vector<Combination>& all) {
  std::map<Pair, std::size_t> numbers;
  std::vector<std::vector<std::size_t>> pairs;  // by number, for each combination
  for (const Combination& combination : all) {
    std::vector<std::size_t>& mine = pairs.emplace_back();
    for (const Pair& pair : pairs_of(combination))
      mine.push_back(numbers.try_emplace(pair, numbers.size()).first->second);
  }
  std::vector<bool> covered(numbers.size());
  std::vector<Combination> chosen;
  for (std::size_t left = covered.size(); left > 0;) {
    const auto gain = [&](std::size_t i) {
      return std::count_if(pairs[i].begin(), pairs[i].end(), [&](std::size_t p) { return !covered[p]; });
    };
    std::size_t best = 0;
    std::ptrdiff_t most = gain(0);
    for (std::size_t i = 1; i < all.size(); ++i) {
      if (const std::ptrdiff_t mine = gain(i); mine > most) {
        best = i;
        most = mine;
      }
    }
    for (const std::size_t p : pairs[best]) covered[p] = true;
    left -= static_cast<std::size_t>(most);
    chosen.push_back(all[best]);
  }
  return chosen;
}

}  // namespace trireme
