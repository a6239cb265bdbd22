#include "parallel/pipeline/executor.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "autograd/engine.h"
#include "autograd/node.h"

namespace trireme::pipeline {

namespace {

constexpr int activation_tag = 0, gradient_tag = 1;

/// Adds the seconds it lives to `sum`.
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

/// The messages of one direction, in the order of the list's receives. One is always posted ahead, and no more: each
/// is a buffer.
class Inbox {
 public:
  Inbox(ProcessGroup& group, int from, int tag, const StageFunctions& stage, std::ptrdiff_t count)
      : group_(group), from_(from), tag_(tag), stage_(stage), unposted_(count) {
    post();
  }

  /// The next message, perhaps still on its way.
  Message take() {
    Message message = std::move(posted_.front());
    posted_.pop_front();
    post();
    return message;
  }

 private:
  void post() {
    if (unposted_ == 0) return;
    --unposted_;
    const Tensor buffer = Tensor::empty(stage_.activation_shape, stage_.dtype);  // [B, T, D]
    posted_.push_back({buffer, group_.recv(buffer, from_, tag_)});
  }

  ProcessGroup& group_;
  int from_, tag_;
  const StageFunctions& stage_;
  std::ptrdiff_t unposted_;
  std::deque<Message> posted_;
};

/// A tensor of x's shape and place on the tape that keeps none of its elements alive. What operations need of an
/// activation they have saved themselves; backward needs no more than its place.
Tensor without_elements(const Tensor& x) {
  Shape strides = x.shape();
  std::fill(strides.begin(), strides.end(), 0);
  Tensor result = Tensor::zeros({}, x.dtype()).as_strided(x.shape(), strides, 0);
  result.set_node(x.node());
  return result;
}

/// One pass over one rank's list.
class Pass {
 public:
  Pass(const Schedule& schedule, ProcessGroup& group, const StageFunctions& stage,
       const std::function<void()>& before_last_backward)
      : schedule_(schedule),
        list_(schedule.ranks[static_cast<std::size_t>(group.rank())]),
        group_(group),
        stage_(stage),
        before_last_backward_(before_last_backward),
        is_first_(group.rank() == 0),
        is_last_(group.rank() == group.size() - 1),
        backwards_left_(count(ActionKind::backward)) {
    if (!is_first_)
      activations_.emplace(group, group.rank() - 1, activation_tag, stage, count(ActionKind::recv_activation));
    if (!is_last_) gradients_.emplace(group, group.rank() + 1, gradient_tag, stage, count(ActionKind::recv_gradient));
  }

  StepReport run() {
    for (const Action& action : list_) {
      Live& live = live_[action.microbatch];
      switch (action.kind) {
        case ActionKind::recv_activation:
          live.activation = activations_->take();
          break;
        case ActionKind::forward:
          forward(live, action.microbatch);
          break;
        case ActionKind::send_activation:
          send_activation(live);
          break;
        case ActionKind::recv_gradient:
          live.gradient = gradients_->take();
          break;
        case ActionKind::backward:
          backward(live);
          break;
        case ActionKind::send_gradient:
          send(std::exchange(live.input_gradient, {}), group_.rank() - 1, gradient_tag);
          break;
      }
      if (is_finished(action.kind)) live_.erase(action.microbatch);
    }
    const Stopwatch watch(report_.waiting_seconds);
    for (Work& work : sends_) work.wait();
    return report_;
  }

 private:
  /// A micro-batch of which this rank keeps something.
  struct Live {
    Message activation, gradient;
    Tensor input;           ///< a leaf that collects the gradient to send back; undefined on the first stage
    Tensor output;          ///< the activation until it is sent, then only its place on the tape
    Tensor input_gradient;  ///< until it is sent
  };

  std::ptrdiff_t count(ActionKind kind) const {
    return std::count_if(list_.begin(), list_.end(), [&](const Action& action) { return action.kind == kind; });
  }

