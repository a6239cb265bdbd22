#include "ops/view/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "core/error.h"
#include "parallel/pipeline/check.h"
#include "parallel/pipeline/schedules.h"
#include "train/program/units.h"

namespace trireme::run_view {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

std::string in_milliseconds(double seconds) { return fmt::format("{:.{}f} ms", 1e3 * seconds, seconds < 0.01 ? 2 : 1); }
std::string percent(double share) { return fmt::format("{:.{}f} %", 100 * share, share < 0.1 ? 1 : 0); }

double mean_step(const Profile& profile) {
  double sum = 0;
  for (const Step& step : profile.steps) sum += step.seconds;
  return sum / static_cast<double>(profile.steps.size());
}

/// Seconds of work a step by kind of part, without waits; "the rest" is outside parts.
std::map<std::string, double> work_by_kind(const Profile& profile, int rank) {
  std::map<std::string, double> sums;
  const auto steps = static_cast<double>(profile.steps.size());
  for (const Step& step : profile.steps) {
    const RankStep& here = step.ranks[static_cast<std::size_t>(rank)];
    double rest = here.working();
    for (const Part& part : here.parts) {
      const double seconds = part.seconds() - here.waiting_within(part);
      sums[part.kind.starts_with("backward") ? "backward" : part.kind] += seconds / steps;
      rest -= seconds;
    }
    sums["the rest of the step"] += rest / steps;
  }
  return sums;
}

/// The kind of part in which `rank` works longest, compared with the median of its peers.
std::string largest_excess(const Profile& profile, int rank, const std::vector<int>& peers) {
  std::vector<std::map<std::string, double>> others;
  for (const int peer : peers) others.push_back(work_by_kind(profile, peer));
  std::string largest;
  double most = 0;
  for (const auto& [name, seconds] : work_by_kind(profile, rank)) {
    std::vector<double> theirs;
    for (auto& other : others) theirs.push_back(other[name]);
    if (seconds - median(theirs) <= most) continue;
    most = seconds - median(theirs);
    largest = fmt::format("{}: {} against {}", name, in_milliseconds(seconds), in_milliseconds(median(theirs)));
  }
  return largest;
}

Finding slowest_rank(const Profile& profile, const std::vector<RankMeans>& means) {
  // Ranks of other stages have other work, so a rank is compared with those of its own.
  int slowest = 0;
  double most = 0, usual = 0;
  std::vector<int> peers_of_slowest;
  const bool has_peers = profile.ranks() > profile.mesh.size(Axis::pp);
  for (int rank = 0; rank < profile.ranks(); ++rank) {
    std::vector<double> theirs;
    std::vector<int> peers;
    for (int other = 0; other < profile.ranks(); ++other) {
      if (other == rank || (has_peers && place_of(other, profile.mesh).pp != place_of(rank, profile.mesh).pp)) continue;
      theirs.push_back(means[static_cast<std::size_t>(other)].working);
      peers.push_back(other);
    }
    const double working = means[static_cast<std::size_t>(rank)].working, ratio = working / median(theirs);
    if (theirs.empty() || !(ratio > most)) continue;
    slowest = rank;
    most = ratio;
    usual = median(theirs);
    peers_of_slowest = peers;
  }
  const RankMeans& mean = means[static_cast<std::size_t>(slowest)];
  constexpr double notable = 1.2, share = 0.05;
  Finding finding{.warning = most > notable && mean.working - usual > share * mean_step(profile),
                  .title = {},
                  .text = {},
                  .section = "timeline",
                  .rank = slowest};
  finding.title = finding.warning
                      ? fmt::format("{} is slow: {:.{}f}x the median of {}", where(slowest, profile), most,
                                    most < 10 ? 2 : 0, has_peers ? "the other ranks of its stage" : "the others")
                      : "No rank stands out";
  const std::size_t count = peers_of_slowest.size();
  const std::string compared = !has_peers   ? "the median of the others, which have other stages, is"
                               : count == 1 ? "the other rank of its stage works"
                                            : fmt::format("the median of the {} other ranks of its stage is", count);
  finding.text = fmt::format("{} works {} a step; {} {}",
                             finding.warning ? "It" : where(slowest, profile) + ", the slowest for its stage,",
                             in_milliseconds(mean.working), compared, in_milliseconds(usual));
  if (finding.warning)
    finding.text +=
        fmt::format(". The difference is largest in {}", largest_excess(profile, slowest, peers_of_slowest));
  finding.text +=
      fmt::format(". Other ranks wait {} for it in a step, all together.", in_milliseconds(mean.waited_for));
  return finding;
}

/// Ranks that take turns on a core look slow, and so does what they exchange.
bool share_cores(const Profile& profile) {
  if (profile.cores == 0 || profile.device != "cpu" || profile.predicted || profile.hosts.empty()) return false;
  return std::ranges::count(profile.hosts, profile.hosts[0]) * profile.threads > profile.cores;
}

Finding longest_chain(const Profile& profile, const std::vector<RankMeans>& means) {
  std::vector<int> order(means.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [&](int r) { return means[static_cast<std::size_t>(r)].critical; });
  const double step = mean_step(profile);
  std::string shares;
  constexpr std::size_t shown = 4;
  for (std::size_t i = 0; i < std::min(order.size(), shown); ++i)
    if (const double share = means[static_cast<std::size_t>(order[i])].critical / step; share > 0.005)
      shares += fmt::format("{}rank {} {}", shares.empty() ? "" : ", ", order[i], percent(share));
  return {
      .title = fmt::format("A step takes {}", in_milliseconds(step)),
      .text = fmt::format("The mean of {} step{}. The longest chain of ranks that wait for each other runs through {}. "
                          "Only what is faster on that chain makes the step faster; key C draws it.",
                          profile.steps.size(), profile.steps.size() == 1 ? "" : "s", shares),
      .section = "timeline",
      .rank = order[0]};
}

Finding exposed_communication(const Profile& profile, const std::vector<RankMeans>& means) {
  double waiting = 0, for_ranks = 0;
  for (const RankMeans& mean : means) {
    waiting += mean.waiting;
    for_ranks += mean.waiting_for_ranks;
  }
  std::map<std::string, double> by_axis;
  double hidden = 0;
  for (const Step& step : profile.steps)
    for (const RankStep& rank : step.ranks) {
      for (const Exchange& wait : rank.waits) by_axis[wait.axis().empty() ? "other" : wait.axis()] += wait.seconds();
      for (const Exchange& exchange : rank.background) hidden += exchange.seconds() - rank.waiting_within(exchange);
    }
  const double all = mean_step(profile) * static_cast<double>(means.size());
  const double of_steps = all * static_cast<double>(profile.steps.size());
  std::vector<std::pair<std::string, double>> axes(by_axis.begin(), by_axis.end());
  std::ranges::stable_sort(axes, std::ranges::greater{}, &std::pair<std::string, double>::second);
  std::string list;
  for (const auto& [axis, seconds] : axes)
    if (seconds > 0.001 * of_steps)
      list += fmt::format("{}{} {}", list.empty() ? "" : ", ", axis, percent(seconds / of_steps));
  constexpr double much = 0.3;
  return {
      .warning = waiting > much * all,
      .title = fmt::format("{} of the ranks' time is exposed communication", percent(waiting / all)),
      .text = fmt::format("In {} of the time a rank waits for a rank that comes later, in {} data moves. By axis: {}. "
                          "Another {} runs in the background, hidden behind computation.",
                          percent(for_ranks / all), percent((waiting - for_ranks) / all), list.empty() ? "none" : list,
                          percent(hidden / of_steps)),
      .section = "timeline"};
}

Finding bubble(const Profile& profile) {
  double waiting = 0, all = 0;
  for (const Step& step : profile.steps)
    for (const RankStep& rank : step.ranks) {
      all += step.seconds;
      for (const Exchange& wait : rank.waits)
        if (wait.axis() == "pp") waiting += wait.seconds();
    }
  const Planned planned = plan_of(profile, profile.steps.front());
  std::string text = fmt::format("Ranks wait {} of the step for messages of neighbour stages.", percent(waiting / all));
  if (planned.ranks.empty()) return {.title = "Waits in the pipeline", .text = text, .section = "timeline"};
  text += fmt::format(
      " With the mean times of a forward and a backward, and messages that take no time, the schedule would leave "
      "{} of the time idle and take {}; more micro-batches make this share smaller.",
      percent(planned.bubble), in_milliseconds(planned.seconds));
  return {.title = fmt::format("The bubble of {} with {} micro-batch{} is {}", profile.pipeline, profile.micro_batches,
                               profile.micro_batches == 1 ? "" : "es", percent(planned.plain_bubble)),
          .text = text,
          .section = "timeline"};
}

std::int64_t total(const MemorySample& sample) {
  return std::accumulate(sample.bytes.begin(), sample.bytes.end(), std::int64_t{0});
}

/// Where in its step a rank is.
std::string part_at(const RankStep& rank, double seconds) {
  for (const Part& part : rank.parts)
    if (part.begin <= seconds && seconds <= part.end && part.kind != "update")
      return fmt::format("in the {} of micro-batch {}", part.kind == "forward" ? "forward" : "backward",
                         part.micro_batch);
  return "outside forward and backward";
}

std::vector<Finding> most_memory(const Profile& profile) {
  const MemorySample* most = nullptr;
  const Step* in = nullptr;
  int whose = 0;
  std::int64_t least = 0;
  int with_least = 0;
  for (const Step& step : profile.steps)
    for (std::size_t r = 0; r < step.ranks.size(); ++r)
      for (const MemorySample& sample : step.ranks[r].memory)
        if (most == nullptr || total(sample) > total(*most)) {
          most = &sample;
          in = &step;
          whose = static_cast<int>(r);
        }
  if (most == nullptr) return {};
  for (std::size_t r = 0; r < in->ranks.size(); ++r) {
    std::int64_t peak = 0;
    for (const MemorySample& sample : in->ranks[r].memory) peak = std::max(peak, total(sample));
    if (r == 0 || peak < least) {
      least = peak;
      with_least = static_cast<int>(r);
    }
  }
  std::string parts;
  for (std::size_t c = 0; c < most->bytes.size(); ++c)
    if (most->bytes[c] > 0)
      parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", name(static_cast<MemoryCategory>(c)),
                           format_bytes(static_cast<double>(most->bytes[c])));
  std::string text = fmt::format("{} after {} of {}, {}: {}.", where(whose, profile), in_milliseconds(most->seconds),
                                 in->name, part_at(in->ranks[static_cast<std::size_t>(whose)], most->seconds), parts);
  if (profile.ranks() > 1)
    text += fmt::format(" Rank {} needs least, {}.", with_least, format_bytes(static_cast<double>(least)));
  return {{.title = fmt::format("Most memory: {}, on rank {}", format_bytes(static_cast<double>(total(*most))), whose),
           .text = text,
           .section = "memory",
           .rank = whose}};
}

