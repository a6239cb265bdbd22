#include "parallel/pipeline/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "autograd/deferred.h"
#include "autograd/engine.h"
#include "autograd/node.h"
#include "core/kernels.h"
#include "core/profile.h"
#include "parallel/comm/trace.h"
#include "parallel/comm/watch/beacon.h"

namespace trireme::pipeline {

namespace {

/// The tag of a message to `stage`: an activation from the stage before, or a gradient from the stage after.
int tag_of(int stage, bool gradient) { return 2 * stage + (gradient ? 1 : 0); }

/// Adds the seconds of its lifetime to `sum`.
class Stopwatch {
 public:
  explicit Stopwatch(double& sum) : sum_(sum) {}
  ~Stopwatch() { sum_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& sum_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

struct Message {
  Tensor tensor;
  Work work;
};

/// The messages of one kind, in the order of the list's receives, all from one rank. Always posts exactly one ahead,
/// since each needs a buffer.
class Inbox {
 public:
  Inbox(ProcessGroup& group, int from, const StageFunctions& stage, const std::vector<Action>& list, ActionKind kind)
      : group_(group), from_(from), stage_(stage) {
    for (const Action& action : list) {
      if (action.kind == kind) unposted_.push_back(tag_of(action.stage, kind == ActionKind::recv_gradient));
    }
    post();
  }

  /// The next message, which may still be on its way.
  Message take() {
    Message message = std::move(posted_);
    post();
    return message;
  }

 private:
  void post() {
    if (unposted_.empty()) return;
    const Tensor buffer = Tensor::empty(stage_.activation_shape, stage_.dtype, stage_.device);  // [B, T, D]
    posted_ = {buffer, group_.recv(buffer, from_, unposted_.front())};
    unposted_.pop_front();
  }

  ProcessGroup& group_;
  int from_;
  const StageFunctions& stage_;
  std::deque<int> unposted_;  // tags
  Message posted_;
};

/// A tensor of x's shape and place on the tape that keeps none of its elements alive. Operations have saved what they
/// need of an activation; backward then needs only its place on the tape.
Tensor without_elements(const Tensor& x) {
  Shape strides = x.shape();
  std::fill(strides.begin(), strides.end(), 0);
  Tensor result = Tensor::zeros({}, x.dtype(), x.device()).as_strided(x.shape(), strides, 0);
  result.set_node(x.node());
  return result;
}

/// One pass over one rank's list.
class ListRun {
 public:
  ListRun(const Schedule& schedule, ProcessGroup& group, const StageFunctions& stage,
          const BeforeBackward& before_backward)
      : schedule_(schedule),
        list_(schedule.ranks[static_cast<std::size_t>(group.rank())]),
        group_(group),
        stage_(stage),
        before_backward_(before_backward),
        before_(group, (group.rank() + group.size() - 1) % group.size(), stage, list_, ActionKind::recv_activation),
        after_(group, (group.rank() + 1) % group.size(), stage, list_, ActionKind::recv_gradient) {
    report_.loss = Tensor::zeros({1}, DType::f64, stage.device);
  }

  StepReport run() {
    for (const Action& action : list_) {
      const auto place = live_.try_emplace({action.stage, action.microbatch}).first;
      act(action, place->second);
      if (is_finished(place->second)) live_.erase(place);
    }
    const Stopwatch watch(report_.waiting_seconds);
    for (Work& work : sends_) work.wait();
    return report_;
  }

 private:
  /// A micro-batch on a stage for which this rank keeps data.
  struct Live {
    Message activation, gradient;
    Tensor input;               ///< a leaf that collects the gradient to send back; undefined on the first stage
    Tensor output;              ///< the activation until it is sent, then only its place on the tape
    Tensor input_gradient;      ///< defined until it is sent
    DeferredGradients weights;  ///< of a split backward, between its parts
    bool computed = false;      ///< the last computation is done
  };

  bool is_first(int stage) const { return stage == 0; }
  bool is_last(int stage) const { return stage == schedule_.stages - 1; }
  /// True if neighbour stages also live on this rank, and messages are handed over directly.
  bool alone() const { return group_.size() == 1; }

  bool is_finished(const Live& live) const {
    return live.computed && !live.input_gradient.defined() && !live.output.defined();
  }

  void act(const Action& action, Live& live) {
    const auto [kind, stage, microbatch] = action;
    const ProfileScope event([&action] {
      return ProfileEvent{
          .category = "pipeline",
          .name = fmt::format("{} stage {} micro-batch {}", name(action.kind), action.stage, action.microbatch),
          .detail = {}};
    });
    Trace* const trace = is_message(kind) ? nullptr : Trace::current();
    if (trace != nullptr) trace->begin_part(std::string(name(kind)), stage, microbatch);
    std::optional<watch::PhaseScope> phase;  // includes the work of the before_backward callback
    if (kind == ActionKind::backward || kind == ActionKind::backward_input || kind == ActionKind::backward_weight)
      phase.emplace(Phase::backward);
    switch (kind) {
      case ActionKind::recv_activation:
        live.activation = before_.take();
        break;
      case ActionKind::forward:
        forward(live, stage, microbatch);
        break;
      case ActionKind::send_activation:
        send(live.output, (group_.rank() + 1) % group_.size(), tag_of(stage + 1, false));
        live.output = schedule_.backward ? without_elements(live.output) : Tensor();
        break;
      case ActionKind::recv_gradient:
        live.gradient = after_.take();
        break;
      case ActionKind::backward:
        announce_backward(stage, microbatch);
        backward(live, stage, microbatch);
        note_computed(live);
        break;
      case ActionKind::backward_input: {
        announce_backward(stage, microbatch);
        const DeferWeightGradients scope(live.weights);
        backward(live, stage, microbatch);
        break;
      }
      case ActionKind::backward_weight: {
        announce_backward(stage, microbatch);
        const Stopwatch watch(report_.backward_seconds);
        live.weights.run();
        note_computed(live);
        break;
      }
      case ActionKind::send_gradient:
        send(std::exchange(live.input_gradient, {}), (group_.rank() + group_.size() - 1) % group_.size(),
             tag_of(stage - 1, true));
        break;
    }
    if (trace != nullptr) trace->end_part();
  }

  void announce_backward(int stage, int microbatch) const {
    if (before_backward_) before_backward_(stage, microbatch);
  }

  void note_computed(Live& live) {
    live.computed = true;
    --alive_;
  }

  Tensor arrived(Message message) {
    const Stopwatch watch(report_.waiting_seconds);
    message.work.wait();
    return message.tensor;
  }

  void send(const Tensor& x, int to, int tag) {
    sends_.erase(std::remove_if(sends_.begin(), sends_.end(), [](Work& work) { return work.done(); }), sends_.end());
    sends_.push_back(group_.send(contiguous(x.detach()), to, tag));
  }

  void forward(Live& live, int stage, int microbatch) {
    const watch::PhaseScope phase(Phase::forward);
    report_.peak_live = std::max(report_.peak_live, ++alive_);
    if (!is_first(stage)) live.input = arrived(std::exchange(live.activation, {}));  // [B, T, D]
    {
      const Stopwatch watch(report_.forward_seconds);
      if (schedule_.backward) {
        if (live.input.defined()) require_grad(live.input);
        live.output = stage_.forward(stage, live.input, microbatch);  // [B, T, D], or [] on the last stage
        if (live.input.defined()) live.input = without_elements(live.input);
      } else {
        const NoGrad guard;
        live.output = stage_.forward(stage, std::exchange(live.input, {}), microbatch);
      }
    }
    check_output(live.output, stage);
    if (is_last(stage) && live.output.defined()) add_loss(live.output);
    if (alone() && !is_last(stage)) {
      live_[{stage + 1, microbatch}].activation = {contiguous(live.output.detach()), {}};
      live.output = without_elements(live.output);
    }
    if (schedule_.backward) return;
    if (is_last(stage) || alone()) live.output = {};
    note_computed(live);
  }

  void add_loss(const Tensor& loss) {
    const Tensor one = view::reshape(contiguous(loss), {1});
    kernels(report_.loss.device()).axpby(1.0, one, 1.0, report_.loss);
  }

  void check_output(const Tensor& output, int stage) const {
    if (is_last(stage)) {
      if (!output.defined() && !schedule_.backward) return;
      require(output.defined() && output.count() == 1, "pipeline",
              "the last stage returned {}; expected the loss, one element",
              output.defined() ? to_string(output.shape()) : "nothing");
      return;
    }
    require(
        output.defined() && output.shape() == stage_.activation_shape && output.dtype() == stage_.dtype, "pipeline",
        "stage {} returned {}; expected an activation of shape {} in {}, which the next stage receives", stage,
        output.defined() ? fmt::format("shape {} in {}", to_string(output.shape()), name(output.dtype())) : "nothing",
        to_string(stage_.activation_shape), name(stage_.dtype));
  }

  void backward(Live& live, int stage, int microbatch) {
    Tensor gradient;  // [B, T, D]; undefined for the loss, whose gradient is 1
    if (!is_last(stage)) gradient = arrived(std::exchange(live.gradient, {}));
    const Stopwatch watch(report_.backward_seconds);
    const Tensor output = std::exchange(live.output, {});
    if (is_first(stage) && !is_last(stage) && !output.requires_grad()) return;  // all that it was made of is frozen
    trireme::backward(output, gradient);
    if (is_first(stage)) return;
    const Tensor collected = grad(live.input);
    require(collected.defined(), "pipeline", "stage {} computed an output that does not depend on its input", stage);
    live.input = {};
    const Tensor result = cast(collected, stage_.dtype);  // [B, T, D]
    if (alone()) {
      live_[{stage - 1, microbatch}].gradient = {result, {}};
    } else {
      live.input_gradient = result;
    }
  }

  const Schedule& schedule_;
  const std::vector<Action>& list_;
  ProcessGroup& group_;
  const StageFunctions& stage_;
  const BeforeBackward& before_backward_;
  int alive_ = 0;
  std::map<std::pair<int, int>, Live> live_;  // by stage and micro-batch
  Inbox before_, after_;                      // from the ranks of the stages before and after
  std::vector<Work> sends_;
  StepReport report_;
};

}  // namespace

Executor::Executor(Schedule schedule, ProcessGroup& group)
    : schedule_(std::move(schedule)), costs_(check(schedule_)), group_(group) {
  require(group.size() == schedule_.rank_count(), "pipeline",
          "a schedule of {} stages on {} ranks needs a group of as many ranks, got {} with {}", schedule_.stages,
          schedule_.rank_count(), group.name(), group.size());
}

StepReport Executor::run(const StageFunctions& stage, const BeforeBackward& before_backward) {
  return ListRun(schedule_, group_, stage, before_backward).run();
}

void add_over_ranks(const DeviceMesh& mesh, Tensor& loss) {
  if (mesh.size(Axis::data) > 1) mesh.group(Axis::data).all_reduce(loss).wait();
  if (mesh.size(Axis::pp) > 1) mesh.group(Axis::pp).broadcast(loss, mesh.size(Axis::pp) - 1).wait();
}

double global_loss(const DeviceMesh& mesh, const Tensor& loss) {
  Tensor sum = clone(loss);
  add_over_ranks(mesh, sum);
  return sum.item();
}

}  // namespace trireme::pipeline
