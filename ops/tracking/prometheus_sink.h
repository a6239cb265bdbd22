// --prometheus HOST:PORT: serves the state of the run as a page that Prometheus reads. Anybody who can connect can read
// the page, so it is served to this machine alone unless the user names another host.
// Read next: ops/tracking/run_metrics.h (the page), ops/tracking/page_server.h (the server).
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "ops/tracking/page_server.h"
#include "ops/tracking/run_metrics.h"
#include "ops/tracking/tracker.h"

namespace trireme {

class PrometheusSink : public EventSink {
 public:
  /// `address`: the value of --prometheus. Throws ExitCode::usage if it is not valid, or if it cannot listen there.
  explicit PrometheusSink(const std::string& address)
      : server_(Address::parse(address, "--prometheus"), "--prometheus", [this] {
          const std::lock_guard lock(mutex_);
          return metrics_.page(pages_.get());
        }) {}

  void receive(const Event& event) override;
  /// From now on, the served page also has what the ranks' pages show.
  void watch(std::shared_ptr<const watch::RankPages> pages);
  const std::string& url() const { return server_.url(); }

 private:
  std::mutex mutex_;
  RunMetrics metrics_;
  std::shared_ptr<const watch::RankPages> pages_;
  PageServer server_;  // the last member: it stops before the others go
};

/// --prometheus
class PrometheusTracker final : public Tracker {
 public:
  void declare(Flags& flags) override;
  void validate(const RunOptions& run) const override;
  void acquire() override;
  void add_sink(EventStream& events) override;
  std::pair<std::string, std::string> example() const override { return {"prometheus", "127.0.0.1:0"}; }

 private:
  std::string address_;  // empty: nothing listens
  std::unique_ptr<PrometheusSink> sink_;
};

}  // namespace trireme
