// The executor on thread ranks against one rank: a stack of small stages, every count of stages and micro-batches,
// every schedule. All of them add the same numbers in the same order, so loss and gradients must agree bit for bit.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "autograd/engine.h"
#include "autograd/node.h"
#include "autograd/ops.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/schedules.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

using namespace trireme;
using namespace trireme::pipeline;
using namespace trireme::testing;

namespace {

constexpr std::int64_t rows = 3, width = 5;
constexpr ProcessGroup::Deadline deadline{20.0};

/// y = tanh(x weight^T + bias), with f32 gradients like a parameter's.
struct Stage {
  Tensor weight, bias;

  Stage(int index, DType dtype)
      : weight(random({width, width}, 100 + static_cast<std::uint64_t>(index), dtype)),
        bias(random({width}, 200 + static_cast<std::uint64_t>(index), dtype)) {
    for (Tensor* parameter : {&weight, &bias}) {
      require_grad(*parameter);
      leaf_of(*parameter)->grad() = Tensor::zeros(parameter->shape());
      leaf_of(*parameter)->set_parameter();
    }
  }
  Tensor operator()(const Tensor& x) const { return tanh(linear(x, weight, bias)); }  // [R, D] -> [R, D]
};

Tensor input(int microbatch, DType dtype) {
  return random({rows, width}, static_cast<std::uint64_t>(microbatch), dtype);
}
Tensor loss_of(const Tensor& y, int microbatches) { return sum(square(y)) * (1.0 / microbatches); }

struct Result {
  double loss = 0;
  std::vector<Tensor> gradients;  // weight and bias of each stage
};

Result run_one_rank(int stages, int microbatches, DType dtype) {
  Result result;
  std::vector<Stage> stack;
  stack.reserve(static_cast<std::size_t>(stages));
  for (int s = 0; s < stages; ++s) stack.emplace_back(s, dtype);
  for (int m = 0; m < microbatches; ++m) {
    Tensor x = input(m, dtype);
    for (const Stage& stage : stack) x = stage(x);
    const Tensor loss = loss_of(x, microbatches);
    result.loss += loss.item();
    backward(loss);
  }
  for (const Stage& stage : stack) {
    result.gradients.push_back(grad(stage.weight));
    result.gradients.push_back(grad(stage.bias));
  }
  return result;
}

struct RankRun {
  StepReport report;
  int peak_alive = 0;             ///< the most outputs with a live tape right after a forward, counted by this test
  std::vector<Action> announced;  ///< the backwards that the executor announced
  int early_hooks = 0;            ///< gradients that changed after their ready hook in the last backward
  int ready = 0;                  ///< ready hooks called in the last backward of their stage
  std::int64_t bytes_left = 0;    ///< activations alive after the step, less those before and the step's loss
};

/// The stages of one rank, with hooks that record when their gradients are ready.
struct RankStages {
  std::map<int, Stage> stages;
  std::map<const Tensor*, Tensor> when_ready;  ///< the gradient at the time of its ready hook
  int calls = 0;
  bool last = false;  ///< the current backward is the last of its stage