  bool is_finished(ActionKind kind) const {
    if (schedule_.backward) return kind == (is_first_ ? ActionKind::backward : ActionKind::send_gradient);
    return kind == (is_last_ ? ActionKind::forward : ActionKind::send_activation);
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

  void forward(Live& live, int microbatch) {
    report_.peak_live = std::max(report_.peak_live, ++alive_);
    if (!is_first_) live.input = arrived(std::exchange(live.activation, {}));  // [B, T, D]
    const Stopwatch watch(report_.forward_seconds);
    if (schedule_.backward) {
      if (live.input.defined()) require_grad(live.input);
      live.output = stage_.forward(live.input, microbatch);  // [B, T, D], or [] on the last stage
      if (live.input.defined()) live.input = without_elements(live.input);
    } else {
      const NoGrad guard;
      live.output = stage_.forward(live.input, microbatch);
      live.input = {};
      --alive_;
    }
    check_output(live.output);
    if (is_last_ && live.output.defined()) report_.loss += live.output.item();
  }

  void check_output(const Tensor& output) const {
    if (is_last_) {
      if (!output.defined() && !schedule_.backward) return;
      require(output.defined() && output.count() == 1, "pipeline",
              "the last stage returned {}; expected the loss, one element",
              output.defined() ? to_string(output.shape()) : "nothing");
      return;
    }
    require(
        output.defined() && output.shape() == stage_.activation_shape && output.dtype() == stage_.dtype, "pipeline",
        "stage {} returned {}; expected an activation of shape {} in {}, which the next stage receives", group_.rank(),
        output.defined() ? fmt::format("shape {} in {}", to_string(output.shape()), name(output.dtype())) : "nothing",
        to_string(stage_.activation_shape), name(stage_.dtype));
  }

  void send_activation(Live& live) {
    send(live.output, group_.rank() + 1, activation_tag);
    live.output = schedule_.backward ? without_elements(live.output) : Tensor();
  }

  void backward(Live& live) {
    Tensor gradient;  // [B, T, D]; undefined for the loss, whose gradient is 1
    if (!is_last_) gradient = arrived(std::exchange(live.gradient, {}));
    if (--backwards_left_ == 0 && before_last_backward_) before_last_backward_();
    const Stopwatch watch(report_.backward_seconds);
    trireme::backward(std::exchange(live.output, {}), gradient);
    if (!is_first_) {
      const Tensor collected = grad(live.input);
      require(collected.defined(), "pipeline", "stage {} computed an output that does not depend on its input",
              group_.rank());
      live.input_gradient = cast(collected, stage_.dtype);  // [B, T, D]
      live.input = {};
    }
    --alive_;
  }

  const Schedule& schedule_;
  const std::vector<Action>& list_;
  ProcessGroup& group_;
  const StageFunctions& stage_;
  const std::function<void()>& before_last_backward_;
  bool is_first_, is_last_;
  std::ptrdiff_t backwards_left_;
  int alive_ = 0;
  std::map<int, Live> live_;  // by micro-batch
  std::optional<Inbox> activations_, gradients_;
  std::vector<Work> sends_;
  StepReport report_;
};

}  // namespace

Executor::Executor(Schedule schedule, ProcessGroup& group)
    : schedule_(std::move(schedule)), proof_(check(schedule_)), group_(group) {
  require(group.size() == schedule_.stages, "pipeline",
          "a schedule of {} stages needs a group of as many ranks, got {} with {}", schedule_.stages, group.name(),
          group.size());
}

StepReport Executor::run(const StageFunctions& stage, const std::function<void()>& before_last_backward) {
  return Pass(schedule_, group_, stage, before_last_backward).run();
}

double global_loss(const DeviceMesh& mesh, double loss) {
  const Tensor sum = Tensor::full({1}, loss, DType::f64);
  mesh.group(Axis::data).all_reduce(sum).wait();
  mesh.group(Axis::pp).broadcast(sum, mesh.size(Axis::pp) - 1).wait();
  return sum.item();
}

}  // namespace trireme::pipeline
