// The backward pass: count how often each node's gradient will be added to, then run nodes, newest first, as soon as
// their gradient is complete. A leaf is complete before older operations run, so communication can start early.
#include "autograd/engine.h"

#include <queue>
#include <unordered_map>
#include <vector>

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

/// Less: older; the queue then has the newest on top.
struct BySequence {
  bool operator()(const NodePtr& a, const NodePtr& b) const { return a->sequence() < b->sequence(); }
};

class Engine {
 public:
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
    const Tensor gradient = std::move(progress_[node.get()].gradient);
    Gradients gradients(node->inputs().size());
    if (gradient.defined()) gradients = run_backward(*node, gradient);
    node->release();
    const std::vector<NodePtr> inputs = std::move(node->inputs());
    node->inputs().clear();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] != nullptr) contribute(inputs[i], i < gradients.size() ? std::move(gradients[i]) : Tensor());
    }
  }

  static Gradients run_backward(Node& node, const Tensor& gradient) {
    const NoGrad guard;
    return node.backward(gradient);
  }

  void contribute(const NodePtr& node, Tensor gradient) {
    NodeProgress& progress = progress_[node.get()];
    const bool complete = --progress.expected == 0;
    if (auto* leaf = dynamic_cast<Leaf*>(node.get())) {
      // Added directly to the leaf's own, wider sum. If undefined, the operation has added it there itself.
      if (gradient.defined()) add_weight_gradient(*leaf, [leaf, gradient] { leaf->accumulate(gradient); });
      if (complete) add_weight_gradient(*leaf, [leaf] { leaf->run_hooks(); });
      return;
    }
    if (gradient.defined()) add(progress.gradient, cast(std::exchange(gradient, {}), node->gradient_dtype()));
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

  std::unordered_map<Node*, NodeProgress> progress_;
  std::priority_queue<NodePtr, std::vector<NodePtr>, BySequence> ready_;  // the newest on top
};

}  // namespace

bool in_backward() { return passes > 0; }

void backward(const Tensor& root, const Tensor& gradient) {
  require(root.requires_grad(), "backward", "no gradient flows to this tensor: nothing it was made of requires one");
  require(gradient.defined() || root.count() == 1, "backward", "a tensor of shape {} needs a gradient of that shape",
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
  Engine().run(root.node(), start);
}

}  // namespace trireme
