#include "check/explore/neutral.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "check/explore/sizes.h"
#include "check/explore/space.h"
#include "core/error.h"
#include "ops/tracking/tracker.h"
#include "parallel/pipeline/schedules.h"
#include "train/gpt/gpt_options.h"

namespace trireme::explore {
namespace {

BatchSizes batch_sizes(const Arguments& flags) {
  GptOptions options;
  Flags parser("train_gpt", "");
  declare_all(parser, options);
  Arguments known = flags;
  known.erase("fault");
  for (const std::unique_ptr<Tracker>& tracker : all_trackers()) known.erase(tracker->example().first);
  parser.parse(to_words(known));
  return infer_batch(options.batch, parse_mesh(options.mesh.axes, 0).size(Axis::dp));
}

/// From stage 2 on, gradients are summed over ranks after each micro-batch; below, once after all micro-batches.
bool sums_once(const Arguments& flags, const std::string& zero) {
  return zero == "0" || zero == "1" || batch_sizes(flags).micro_batches == 1;
}

struct Neutral {
  std::string flag;
  std::vector<std::string> values;
  /// True if the change is neutral; null: always.
  std::function<bool(const Arguments& flags, const std::string& value)> condition{};
  bool costly = false;  ///< takes seconds: starts processes, or measures the machine
};

std::vector<Neutral> with_trackers(std::vector<Neutral> table) {
  for (const std::unique_ptr<Tracker>& tracker : all_trackers()) {
    const auto [flag, value] = tracker->example();
    table.push_back({flag, {value}});
  }
  return table;
}

const std::vector<Neutral>& neutral_changes() {
  static const std::vector<Neutral> table = with_trackers({
      {"threads", {"1", "2", "3"}},
      {"pin", {"on", "off"}},
      {"recompute", {"none", "selective", "full", "every:1", "every:2"}},
      {"keep-packed",
       {"on", "off"},
       [](const Arguments& flags, const std::string& value) {
         return value == "off" || batch_sizes(flags).micro_batches > 1;  // refused with one
       }},
      {"offload", {"none", "optimizer"}},
      {"pipeline", pipeline::schedule_examples()},
      {"stage-layers", {"auto", "list"}},
      {"zero",
       {"0", "1", "2", "3"},
       [](const Arguments& flags, const std::string& value) {
         return sums_once(flags, value_of(flags, "zero", "0")) == sums_once(flags, value) &&
                !flags.contains("dp-shard");
       }},
      {"reduction", {"auto", "exact"}},  // fast needs processes
      {"zero-prefetch", {"0", "1", "3"}},
      {"zero-resident", {"0", "300", "100000"}},
      {"eval-every", {"0", "1", "2", "auto"}},
      {"sample-every", {"1", "2"}},
      {"log-every", {"1", "2"}},
      {"verbose", {"on"}},
      {"checkpoint-every", {"1", "2"}},
      {"keep-best", {"on", "off"}},
      {"check-replicas", {"0", "1", "2"}},
      {"check-state", {"on"}},
      {"verify", {"on"}},
      {"profile", {"trace.json"}, {}, true},
      {"ranks", {"mpi"}, [](const Arguments& flags, const std::string&) { return ranks_of(flags) <= 4; }, true},
  });
  return table;
}

}  // namespace

std::int64_t global_batch(const Arguments& flags) { return batch_sizes(flags).global_batch; }

bool is_neutral(const Arguments& flags, const std::string& flag, const std::string& value) {
  return std::any_of(neutral_changes().begin(), neutral_changes().end(),
                     [&](const Neutral& n) { return n.flag == flag && (!n.condition || n.condition(flags, value)); });
}

Arguments draw_neutral_changes(const Arguments& flags, RandomChoices& random,
                               const std::function<bool(const Arguments&)>& accepts) {
  std::vector<const Neutral*> order;
  for (const Neutral& n : neutral_changes()) order.push_back(&n);
  random.shuffle(order);
  const double density = random.pick(std::vector<double>{0.2, 0.5, 0.8});
  Arguments changes;
  for (const Neutral* n : order) {
    if (!random.chance(n->costly ? 0.1 * density : density)) continue;
    const Arguments so_far = with(flags, changes);
    std::string value = random.pick(n->values);
    if (value == "list") value = draw_stage_layers(so_far, random).value_or("auto");
    if (value_of(so_far, n->flag, "") == value || (n->condition && !n->condition(so_far, value))) continue;
    const Arguments more = with(changes, {{n->flag, value}});
    if (accepts(more)) changes = more;
  }
  return changes;
}

}  // namespace trireme::explore
