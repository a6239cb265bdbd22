// Predictions for whole models, on a machine whose kernels take time by their FLOPs.
#include "ops/plan/predict.h"

#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "check/parity/parity_matrix.h"
#include "models/gpt.h"
#include "ops/plan/alike.h"
#include "ops/plan/bounds.h"
#include "ops/plan/explain.h"
#include "ops/plan/report.h"
#include "parallel/comm/dry_group.h"
#include "tests/plan/by_flops.h"

using namespace trireme;
using namespace trireme::plan;

namespace {

/// Of all ranks.
double simulated_seconds(const TrainOptions& options, const DryProgram& program) {
  const std::shared_ptr<DryFacts> facts = make_dry_facts();
  std::vector<std::unique_ptr<Trace>> traces;
  std::vector<RankProgram> programs;
  for (int rank = options.mesh.shape.ranks() - 1; rank >= 0; --rank) {
    traces.push_back(std::make_unique<Trace>());
    dry_run_trace(options, program, rank, *traces.back(), facts);
    programs.push_back({.rank = rank, .trace = traces.back().get()});
  }
  return step_seconds(simulate(programs, ByFlops()));
}

}  // namespace

// Also shows that the traces of all ranks fit together, with every schedule, ZeRO stage and kind of parallelism.
TEST_CASE("one pipeline of a mesh takes as long as all of its ranks do") {
  const std::vector<Combination> all = covering_subset(parity_matrix());
  for (std::size_t i = 0; i < all.size(); i += 5) {
    INFO(to_string(all[i]));
    const GptOptions options = options_of(all[i].arguments);
    const DryProgram program = program_of(options);
    const double whole = simulated_seconds(options, program), folded = predict(options, program, ByFlops()).seconds;
    CHECK(whole > 0);
    CHECK(folded == doctest::Approx(whole).epsilon(0.05));  // ranks differ a little: a bias is added by one of tp
  }
}

TEST_CASE("stages that are alike share a dry run, and the prediction is the same") {
  for (const char* schedule : {"1f1b", "gpipe", "zero-bubble", "interleaved:2"})
    for (const char* zero : {"0", "1", "2", "3"}) {
      INFO(std::string(schedule), " ZeRO ", std::string(zero));
      const GptOptions options = options_of(
          {"--mesh", "dp=2,pp=5", "--pipeline", schedule, "--zero", zero, "--layers", "11", "--micro-batches", "6"});
      const DryProgram program = program_of(options);
      const std::vector<int> like = alike_ranks(options, program, 1);
      int own = 0;
      for (std::size_t rank = 0; rank < like.size(); ++rank) own += like[rank] == static_cast<int>(rank) ? 1 : 0;
      CHECK((own < 5) == (std::string(zero) != "3"));
      const Prediction all = predict(options, program, ByFlops());
      CHECK(all.seconds == doctest::Approx(simulated_seconds(options, program)).epsilon(1e-3));
      std::int64_t most = 0;
      for (int rank = 0; rank < options.mesh.shape.ranks(); ++rank)
        most = std::max(most, dry_run_memory(options, program, rank).peak);
      CHECK(all.most_memory().peak == most);
    }
}

TEST_CASE("many micro-batches take as long as their extrapolation says") {
  for (const char* schedule : {"1f1b", "gpipe", "zero-bubble", "interleaved:2"}) {
    INFO(std::string(schedule));
    const std::vector<std::string> arguments = {"--mesh",   "pp=2", "--pipeline",      schedule,
                                                "--layers", "4",    "--micro-batches", "16"};
    const GptOptions options = options_of(arguments);
    const DryProgram program = program_of(options);
    CHECK(predict(options, program, ByFlops()).seconds ==
          doctest::Approx(simulated_seconds(options, program)).epsilon(0.01));
  }
}

TEST_CASE("the parts of a step add up to it, and its FLOPs are those of all ranks") {
  const GptOptions one = options_of({"--layers", "4"}), four = options_of({"--layers", "4", "--mesh", "dp=2,pp=2"});
  const Prediction alone = predict(one, program_of(one), ByFlops()),
                   together = predict(four, program_of(four), ByFlops());
  double sum = 0;
  for (const auto& [name, seconds] : parts(together)) {
    CHECK(name != "waiting for a core");  // which is what the others leave
    sum += seconds;
  }
  CHECK(sum == doctest::Approx(together.seconds).epsilon(1e-6));
  CHECK(together.flops == doctest::Approx(2 * alone.flops).epsilon(1e-6));  // twice the samples
}

// A rank that waits in its last backward makes all earlier stages wait.
TEST_CASE("no backward waits for sums of gradients that the backward of another block hides") {
  for (const char* zero : {"0", "1", "2"}) {
    INFO("ZeRO " << zero);
    const GptOptions options = options_of({"--layers", "4", "--width", "4096", "--heads", "32", "--mesh", "dp=2,pp=2",
                                           "--micro-batches", "4", "--zero", zero});
    const Recording recording = record(options, program_of(options), ByFlops(4e-11));
    for (std::size_t rank = 0; rank < recording.traces.size(); ++rank) {
      const Trace& trace = recording.traces[rank];
      double waits = 0;
      int sums = 0;
      for (const Timeline::Span& span : recording.timeline.ranks[rank].program)
        for (const Trace::Part& part : trace.parts()) {
          const Trace::Event& event = trace.events()[span.index];
          if (part.kind != "backward" || span.index < part.begin || span.index >= part.end) continue;
          const bool is_wait = event.kind == Trace::EventKind::wait;
          if (is_wait && trace.transfers()[static_cast<std::size_t>(event.index)].background) {
            waits += span.end - span.begin;
            ++sums;
          }
        }
      INFO(sums << " sums on rank " << rank);
      CHECK(waits < 1e-3 * recording.timeline.seconds);
    }
  }
}