/// Of the parts of a step, in seconds, without waits.
struct MeanTimes {
  double forward = 0, input = 0, weight = 0;  ///< the two parts of a backward; half of it each if it is not divided
  double begin = 0;                           ///< of the first part
};

MeanTimes mean_times(const Step& step) {
  std::map<std::string, std::pair<double, int>> sums;
  MeanTimes mean{.begin = step.seconds};
  for (const RankStep& rank : step.ranks)
    for (const Part& part : rank.parts) {
      if (part.kind == "update") continue;
      mean.begin = std::min(mean.begin, part.begin);
      auto& [seconds, count] = sums[part.kind];
      seconds += part.seconds() - rank.waiting_within(part);
      ++count;
    }
  const auto of = [&sums](const char* kind) { return sums[kind].first / std::max(sums[kind].second, 1); };
  mean.forward = of("forward");
  mean.input = of("backward_input") + of("backward") / 2;
  mean.weight = of("backward_weight") + of("backward") / 2;
  return mean;
}

}  // namespace

std::vector<RankMeans> means_of(const Profile& profile) {
  std::vector<RankMeans> means(static_cast<std::size_t>(profile.ranks()));
  const double share = 1 / static_cast<double>(std::max<std::size_t>(profile.steps.size(), 1));
  for (const Step& step : profile.steps) {
    for (std::size_t r = 0; r < step.ranks.size(); ++r) {
      means[r].working += share * step.ranks[r].working();
      means[r].waiting += share * step.ranks[r].waiting();
      for (const Exchange& wait : step.ranks[r].waits) {
        if (wait.last < 0) continue;
        means[r].waiting_for_ranks += share * wait.late();
        means[static_cast<std::size_t>(wait.last)].waited_for += share * wait.late();
      }
    }
    for (const PathPiece& piece : critical_path(step))
      means[static_cast<std::size_t>(piece.rank)].critical += share * (piece.end - piece.begin);
  }
  return means;
}

