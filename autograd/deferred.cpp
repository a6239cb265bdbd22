#include "autograd/deferred.h"

namespace trireme {
namespace {

thread_local DeferredGradients* receiver = nullptr;  // of the backward that this thread (this rank) runs

}  // namespace

DeferredGradients& DeferredGradients::operator=(DeferredGradients&& other) noexcept {
  drop();
  jobs_ = std::exchange(other.jobs_, {});
  return *this;
}

DeferredGradients::~DeferredGradients() { drop(); }

void DeferredGradients::add(Leaf& leaf, std::function<void()> work) {
  leaf.change_deferred(+1);
  jobs_.push_back({leaf.shared_from_this(), std::move(work)});
}

void DeferredGradients::run() {
  const NoGrad guard;
  for (Job& job : jobs_) {
    const std::function<void()> work = std::exchange(job.work, nullptr);  // what it holds is freed right after it
    work();
  }
  drop();
}

void DeferredGradients::drop() {
  for (const Job& job : jobs_) job.leaf->change_deferred(-1);
  jobs_.clear();
}

DeferWeightGradients::DeferWeightGradients(DeferredGradients& later) : previous_(std::exchange(receiver, &later)) {}
DeferWeightGradients::~DeferWeightGradients() { receiver = previous_; }
DeferredGradients* DeferWeightGradients::current() { return receiver; }

}  // namespace trireme