TEST_CASE("no prediction is below its lower bound") {
  const std::vector<Combination> all = covering_subset(parity_matrix());
  for (std::size_t i = 1; i < all.size(); i += 7) {
    INFO(to_string(all[i]));
    const GptOptions options = options_of(all[i].arguments);
    const DryProgram program = program_of(options);
    const ModelFacts model = model_facts(options, program);
    const ByFlops machine;
    Bounds bounds(program, model, machine);
    const LowerBound bound = bounds.quick(options);
    const LowerBound close = bounds.close(options);
    const Prediction prediction = predict(options, program, ByFlops());
    CHECK(bound.seconds > 0);
    CHECK(bound.seconds <= prediction.seconds * (1 + 1e-9));
    CHECK(close.seconds <= prediction.seconds * (1 + 1e-9));
    CHECK(close.seconds >= 0.3 * prediction.seconds);  // background collectives alone are missing
    CHECK(bound.work <= bound.seconds * (1 + 1e-9));
    CHECK(static_cast<double>(bound.memory) >= 0.3 * static_cast<double>(prediction.most_memory().peak));
    CHECK(bound.memory <= prediction.most_memory().peak);
    CHECK(close.memory <= prediction.most_memory().peak);
    CHECK(least_memory(options, model) <= prediction.most_memory().peak);
    if (options.mesh.zero < 2) continue;
    const ByFlops slow_links(1e-8);  // what is exchanged takes longer than what is computed
    CHECK(Bounds(program, model, slow_links).close(options).seconds <=
          predict(options, program, slow_links).seconds * (1 + 1e-9));
  }
}

TEST_CASE("memory of a prediction is that of dry runs for memory alone") {
  for (const char* schedule : {"1f1b", "gpipe", "zero-bubble", "interleaved:2"}) {
    INFO(std::string(schedule));
    for (const char* micro_batches : {"2", "17"}) {
      INFO(std::string(micro_batches));
      const GptOptions options =
          options_of({"--mesh", "pp=2", "--pipeline", schedule, "--layers", "4", "--micro-batches", micro_batches});
      const DryProgram program = program_of(options);
      const Prediction prediction = predict(options, program, ByFlops(), 2);
      for (int rank = 0; rank < 2; ++rank) {
        INFO(rank);
        const RankMemory alone = dry_run_memory(options, program, rank);
        const RankMemory& found = prediction.memory[static_cast<std::size_t>(rank)];
        if (options.batch_sizes().micro_batches == 2) {
          CHECK(found.peak == alone.peak);
          CHECK(found.at_peak == alone.at_peak);
        } else {  // extrapolated: messages under way and the runs of interleaved schedules vary
          CHECK(static_cast<double>(found.peak) == doctest::Approx(static_cast<double>(alone.peak)).epsilon(0.03));
        }
      }
    }
  }
}

TEST_CASE("an explanation goes from the time at the peak to that of a step, and its lines add up") {
  const GptOptions options =
      options_of({"--layers", "4", "--mesh", "dp=2,pp=2", "--recompute", "full", "--dtype", "bf16"});
  const DryProgram program = program_of(options);
  Question question;
  question.model = model_facts(options, program);
  question.targets = 32;
  question.cluster.device.bf16_flops = 1e12;
  const Choice choice{options, predict(options, program, ByFlops())};
  std::istringstream lines(explain(question, choice));
  std::map<std::string, double> times;
  const std::regex time("  (.*[^ ]) +([+-]?[0-9.e-]+) s(  .*)?");
  std::smatch match;
  for (std::string line; std::getline(lines, line);)
    if (std::regex_match(line, match, time)) times[match[1]] = std::stod(match[2]);
  for (const char* part : {"at the peak", "recomputing", "below the peak", "imbalance", "pp", "a step takes"})
    CHECK_MESSAGE(times.contains(part), std::string(part));
  double sum = 0;
  for (const auto& [part, seconds] : times)
    if (part != "a step takes") sum += seconds;
  CHECK(sum == doctest::Approx(times["a step takes"]).epsilon(1e-3));
  CHECK(times["a step takes"] == doctest::Approx(choice.prediction.seconds).epsilon(1e-3));
}

TEST_CASE("facts of a model") {
  const GptOptions one = options_of({"--layers", "4"}), split = options_of({"--layers", "4", "--mesh", "pp=2,tp=2"});
  const ModelFacts facts = model_facts(one, program_of(one)), same = model_facts(split, program_of(split));
  CHECK(facts.parameters >= parameter_count(one.model.config));  // with the padding of the vocabulary
  CHECK(facts.parameters < 1.1 * static_cast<double>(parameter_count(one.model.config)));
  CHECK(facts.weights == 4 * facts.parameters);    // f32
  CHECK(facts.optimizer >= 8 * facts.parameters);  // two moments
  CHECK(same.parameters == facts.parameters);
  const double batch = static_cast<double>(one.batch_sizes().global_batch);
  CHECK(facts.flops * batch == doctest::Approx(predict(one, program_of(one), ByFlops()).flops).epsilon(1e-6));
}
