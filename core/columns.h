// Padded or split columns (Tensor::set_columns) stay known in views and copies, through elementwise operations and when
// the parts of ranks are gathered, so that cross_entropy(), softmax() and argmax() can refuse the logits of a
// VocabEmbedding after a soft cap, too. where() and masked_fill() forget them, as they may have replaced the padding.
#pragma once

#include "core/tensor.h"

namespace trireme {

/// The dim of x that has the columns of Tensor::set_columns(), also in a view with another order of dims; -1: none.
inline int columns_dim(const Tensor& x) {
  const std::int64_t width = x.columns().width;
  if (width == 0) return -1;
  for (int dim = x.dims() - 1; dim >= 0; --dim)
    if (x.size(dim) == width && x.strides()[dim] == 1) return dim;
  return -1;
}

/// y, a copy of x or the result of an elementwise operation on it: its columns are what x's are.
inline Tensor with_columns_of(const Tensor& x, Tensor y) {
  const int dim = columns_dim(x);
  if (dim >= 0 && dim == x.dims() - 1 && y.dims() > 0 && y.size(-1) == x.size(dim)) y.set_columns(x.columns());
  return y;
}
inline Tensor with_columns_of(const Tensor& a, const Tensor& b, Tensor y) {
  return with_columns_of(a, with_columns_of(b, std::move(y)));
}

/// Throws ExitCode::usage if dim `dim` of x, over which `where` sums or searches, has padding.
void require_no_padding(const char* where, const Tensor& x, int dim);

/// The same, and if ranks have parts of a vocabulary: a softmax or an index would be that of this rank's part.
void require_all_columns(const char* where, const Tensor& x, int dim);

}  // namespace trireme