  RankStages(const Schedule& schedule, int rank, DType dtype) {
    for (int s = rank; s < schedule.stages; s += schedule.rank_count()) {
      const Stage& stage = stages.emplace(s, Stage(s, dtype)).first->second;
      for (const Tensor* parameter : {&stage.weight, &stage.bias}) {
        leaf_of(*parameter)->on_grad_ready([this, parameter] {
          if (!last) return;
          ++calls;
          when_ready[parameter] = clone(grad(*parameter));
        });
      }
    }
  }
};

Result run_pipeline(const Schedule& schedule, DType dtype, std::vector<RankRun>& runs) {
  Result result;
  result.gradients.resize(2 * static_cast<std::size_t>(schedule.stages));
  runs.assign(schedule.ranks.size(), {});
  run_thread_ranks(schedule.rank_count(), 1, deadline, [&](const std::shared_ptr<ProcessGroup>& group) {
    RankRun& run = runs[static_cast<std::size_t>(group->rank())];
    RankStages mine(schedule, group->rank(), dtype);
    std::vector<std::weak_ptr<Node>> outputs;
    const auto forward = [&](int s, const Tensor& received, int microbatch) {
      const Tensor output = mine.stages.at(s)(s == 0 ? input(microbatch, dtype) : received);
      if (output.node() != nullptr) outputs.push_back(output.node());
      const auto alive = [](const std::weak_ptr<Node>& node) { return !node.expired(); };
      run.peak_alive = std::max(run.peak_alive, static_cast<int>(std::count_if(outputs.begin(), outputs.end(), alive)));
      return s == schedule.stages - 1 ? loss_of(output, schedule.microbatches) : output;
    };
    Executor executor(schedule, *group);
    const std::int64_t before = MemoryPool::current()->use(MemoryCategory::activations).live;
    run.report = executor.run({forward, {rows, width}, dtype}, [&](int stage, int microbatch) {
      mine.last = microbatch == schedule.microbatches - 1;
      run.announced.push_back({ActionKind::backward, stage, microbatch});
    });
    run.ready = mine.calls;
    for (const auto& [s, stage] : mine.stages) {
      if (s == schedule.stages - 1) result.loss = run.report.loss.item();
      result.gradients[2 * static_cast<std::size_t>(s)] = grad(stage.weight);
      result.gradients[2 * static_cast<std::size_t>(s) + 1] = grad(stage.bias);
    }
    for (const auto& [parameter, gradient] : mine.when_ready) {
      const Tensor now = grad(*parameter);
      if (!same_bits(gradient, now)) ++run.early_hooks;
    }
    mine.when_ready.clear();
    run.bytes_left = MemoryPool::current()->use(MemoryCategory::activations).live - before - run.report.loss.bytes();
  });
  return result;
}

void check_same(const Result& result, const Result& reference) {
  CHECK(result.loss == reference.loss);
  REQUIRE(result.gradients.size() == reference.gradients.size());
  for (std::size_t i = 0; i < result.gradients.size(); ++i) {
    CAPTURE(i);
    CHECK(same_bits(result.gradients[i], reference.gradients[i]));
  }
}

/// Checks that the schedule gives the bits of one rank, and keeps as many activations alive as check() says.
void check_run(const Schedule& schedule) {
  CAPTURE(schedule.name);
  CAPTURE(schedule.stages);
  CAPTURE(schedule.rank_count());
  CAPTURE(schedule.microbatches);
  std::vector<RankRun> runs;
  check_same(run_pipeline(schedule, DType::f32, runs),
             run_one_rank(schedule.stages, schedule.microbatches, DType::f32));
  const ScheduleCosts figures = check(schedule);
  for (std::size_t rank = 0; rank < runs.size(); ++rank) {
    CAPTURE(rank);
    const RankRun& run = runs[rank];
    std::vector<Action> backwards;  // of the schedule, in the form in which they are announced
    bool split = false;
    for (const Action& action : schedule.ranks[rank]) {
      split = split || action.kind == ActionKind::backward_weight;
      if (is_gradient(action.kind) || action.kind == ActionKind::backward_weight)
        backwards.push_back({ActionKind::backward, action.stage, action.microbatch});
    }
    CHECK(run.announced == backwards);
    CHECK(run.report.peak_live == figures.peak_live[rank]);
    if (!split) CHECK(run.peak_alive == figures.peak_live[rank]);
    CHECK(run.ready == 2 * schedule.chunks());
    CHECK(run.early_hooks == 0);
    CHECK(run.bytes_left == 0);
    if (rank + 1 < runs.size()) CHECK(run.report.loss.item() == 0);
  }
}

}  // namespace

TEST_CASE("every schedule of up to 6 stages and 8 micro-batches gives the loss and gradients of one rank") {
  for (int stages = 1; stages <= 6; ++stages) {
    for (int microbatches = 1; microbatches <= 8; ++microbatches) {
      for (const ScheduleKind& kind : schedule_kinds())
        if (kind.make != nullptr) check_run(kind.make(stages, microbatches));
    }
  }
}

TEST_CASE("interleaved schedules of up to 4 ranks, 6 micro-batches and 4 chunks give the bits of one rank") {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (int microbatches = 1; microbatches <= 6; ++microbatches) {
      for (int chunks = 2; chunks <= 4; ++chunks) check_run(interleaved(ranks, microbatches, chunks));
    }
  }
}

