#include "bench/eigen_omp.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // false alarms in GCC 12's own AVX-512 header
#pragma GCC diagnostic ignored "-Wuninitialized"        // the same, under sanitizers
#endif
#include <omp.h>

#include <Eigen/Core>

#include "core/cores.h"
#include "core/parallel_for.h"

namespace trireme::bench {
namespace {

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <class F>
void with_map(const Tensor& x, F&& f) {
  if (x.strides()[1] == 1) {
    f(Eigen::Map<const RowMajor>(x.data<float>(), x.size(0), x.size(1)));
  } else {
    f(Eigen::Map<const Eigen::MatrixXf>(x.data<float>(), x.size(0), x.size(1)));
  }
}

}  // namespace

void keep_omp_to_own_cores() {
  const OwnCores::Share share = OwnCores::current();
#pragma omp parallel num_threads(threads())
  OwnCores::keep_to(share, omp_get_thread_num());
}

void eigen_omp(const Tensor& a, const Tensor& b, Tensor& c, bool add) {
  Eigen::setNbThreads(threads());
  Eigen::Map<RowMajor> to(c.data<float>(), c.size(0), c.size(1));
  with_map(a, [&](const auto& left) {
    with_map(b, [&](const auto& right) {
      if (add) {
        to.noalias() += left * right;
      } else {
        to.noalias() = left * right;
      }
    });
  });
}

}  // namespace trireme::bench
