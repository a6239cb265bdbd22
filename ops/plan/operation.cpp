#include "ops/plan/operation.h"

#include <cmath>

namespace trireme::plan {
namespace {

constexpr double hour = 3600, year = 365.25 * 24 * hour;

/// delta: of a save; M: between failures.
double best_interval(double delta, double M) {
  if (delta >= 2 * M) return M;
  const double x = delta / (2 * M);
  return std::sqrt(2 * delta * M) * (1 + std::sqrt(x) / 3 + x / 9) - delta;
}

}  // namespace

Outlook outlook(const Job& job, const Operation& operation) {
  Outlook o{.undisturbed_seconds = job.steps * job.seconds_per_step};
  o.seconds = o.undisturbed_seconds;
  if (operation.save_gb_per_s_per_node > 0)
    o.save_seconds = job.checkpoint_bytes / (1e9 * operation.save_gb_per_s_per_node * job.nodes);
  if (operation.failures_per_device_year > 0 && o.save_seconds > 0) {
    const double M = year / (operation.failures_per_device_year * job.devices);  // between failures
    const double delta = o.save_seconds, R = 60 * operation.restart_minutes;
    const double tau = best_interval(delta, M);
    o.save_every = tau;
    o.seconds = M * std::exp(R / M) * std::expm1((tau + delta) / M) * o.undisturbed_seconds / tau;
    o.interruptions = o.seconds / M;
  }
  o.device_hours = o.seconds / hour * job.devices;
  o.dollars = o.device_hours * operation.dollars_per_device_hour;
  o.joules = o.device_hours * hour * operation.watts_per_device;
  return o;
}

}  // namespace trireme::plan
