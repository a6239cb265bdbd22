// Imitates a library without a fixed order of summation: with SumOrder::any, groups start their sums with the terms of
// different ranks. So a caller that allows SumOrder::any where groups must agree gets different bits.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "core/kernels.h"
#include "parallel/comm/collective.h"

namespace trireme::testing {

class AnyOrderGroup final : public comm::CollectiveGroup {
 public:
  /// `sums`: counts the sums in any order.
  AnyOrderGroup(std::shared_ptr<ProcessGroup> inner, std::atomic<int>& sums)
      : CollectiveGroup(inner->name(), inner->rank(), inner->members()), inner_(std::move(inner)), sums_(sums) {}

  SumOrder fastest_order() const override { return SumOrder::any; }
  std::shared_ptr<ProcessGroup> subgroup(const std::vector<int>& world_ranks, const std::string& name) override {
    return std::make_shared<AnyOrderGroup>(inner_->subgroup(world_ranks, name), sums_);
  }
  Work send(Tensor x, int to, int tag) override { return inner_->send(std::move(x), to, tag); }
  Work send_final(Tensor x, int to, int tag) override { return inner_->send_final(std::move(x), to, tag); }
  Work recv(Tensor y, int from, int tag) override { return inner_->recv(std::move(y), from, tag); }

 protected:
  Work submit(comm::Collective c, Launch launch) override {
    if (c.order == SumOrder::ranks || size() == 1) return comm::dispatch(*inner_, c, launch);
    ++sums_;
    const bool scatters = c.kind == comm::CollectiveKind::reduce_scatter;
    const Tensor x = view::reshape(c.x.detach(), {c.x.count()});
    const Tensor all = Tensor::empty({size(), x.count()}, x.dtype());
    inner_->all_gather(x, all).wait();
    const std::int64_t own = scatters ? c.y.count() : x.count();
    Tensor sum = view::reshape(scatters ? c.y.detach() : x, {own});
    for (int i = 0; i < size(); ++i) {
      const Tensor row = view::select(all, 0, (first() + i) % size());
      const Tensor term = scatters ? view::slice(row, 0, rank() * own, own) : row;
      if (i == 0) copy(term, sum);
      if (i > 0) kernels(Device::cpu).axpby(1.0, term, 1.0, sum);
    }
    return {};
  }

 private:
  /// The rank whose term comes first: different for interleaved groups ({0, 2} and {1, 3}) and for consecutive groups
  /// ({0, 1} and {2, 3}).
  int first() const { return (world_rank(0) + world_rank(0) / size()) % size(); }

  std::shared_ptr<ProcessGroup> inner_;
  std::atomic<int>& sums_;
};

}  // namespace trireme::testing
