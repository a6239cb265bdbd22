// A process group with faulty sums, which the parity comparison must find.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "parallel/comm/process_group.h"

namespace trireme::testing {

/// Called in place of a sum; `sum` makes the correct sum.
using Fault = std::function<void(Tensor& x, const ProcessGroup& group, const std::function<void()>& sum)>;

/// Passes everything on to `inner`, except sums of groups whose name begins with `where`: these call `fault`.
class FaultyGroup : public ProcessGroup {
 public:
  FaultyGroup(std::shared_ptr<ProcessGroup> inner, std::string where, Fault fault)
      : ProcessGroup(inner->name(), inner->rank(), inner->members()),
        inner_(std::move(inner)),
        where_(std::move(where)),
        fault_(std::move(fault)) {}

  Work all_reduce(Tensor x, ReduceOp op, Launch launch, SumOrder order) override {
    if (op != ReduceOp::sum || !name().starts_with(where_)) return inner_->all_reduce(x, op, launch, order);
    fault_(x, *this, [&] { inner_->all_reduce(x, op, launch, order).wait(); });
    return {};
  }
  std::shared_ptr<ProcessGroup> subgroup(const std::vector<int>& world_ranks, const std::string& name) override {
    return std::make_shared<FaultyGroup>(inner_->subgroup(world_ranks, name), where_, fault_);
  }

  Work all_gather(Tensor x, Tensor y, Launch launch) override { return inner_->all_gather(x, y, launch); }
  Work reduce_scatter(Tensor x, Tensor y, Launch launch, SumOrder order) override {
    return inner_->reduce_scatter(x, y, launch, order);
  }
  Work all_to_all(Tensor x, Tensor y, Launch launch) override { return inner_->all_to_all(x, y, launch); }
  Work broadcast(Tensor x, int root, Launch launch) override { return inner_->broadcast(x, root, launch); }
  Work reduce(Tensor x, int root, Launch launch) override { return inner_->reduce(x, root, launch); }
  Work gather(Tensor x, Tensor y, int root, Launch launch) override { return inner_->gather(x, y, root, launch); }
  Work scatter(Tensor x, Tensor y, int root, Launch launch) override { return inner_->scatter(x, y, root, launch); }
  Work send(Tensor x, int to, int tag) override { return inner_->send(x, to, tag); }
  Work recv(Tensor y, int from, int tag) override { return inner_->recv(y, from, tag); }
  void barrier() override { inner_->barrier(); }

 private:
  std::shared_ptr<ProcessGroup> inner_;
  std::string where_;
  Fault fault_;
};

}  // namespace trireme::testing