Planned plan_of(const Profile& profile, const Step& step) {
  const MeanTimes mean = mean_times(step);
  const int pp = profile.mesh.size(Axis::pp);
  Planned planned;
  try {
    const double count = 1.0 * pipeline::chunks_per_rank(profile.pipeline) * pp * profile.micro_batches;
    constexpr double most_computations = 1 << 20, most_units = 1e9;
    if (count > most_computations) return planned;
    // A schedule's times are whole numbers.
    const double unit = std::max(1e-7, (mean.forward + mean.input + mean.weight) * (count + 1) / most_units);
    const auto units = [unit](double seconds) { return std::max(1, static_cast<int>(std::lround(seconds / unit))); };
    const pipeline::Costs costs{
        .forward = units(mean.forward), .input = units(mean.input), .weight = units(mean.weight)};
    const pipeline::Schedule schedule = pipeline::make_schedule(profile.pipeline, pp, profile.micro_batches);
    planned.plain_bubble = pipeline::check(schedule).bubble_of_total;
    planned.bubble = pipeline::check(schedule, costs).bubble_of_total;
    for (const auto& list : pipeline::simulate(schedule, costs)) {
      std::vector<Part>& parts = planned.ranks.emplace_back();
      for (const pipeline::Interval& interval : list) {
        if (pipeline::is_message(interval.action.kind)) continue;
        Part& part = parts.emplace_back();
        part.kind = name(interval.action.kind);
        part.stage = interval.action.stage;
        part.micro_batch = interval.action.microbatch;
        part.begin = mean.begin + interval.start * unit;
        part.end = mean.begin + interval.end * unit;
        planned.seconds = std::max(planned.seconds, interval.end * unit);
      }
    }
  } catch (const Error&) {  // an unknown name, in a trace of another version
    planned.ranks.clear();
  }
  return planned;
}

