// The backward pass: count how often each node's gradient will be added to, then run nodes, newest first, as soon as
// their gradient is complete. A leaf is complete before older operations run, so communication can start early.
#include "autograd/engine.h"

#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/autocast.h"
#include "autograd/deferred.h"
#include "autograd/node.h"
#include "core/kernels.h"

namespace trireme {
namespace {

struct NodeProgress {
  int expected = 0;  // contributions still to come
  Tensor gradient;   // their sum so far
};

thread_local int passes = 0;  // under way now: recomputation runs one inside another

struct InBackward {
  InBackward() { ++passes; }
  ~InBackward() { --passes; }
  InBackward(const InBackward&) = delete;
  InBackward& operator=(const InBackward&) = delete;
};

using NodePtr = std::shared_ptr<Node>;

class Engine;
thread_local Engine* engine = nullptr;  // whose operation runs its backward
thread_local Node* running = nullptr;   // that operation

/// Less: older; the queue then has the newest on top.
struct BySequence {
  bool operator()(const NodePtr& a, const NodePtr& b) const { return a->sequence() < b->sequence(); }
};

class Engine {
 public:
  Engine(const BackwardOptions& options, const SourceLine& at) : retain_(options.retain_graph), at_(at) {}

  /// Of a node that the running one used.
  Tensor take(Node& used, DType dtype) {
    if (auto* leaf = dynamic_cast<Leaf*>(&used)) return leaf->take_gradient(dtype);
    Tensor& gradient = progress_[&used].gradient;
    return gradient.defined() && gradient.dtype() == dtype ? std::exchange(gradient, {}) : Tensor();
  }

  void run(const NodePtr& root, const Tensor& gradient) {
    const InBackward here;
    count_contributions(root.get());
    progress_[root.get()].gradient = cast(gradient, root->gradient_dtype());
    ready_.push(root);
    while (!ready_.empty()) {
      const NodePtr node = ready_.top();
      ready_.pop();
      step(node);
    }
  }

 private:
  void count_contributions(Node* root) {
    std::vector<Node*> stack = {root};
    progress_[root];
    while (!stack.empty()) {
      Node* node = stack.back();
      stack.pop_back();
      for (const NodePtr& input : node->inputs()) {
        if (input == nullptr) continue;
        auto [entry, first_visit] = progress_.try_emplace(input.get());
        ++entry->second.expected;
        if (first_visit) stack.push_back(input.get());
      }
    }
  }

  void step(const NodePtr& node) {
    Tensor gradient = std::move(progress_[node.get()].gradient);
    Gradients gradients(node->inputs().size());
    if (gradient.defined()) gradients = run_backward(*node, gradient);
    gradient = {};  // what backward returned may be this tensor, and a leaf takes what nobody else has
    const bool keep = retain_ || node->saves_nothing();
    const std::vector<NodePtr> inputs = keep ? node->inputs() : std::exchange(node->inputs(), {});
    if (!keep) {
      node->release();
      node->set_backward_line(at_);
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == nullptr) continue;
      check_gradient(*node, i, *inputs[i], gradients[i]);
      contribute(inputs[i], std::move(gradients[i]));
    }
  }

  Gradients run_backward(Node& node, const Tensor& gradient) {
    const NoGrad guard;
    const Autocast as_given(std::nullopt);
    const Running here(*this, node);
    Gradients gradients = node.backward(gradient, retain_);
    require(gradients.size() == node.inputs().size(), node.name(),
            "backward returned {} gradients for {} inputs; expected one for each input, in order; return an undefined "
            "tensor for an input that needs none",
            gradients.size(), node.inputs().size());
    return gradients;
  }

  /// For the time in which a node's backward runs.
  class Running {
   public:
    Running(Engine& of, Node& node) : engine_(std::exchange(engine, &of)), node_(std::exchange(running, &node)) {}
    ~Running() {
      engine = engine_;
      running = node_;
    }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    Engine* engine_;
    Node* node_;
  };

