// The dims that a reduction removes; not for models.
#pragma once

#include <numeric>
#include <vector>

#include "autograd/ops.h"
#include "core/columns.h"

namespace trireme {

struct ReducedDims {
  Shape kept;              ///< the shape of x with 1 in place of the size of each reduced dim
  Shape dropped;           ///< without these dims
  std::int64_t count = 1;  ///< how many elements become one

  /// Throws, naming `where`, unless dims are different dims of x, at least one, without padding (core/columns.h).
  ReducedDims(const char* where, const Tensor& x, const std::vector<int>& dims) : kept(x.shape()) {
    require(!dims.empty(), where, "no dims to reduce {} over; expected at least one", x.shape());
    unsigned chosen = 0;
    for (const int given : dims) {
      const int dim = checked_dim(where, x, given);
      require((chosen >> dim & 1U) == 0, where, "dim {} of {} is named twice; expected each dim once", dim, x.shape());
      chosen |= 1U << dim;
      require_no_padding(where, x, dim);
      kept[dim] = 1;
      count *= x.size(dim);
    }
    dropped = kept;
    for (int dim = x.dims() - 1; dim >= 0; --dim)
      if ((chosen >> dim & 1U) != 0) dropped = dropped.without(dim);
  }
  Tensor result(const Tensor& y, bool keep_dims) const { return keep_dims ? y : reshape(y, dropped); }
};

inline std::vector<int> all_dims(const Tensor& x) {
  std::vector<int> dims(static_cast<std::size_t>(x.dims()));
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

/// x with `dim` and the last dim exchanged; x itself if it is the last. Applied twice, it gives x.
inline Tensor exchanged_with_last(const Tensor& x, int dim) { return dim == x.dims() - 1 ? x : transpose(x, dim, -1); }

}  // namespace trireme