std::vector<Finding> step_findings(const Profile& profile) {
  if (profile.steps.empty()) return {};
  const std::vector<RankMeans> means = means_of(profile);
  std::vector<Finding> findings;
  if (profile.ranks() > 1) {
    findings.push_back(slowest_rank(profile, means));
    findings.push_back(longest_chain(profile, means));
    findings.push_back(exposed_communication(profile, means));
  }
  if (profile.mesh.size(Axis::pp) > 1) findings.push_back(bubble(profile));
  if (share_cores(profile))
    findings.push_back({.warning = true,
                        .title = fmt::format("{} ranks share {} cores",
                                             std::ranges::count(profile.hosts, profile.hosts[0]), profile.cores),
                        .text = "A rank that waits for a core seems to work, and others wait for it. With a core for "
                                "each thread of each rank, steps are shorter and waits are others.",
                        .section = "timeline"});
  for (Finding& finding : most_memory(profile)) findings.push_back(std::move(finding));
  return findings;
}

std::vector<Finding> metrics_findings(const std::vector<MetricsRecord>& metrics) {
  if (metrics.empty()) return {};
  const auto value = [](const MetricsRecord& record, const char* key) {
    const auto found = record.values.find(key);
    return found == record.values.end() ? std::nan("") : found->second;
  };
  std::vector<Finding> findings;
  const MetricsRecord *first = nullptr, *last = nullptr, *best = nullptr;
  std::vector<double> norms, rates;
  std::int64_t not_finite = 0;
  for (const MetricsRecord& record : metrics) {
    if (std::isfinite(value(record, "loss"))) {
      if (first == nullptr) first = &record;
      last = &record;
    } else if (record.has_loss) {
      ++not_finite;
    }
    if (std::isfinite(value(record, "val_loss")) &&
        (best == nullptr || value(record, "val_loss") < value(*best, "val_loss")))
      best = &record;
    if (std::isfinite(value(record, "grad_norm"))) norms.push_back(value(record, "grad_norm"));
    if (std::isfinite(value(record, "tokens_per_s"))) rates.push_back(value(record, "tokens_per_s"));
  }
  if (last != nullptr) {
    Finding finding{
        .title = fmt::format("The loss went from {:.4f} to {:.4f}", value(*first, "loss"), value(*last, "loss")),
        .text = fmt::format("From step {} to step {}.", first->step, last->step),
        .section = "curves"};
    finding.text += best == nullptr ? " There is no validation loss."
                                    : fmt::format(" The lowest validation loss is {:.4f}, at step {}.",
                                                  value(*best, "val_loss"), best->step);
    if (!rates.empty())
      finding.text += fmt::format(" Usually {} tokens or other targets a second.", format_count(median(rates)));
    findings.push_back(std::move(finding));
  }
  if (not_finite > 0)
    findings.push_back(
        {.warning = true,
         .title = fmt::format("{} logged step{} no finite loss", not_finite, not_finite == 1 ? " has" : "s have"),
         .text = "The curves leave them out; docs/guards.md says what a run does then.",
         .section = "curves"});
  constexpr double jump = 10;
  const double usual = median(norms);
  const auto largest = std::ranges::max_element(metrics, {}, [&](const MetricsRecord& record) {
    const double norm = value(record, "grad_norm");
    return std::isfinite(norm) ? norm : -1;
  });
  if (usual > 0 && value(*largest, "grad_norm") > jump * usual)
    findings.push_back({.warning = true,
                        .title = fmt::format("The gradient norm jumped to {:.3g} at step {}",
                                             value(*largest, "grad_norm"), largest->step),
                        .text = fmt::format("Its median is {:.3g}.", usual),
                        .section = "curves"});
  return findings;
}

}  // namespace trireme::run_view
