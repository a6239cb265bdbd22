#include "ops/tracking/prometheus_sink.h"

#include <chrono>

#include "parallel/comm/watch/beacon.h"

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

void PrometheusTracker::declare(Flags& flags) {
  flags.add("prometheus", "HOST:PORT", address_,
            "serve the state of the run at http://HOST:PORT/metrics, for Prometheus; :PORT, or PORT alone: to this "
            "machine only");
  flags.not_empty();
}

void PrometheusTracker::validate(const RunOptions&) const {
  if (!address_.empty()) static_cast<void>(Address::parse(address_, "--prometheus"));
}

void PrometheusTracker::acquire() {
  if (!address_.empty()) sink_ = std::make_unique<PrometheusSink>(address_);
}

void PrometheusTracker::add_sink(EventStream& events) {
  if (!sink_) return;
  events.say("metrics for Prometheus: " + sink_->url());
  sink_->watch(watch::Beacon::current()->pages());
  events.add(std::move(sink_));
}

}  // namespace trireme
