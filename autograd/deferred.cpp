#include "autograd/deferred.h"

namespace trireme {
namespace {

thread_local DeferredGradients* receiver = nullptr;  // of the backward that this thread (this rank) runs

}  // namespace

void DeferredGradients::run() {
  const NoGrad guard;
  for (Deferred& deferred : deferred_) {
    const std::function<void()> work =
        std::exchange(deferred.work, nullptr);  // what it holds is freed right after it ran
    work();
  }
  deferred_.clear();
}

DeferWeightGradients::DeferWeightGradients(DeferredGradients& later) : previous_(std::exchange(receiver, &later)) {}
DeferWeightGradients::~DeferWeightGradients() { receiver = previous_; }
DeferredGradients* DeferWeightGradients::current() { return receiver; }

}  // namespace trireme
