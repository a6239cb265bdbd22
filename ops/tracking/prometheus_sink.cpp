#include "ops/tracking/prometheus_sink.h"

#include <chrono>

namespace trireme {

void PrometheusSink::receive(const Event& event) {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const std::lock_guard lock(mutex_);
  metrics_.apply(event, now);
}

void PrometheusSink::watch(std::shared_ptr<const watch::RankPages> pages) {
  const std::lock_guard lock(mutex_);
  pages_ = std::move(pages);
}

}  // namespace trireme