TEST_CASE("bf16 activations and gradients cross stages without another rounding") {
  std::vector<RankRun> runs;
  for (const Schedule& schedule : {one_f_one_b(3, 4), zero_bubble(3, 4)})
    check_same(run_pipeline(schedule, DType::bf16, runs), run_one_rank(3, 4, DType::bf16));
  check_same(run_pipeline(interleaved(2, 3, 2), DType::bf16, runs), run_one_rank(4, 3, DType::bf16));
}

TEST_CASE("forward only: the same loss, no tape, no gradient, one micro-batch alive") {
  for (const Schedule& schedule : {forward_only(3, 5), forward_only(2, 5, 3), forward_only(1, 2, 2)}) {
    std::vector<RankRun> runs;
    const Result result = run_pipeline(schedule, DType::f32, runs);
    CHECK(result.loss == run_one_rank(schedule.stages, schedule.microbatches, DType::f32).loss);
    for (const RankRun& run : runs) {
      CHECK(run.report.peak_live == 1);
      CHECK(run.peak_alive == 0);
      CHECK(run.announced.empty());
      CHECK(run.report.backward_seconds == 0);
      CHECK(run.bytes_left == 0);
    }
    for (const Tensor& gradient : result.gradients) CHECK(same_bits(gradient, Tensor::zeros(gradient.shape())));
  }
}

TEST_CASE("a split backward leaves every gradient of a parameter for its second part") {
  // Squared norms of the gradients on rank 1, a middle stage, before each backward and at the end.
  const Schedule schedule = zero_bubble(3, 4);
  std::vector<double> weights, biases;
  run_thread_ranks(3, 1, deadline, [&](const std::shared_ptr<ProcessGroup>& group) {
    const Stage stage(group->rank(), DType::f32);
    const auto forward = [&](int s, const Tensor& received, int microbatch) {
      const Tensor y = stage(s == 0 ? input(microbatch, DType::f32) : received);
      return s == 2 ? loss_of(y, 4) : y;
    };
    const auto norm = [](const Tensor& gradient) {
      double sum = 0;
      for (const float value : gradient.span<float>()) sum += value * value;
      return sum;
    };
    const auto note = [&] {
      if (group->rank() != 1) return;
      weights.push_back(norm(grad(stage.weight)));
      biases.push_back(norm(grad(stage.bias)));
    };
    Executor(schedule, *group).run({forward, {rows, width}, DType::f32}, [&](int, int) { note(); });
    note();
  });
  std::vector<ActionKind> kinds;
  for (const Action& action : schedule.ranks[1]) {
    if (is_gradient(action.kind) || action.kind == ActionKind::backward_weight) kinds.push_back(action.kind);
  }
  REQUIRE(weights.size() == kinds.size() + 1);
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    CAPTURE(i);
    CHECK((weights[i + 1] != weights[i]) == (kinds[i] == ActionKind::backward_weight));
    CHECK((biases[i + 1] != biases[i]) == (kinds[i] == ActionKind::backward_weight));
  }
}

TEST_CASE("forward only: the last stage may keep its result to itself") {
  Tensor kept;
  run_thread_ranks(2, 1, deadline, [&](const std::shared_ptr<ProcessGroup>& group) {
    Executor executor(forward_only(2, 1), *group);
    const auto forward = [&](int, const Tensor& received, int) {
      if (group->rank() == 0) return Tensor::full({2, 3}, 7.0);
      kept = received * 2.0;
      return Tensor();
    };
    executor.run({forward, {2, 3}, DType::f32});
  });
  REQUIRE(kept.defined());
  for (const float value : kept.span<float>()) CHECK(value == 14.0F);
}

TEST_CASE("an activation that no operation saved is not kept until its backward") {
  constexpr std::int64_t side = 64, buffer = side * side * 4;
  constexpr int microbatches = 12;
  std::vector<std::int64_t> peaks(3);
  run_thread_ranks(3, 1, deadline, [&](const std::shared_ptr<ProcessGroup>& group) {
    Tensor scale_factor = Tensor::full({1}, 2.0);
    require_grad(scale_factor);
    const auto forward = [&](int, const Tensor& received, int) {
      if (group->rank() == 2) return sum(received);
      return group->rank() == 1 ? received * 2.0 : Tensor::full({side, side}, 1.0) + scale_factor;
    };
    Executor executor(gpipe(3, microbatches), *group);
    MemoryPool::current()->reset_peaks();
    executor.run({forward, {side, side}, DType::f32});
    peaks[static_cast<std::size_t>(group->rank())] = MemoryPool::current()->use(MemoryCategory::activations).peak;
  });
  for (const std::int64_t peak : peaks) CHECK(peak <= 6 * buffer);  // GPipe: 12 micro-batches are alive at once
}

