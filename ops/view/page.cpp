#include "ops/view/page.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "ops/view/page_sources.h"

namespace trireme::run_view {
namespace {

using nlohmann::ordered_json;

/// Times in a page are whole tenths of a microsecond.
std::int64_t ticks(double seconds) { return std::llround(seconds * 1e7); }
double in_ms(double seconds) { return static_cast<double>(ticks(seconds)) / 1e4; }

/// Each text once; spans have its number.
class Labels {
 public:
  std::int64_t operator()(const std::string& text) {
    const auto [place, is_new] = numbers_.try_emplace(text, static_cast<std::int64_t>(texts_.size()));
    if (is_new) texts_.push_back(text);
    return place->second;
  }
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::map<std::string, std::int64_t> numbers_;
  std::vector<std::string> texts_;
};

using Numbers = std::vector<std::int64_t>;

void add_time(Numbers& to, double begin, double end) {
  to.push_back(ticks(begin));
  to.push_back(std::max<std::int64_t>(ticks(end) - ticks(begin), 0));
}

/// [begin, duration, kind, stage, micro-batch, working] of each.
Numbers part_numbers(const RankStep& rank, const std::vector<Part>& parts, Labels& labels) {
  Numbers numbers;
  for (const Part& part : parts) {
    add_time(numbers, part.begin, part.end);
    numbers.insert(numbers.end(), {labels(part.kind), part.stage, part.micro_batch,
                                   ticks(part.seconds() - rank.waiting_within(part))});
  }
  return numbers;
}

/// [begin, duration, name, group, site, bytes, last rank, late] of each.
Numbers exchange_numbers(const std::vector<Exchange>& exchanges, Labels& labels) {
  Numbers numbers;
  for (const Exchange& one : exchanges) {
    add_time(numbers, one.begin, one.end);
    numbers.insert(numbers.end(),
                   {labels(one.name), labels(one.group), labels(one.site), one.bytes, one.last, ticks(one.late())});
  }
  return numbers;
}

Numbers module_numbers(const std::vector<Module>& modules, Labels& labels) {
  Numbers numbers;
  for (const Module& module : modules) {
    add_time(numbers, module.begin, module.end);
    numbers.insert(numbers.end(), {module.depth, labels(module.name)});
  }
  return numbers;
}

Numbers kernel_numbers(const std::vector<Span>& kernels, Labels& labels) {
  Numbers numbers;
  for (const Span& kernel : kernels) {
    add_time(numbers, kernel.begin, kernel.end);
    numbers.push_back(labels(kernel.name));
  }
  return numbers;
}

/// [time, bytes of each category..] of at most `most` samples: of those at about the same time, the one with most bytes.
Numbers memory_numbers(const std::vector<MemorySample>& samples, double seconds, std::size_t most) {
  const auto total = [](const MemorySample& sample) {
    return std::accumulate(sample.bytes.begin(), sample.bytes.end(), std::int64_t{0});
  };
  Numbers numbers;
  const MemorySample* kept = nullptr;
  const auto bin = [&](const MemorySample& sample) {
    return std::floor(sample.seconds / seconds * static_cast<double>(most));
  };
  const auto keep = [&] {
    if (kept == nullptr) return;
    numbers.push_back(ticks(kept->seconds));
    numbers.insert(numbers.end(), kept->bytes.begin(), kept->bytes.end());
  };
  for (const MemorySample& sample : samples) {
    if (kept == nullptr || bin(sample) > bin(*kept)) {
      keep();
      kept = &sample;
    } else if (total(sample) > total(*kept)) {
      kept = &sample;
    }
  }
  keep();
  return numbers;
}

ordered_json step_json(const Profile& profile, const Step& step, Labels& labels, bool with_details) {
  ordered_json json = {{"name", step.name}, {"ticks", ticks(step.seconds)}, {"details", with_details}};
  const std::size_t samples = std::clamp<std::size_t>(24'000 / step.ranks.size(), 100, 800);
  for (const RankStep& rank : step.ranks) {
    ordered_json one = {{"begin", ticks(rank.begin)},
                        {"end", ticks(rank.end)},
                        {"parts", part_numbers(rank, rank.parts, labels)},
                        {"waits", exchange_numbers(rank.waits, labels)},
                        {"background", exchange_numbers(rank.background, labels)},
                        {"memory", memory_numbers(rank.memory, step.seconds, samples)}};
    if (with_details) {
      one["modules"] = module_numbers(rank.modules, labels);
      one["kernels"] = kernel_numbers(rank.kernels, labels);
    }
    json["ranks"].push_back(std::move(one));
  }
  Numbers messages, path;
  for (const Message& m : step.messages)
    messages.insert(messages.end(), {m.from, m.to, ticks(m.sent), ticks(m.arrived), m.bytes});
  for (const PathPiece& piece : critical_path(step))
    path.insert(path.end(), {piece.rank, ticks(piece.begin), ticks(piece.end)});
  json["messages"] = std::move(messages);
  json["path"] = std::move(path);
  json["planned"] = ordered_json::array();
  for (const std::vector<Part>& parts : plan_of(profile, step).ranks)
    json["planned"].push_back(part_numbers({}, parts, labels));
  return json;
}

ordered_json profile_json(const Profile& profile) {
  ordered_json json = {{"predicted", profile.predicted}, {"pipeline", profile.pipeline},
                       {"device", profile.device},       {"micro_batches", profile.micro_batches},
                       {"zero", profile.zero},           {"threads", profile.threads},
                       {"cores", profile.cores},         {"sequence_parallel", profile.sequence_parallel},
                       {"hosts", profile.hosts}};
  for (const Axis axis : {Axis::pp, Axis::dp, Axis::cp, Axis::tp, Axis::ep, Axis::edp})
    json["mesh"][std::string(name(axis))] = profile.mesh.size(axis);
  for (int c = 0; c < memory_categories; ++c)
    json["categories"].push_back(std::string(name(static_cast<MemoryCategory>(c))));
  const std::vector<RankMeans> means = means_of(profile);
  for (int rank = 0; rank < profile.ranks(); ++rank) {
    const Place at = place_of(rank, profile.mesh);
    const RankMeans& mean = means[static_cast<std::size_t>(rank)];
    json["places"].push_back(
        {{"pp", at.pp}, {"dp", at.dp}, {"cp", at.cp}, {"tp", at.tp}, {"ep", at.ep}, {"edp", at.edp}});
    json["means"].push_back({{"working", in_ms(mean.working)},
                             {"waiting", in_ms(mean.waiting)},
                             {"for_ranks", in_ms(mean.waiting_for_ranks)},
                             {"waited_for", in_ms(mean.waited_for)},
                             {"critical", in_ms(mean.critical)}});
  }
  // Modules and kernels of all steps, as long as a browser can hold them.
  constexpr std::size_t most_details = 250'000;
  Labels labels;
  std::size_t details = 0;
  json["steps"] = ordered_json::array();
  for (const Step& step : profile.steps) {
    for (const RankStep& rank : step.ranks) details += rank.kernels.size() + rank.modules.size();
    json["steps"].push_back(step_json(profile, step, labels, details <= most_details));
  }
  json["labels"] = labels.texts();
  json["weights"] = ordered_json::array();
  for (const Weight& w : profile.weights)
    json["weights"].push_back(
        {{"name", w.name}, {"pp", w.pp}, {"shape", w.shape}, {"tp", w.tp}, {"ep", w.ep}, {"edp", w.edp}});
  json["forward"] = ordered_json::array();
  for (const ForwardLine& line : profile.forward)
    json["forward"].push_back(
        {{"kind", line.kind}, {"name", line.name}, {"detail", line.detail}, {"depth", line.depth}});
  return json;
}

/// A list for each key, with null where a line lacks it. Of very many lines, every n-th and those with a validation.
ordered_json metrics_json(const std::vector<MetricsRecord>& metrics) {
  constexpr std::size_t most = 20'000;
  const std::size_t every = metrics.size() / most + 1;
  std::vector<const MetricsRecord*> kept;
  for (std::size_t i = 0; i < metrics.size(); ++i)
    if (i % every == 0 || i + 1 == metrics.size() || metrics[i].values.contains("val_loss"))
      kept.push_back(&metrics[i]);
  std::map<std::string, std::vector<ordered_json>> columns;
  for (const MetricsRecord* record : kept)
    for (const auto& [key, value] : record->values) columns.try_emplace(key);
  for (auto& [key, column] : columns)
    for (const MetricsRecord* record : kept) {
      const auto found = record->values.find(key);
      column.push_back(found == record->values.end() ? ordered_json(nullptr) : ordered_json(found->second));
    }
  return columns.empty() ? ordered_json::object() : ordered_json(columns);
}

ordered_json page_json(const Page& page) {
  ordered_json json = {{"title", page.title}, {"missing", page.missing}, {"metrics", metrics_json(page.run.metrics)}};
  json["findings"] = ordered_json::array();
  for (const Finding& finding : page.findings)
    json["findings"].push_back({{"warning", finding.warning},
                                {"title", finding.title},
                                {"text", finding.text},
                                {"section", finding.section},
                                {"rank", finding.rank}});
  json["options"] = page.run.options;
  if (page.profile) json["profile"] = profile_json(*page.profile);
  json["settings"] = ordered_json::array();
  for (const Setting& setting : page.settings)
    json["settings"].push_back({{"text", setting.text},
                                {"ms", in_ms(setting.seconds)},
                                {"bytes", setting.memory},
                                {"front", setting.on_front}});
  json["texts"] = ordered_json::array();
  for (const TextBlock& block : page.texts)
    json["texts"].push_back({{"title", block.title}, {"words", block.words}, {"text", block.text}});
  return json;
}

/// For a script element: a text in it may contain </script>. What is not UTF-8 is replaced.
std::string in_script(const ordered_json& json) {
  std::string text;
  for (const char c : json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))
    text += c == '<' ? "\\u003c" : std::string(1, c);
  return text;
}

void put(std::string& text, std::string_view mark, std::string_view content) {
  const std::size_t at = text.find(mark);
  require(at != std::string::npos, "view", "page.html lacks {}", mark);
  text.replace(at, mark.size(), content);
}

}  // namespace

std::string to_html(const Page& page) {
  std::string html(page_html());
  put(html, "/* style */", page_css());
  put(html, "/* script */", page_js());
  put(html, "/* data */", in_script(page_json(page)));
  return std::string(page_kind.beginning) + html;
}

}  // namespace trireme::run_view
