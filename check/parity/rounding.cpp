#include "check/parity/rounding.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace trireme {
namespace {

/// The largest f(a, b) over all numbers of two reports of the same model.
template <class F>
double largest_over(const ParityReport& a, const ParityReport& b, const F& f) {
  double largest = std::max(f(a.loss, b.loss), f(a.gradient_norm, b.gradient_norm));
  for (std::size_t i = 0; i < a.rows.size(); ++i) {
    const ParityReport::Row &p = a.rows[i], &q = b.rows[i];
    largest = std::max(
        {largest, f(p.gradient, q.gradient), f(p.weight_sgd, q.weight_sgd), f(p.weight_second, q.weight_second)});
  }
  return largest;
}

}  // namespace

double rounding_ratio(const ParityReport& mesh, const ParityReport& one_rank, DType dtype) {
  const double least = roundoff(dtype);
  return largest_over(mesh, one_rank, [least](double far, double usual) {
    const double ratio = std::max(far, least) / std::max(usual, least);
    return std::isnan(ratio) ? INFINITY : ratio;  // inf / inf: both are NaN or too large
  });
}

ParityReport rounding_reach(const TrainOptions& options, const std::shared_ptr<const ParityReference>& reference) {
  constexpr int runs = 24;
  ParityReport reach;
  for (int run = 0; run < runs; ++run) {
    const double factor = roundoff(options.precision.dtype) * (1 << run % 4);  // 1 to 8 units
    Parity one_rank(on_one_rank(options), reference);
    one_rank.disturbed({factor, static_cast<std::uint64_t>(run) + 1});
    const ParityReport report = one_rank.compare(self_group());
    if (reach.rows.empty()) reach.rows = report.rows;
    reach.loss = std::max(reach.loss, report.loss);
    reach.gradient_norm = std::max(reach.gradient_norm, report.gradient_norm);
    for (std::size_t i = 0; i < reach.rows.size(); ++i) {
      ParityReport::Row& most = reach.rows[i];
      const ParityReport::Row& row = report.rows[i];
      most.gradient = std::max(most.gradient, row.gradient);
      most.weight_sgd = std::max(most.weight_sgd, row.weight_sgd);
      most.weight_second = std::max(most.weight_second, row.weight_second);
    }
  }
  return reach;
}

double largest_excess(const ParityReport& report, const ParityReport& reach, double accepted) {
  return largest_over(report, reach, [accepted](double far, double reached) {
    // An infinite reach explains everything: one rank, too, leaves the finite numbers of this dtype.
    return std::isinf(reached) ? 0 : far / std::max(accepted, most_rounding_ratio * reached);
  });
}

ParityResult parity_result(const TrainOptions& options, const ParityReport& mesh, const ParityReport* one_rank,
                           const std::shared_ptr<const ParityReference>& reference) {
  const DType dtype = options.precision.dtype;
  const bool rounds = size_of(dtype) == 2;
  require(rounds == (one_rank != nullptr), "parity", "a report of one rank in {}: expected {}, got {}", name(dtype),
          rounds ? "one" : "none", one_rank != nullptr ? "one" : "none");
  ParityResult result{.distance = rounds ? rounding_ratio(mesh, *one_rank, dtype) : mesh.largest(),
                      .accepted = rounds ? most_rounding_ratio : parity_tolerance};
  // Where one rank leaves the finite numbers of its dtype, its reach explains it.
  if (rounds && std::isfinite(one_rank->first_step)) result.one_rank = one_rank->first_step;
  if (result.equal() || !result.one_rank_is_right()) return result;
  const double accepted = rounds ? most_rounding_ratio * roundoff(dtype) : parity_tolerance;
  result.explained = largest_excess(mesh, rounding_reach(options, reference), accepted) <= 1;
  return result;
}

}  // namespace trireme