TEST_CASE("an executor runs step after step") {
  std::vector<double> losses;
  run_thread_ranks(2, 1, deadline, [&](const std::shared_ptr<ProcessGroup>& group) {
    Executor executor(one_f_one_b(2, 3), *group);
    const Stage stage(group->rank(), DType::f32);
    const auto forward = [&](int, const Tensor& received, int microbatch) {
      const Tensor y = stage(group->rank() == 0 ? input(microbatch, DType::f32) : received);
      return group->rank() == 1 ? loss_of(y, 3) : y;
    };
    for (int step = 0; step < 4; ++step) {
      const StepReport report = executor.run({forward, {rows, width}, DType::f32});
      if (group->rank() == 1) losses.push_back(report.loss.item());
    }
  });
  CHECK(losses == std::vector<double>(4, run_one_rank(2, 3, DType::f32).loss));
}

TEST_CASE("wrong stage functions are refused, and a failing stage ends all ranks with its own error") {
  const auto run = [](const std::function<Tensor(const Tensor&, int, int)>& forward) {
    return error_of([&] {
      run_thread_ranks(3, 1, deadline, [&](const std::shared_ptr<ProcessGroup>& group) {
        Executor executor(one_f_one_b(3, 4), *group);
        executor.run({[&](int s, const Tensor& x, int m) { return forward(x, m, s); }, {rows, width}, DType::f32});
      });
    });
  };
  const auto pass_on = [](const Tensor& x, int m, int rank) {
    Tensor start = input(m, DType::f32);
    if (rank == 0) require_grad(start);
    const Tensor y = (rank == 0 ? start : x) * 2.0;
    return rank == 2 ? sum(y) : y;
  };
  CHECK(run(pass_on) == "");
  CHECK(run([&](const Tensor& x, int m, int rank) {
          if (rank == 1 && m == 2) fail(ExitCode::numerical, "block 7", "not finite");
          return pass_on(x, m, rank);
        }) == "trireme: [block 7] not finite");
  const std::string shape = run([&](const Tensor& x, int m, int rank) {
    return rank == 1 ? slice(pass_on(x, m, rank), 0, 0, 1) : pass_on(x, m, rank);
  });
  CHECK(shape.find("stage 1 returned shape [1, 5] in f32; expected an activation of shape [3, 5] in f32") !=
        std::string::npos);
  const std::string no_loss =
      run([&](const Tensor& x, int m, int rank) { return rank == 2 ? x * 1.0 : pass_on(x, m, rank); });
  CHECK(no_loss.find("the last stage returned [3, 5]; expected the loss") != std::string::npos);
  const std::string cut_off = run([&](const Tensor& x, int m, int rank) {
    return rank == 1 ? pass_on({}, m, 0) : pass_on(x, m, rank);  // does not use what it received
  });
  CHECK(cut_off.find("stage 1 computed an output that does not depend on its input") != std::string::npos);
  const std::string wrong_group = error_of([] { Executor(gpipe(2, 2), *self_group()); });
  CHECK(wrong_group.find("a schedule of 2 stages") != std::string::npos);
}

TEST_CASE("the loss of the step reaches every rank") {
  std::vector<double> seen(8, 0);
  run_thread_ranks(8, 1, deadline, [&](const std::shared_ptr<ProcessGroup>& world) {
    const DeviceMesh mesh(world, parse_mesh("dp=2,tp=2,pp=2", 8));
    // Both tp ranks of a last stage have the same loss; the first stage has none.
    const double loss = mesh.is_last(Axis::pp) ? 0.1 + mesh.coord(Axis::dp) : 0.0;
    seen[static_cast<std::size_t>(mesh.rank())] = global_loss(mesh, Tensor::full({1}, loss, DType::f64));
  });
  CHECK(seen == std::vector<double>(8, 0.1 + 1.1));
}