  /// A gradient of another shape or precision would go on through the graph, or become that of a leaf. f64 belongs to
  /// f64 alone; f32 and 16 bits may stand for one another, as gradients are cast.
  static void check_gradient(const Node& node, std::size_t input, const Node& of, const Tensor& gradient) {
    if (!gradient.defined()) return;
    const DType dtype = of.gradient_dtype();
    const bool fits = is_floating(gradient.dtype()) && (gradient.dtype() == DType::f64) == (dtype == DType::f64);
    if (!fits)
      fail(ExitCode::internal, node.name(), "backward returned a gradient in {} of input {}; expected {}; cast() it",
           name(gradient.dtype()), input, name(dtype));
    if (!of.shape() || *of.shape() == gradient.shape()) return;
    fail(ExitCode::internal, node.name(),
         "backward returned a gradient {} of input {}, which is {}; expected the shape of the input; sum over the dims "
         "along which forward repeats it, or reshape",
         gradient.shape(), input, *of.shape());
  }

  void contribute(const NodePtr& node, Tensor gradient) {
    NodeProgress& progress = progress_[node.get()];
    const bool complete = --progress.expected == 0;
    if (auto* leaf = dynamic_cast<Leaf*>(node.get())) {
      // Added directly to the leaf's own, wider sum. If undefined, the operation has added it there itself.
      if (gradient.defined()) {
        auto add = [leaf, gradient = std::exchange(gradient, {})]() mutable { leaf->accumulate(std::move(gradient)); };
        add_weight_gradient(*leaf, std::move(add));
      }
      if (complete) add_weight_gradient(*leaf, [leaf] { leaf->run_hooks(); });
      return;
    }
    if (gradient.defined()) {
      require(!progress.gradient.defined() || progress.gradient.shape() == gradient.shape(), node->name(),
              "its result received gradients of shapes {} and {}; expected the shape of the result; an operation that "
              "uses it returns a wrong gradient",
              progress.gradient.shape(), gradient.shape());
      add(progress.gradient, cast(std::exchange(gradient, {}), node->gradient_dtype()));
    }
    if (complete) ready_.push(node);
  }

  static void add(Tensor& sum, Tensor gradient) {
    if (!sum.defined()) {
      sum = std::move(gradient);
      return;
    }
    if (!sum.sole_owner() || !sum.contiguous()) sum = clone(sum);
    kernels(sum.device()).axpby(1.0, contiguous(gradient), 1.0, sum);
  }

  bool retain_;
  SourceLine at_;
  std::unordered_map<Node*, NodeProgress> progress_;
  std::priority_queue<NodePtr, std::vector<NodePtr>, BySequence> ready_;  // the newest on top
};

}  // namespace

bool in_backward() { return passes > 0; }

Tensor take_gradient_so_far(std::size_t input, DType dtype) {
  require(engine != nullptr, "take_gradient_so_far", "no operation runs its backward; call it there");
  require(input < running->inputs().size(), running->name(),
          "it takes the gradient of input {}; expected one of its {}", input, running->inputs().size());
  const NodePtr& used = running->inputs()[input];
  return used == nullptr ? Tensor() : engine->take(*used, dtype);
}

void backward(const Tensor& root, const Tensor& gradient, const BackwardOptions& options, const SourceLine& at) {
  require(root.defined(), "backward", "the tensor is undefined; expected the loss; run forward first");
  require(root.requires_grad(), "backward",
          "no gradient flows to this tensor {}: nothing it was made of requires one; expected a result of a parameter "
          "or of a tensor given to require_grad(), recorded outside NoGrad",
          root.shape());
  require(gradient.defined() || root.count() == 1, "backward",
          "a tensor of shape {} needs a gradient of that shape; expected a loss of one element, or a second argument; "
          "call backward(sum(y)), or backward(y, gradient)",
          root.shape());
  require(!gradient.defined() || gradient.shape() == root.shape(), "backward",
          "expected a gradient of shape {}, got {}", root.shape(), gradient.shape());
  const Tensor start =
      gradient.defined() ? gradient.detach() : Tensor::full(root.shape(), 1.0, root.dtype(), root.device());
  if (Leaf* leaf = leaf_of(root)) {
    leaf->accumulate(start);
    leaf->run_hooks();
    return;
  }
  Engine(options, at).run(root.node(), start);
}

void backward(const Tensor& root, const BackwardOptions& options, const SourceLine& at) {
  backward(root, {}, options, at);
}

}  // namespace trireme
