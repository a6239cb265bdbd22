// SavedVersions remembers which contents an operation saved for backward. If a tensor was changed in place since then,
// the gradient would be wrong, so backward throws.
//
// apply() (autograd/op.h) adds an operation's inputs and output by itself, if forward kept them: if there is one more
// owner of their storage afterwards. An operation adds other tensors that its caller can write to, such as ids. It
// costs a few integers per tensor; kernels do nothing for it. Storage counts changes: core/tensor.h.
// Read next: autograd/op.h.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/tensor.h"

namespace trireme {

class SavedVersions {
 public:
  /// x as it is now; for messages it is called `what` or, with a number, "what 2". Undefined tensors are left out.
  void add(const Tensor& x, const char* what, int number = -1);
  /// Adds an input or output of an operation if forward kept it. `owners`: of x before forward, and for a view of x
  /// that forward returned.
  void add_if_kept(const Tensor& x, std::int64_t owners, const char* what, int number = -1) {
    if (x.defined() && x.owners() > owners) add(x, what, number);
  }
  /// Throws, naming the operation, if one of them was changed. Without `keep` it forgets them: backward may overwrite
  /// them.
  void check(const char* operation, bool keep = false);

 private:
  struct Saved {
    std::weak_ptr<const MemoryPool::Block> storage;  // weak: operations count the owners of what they saved
    std::uint64_t version;
    Shape shape;
    const char* what;
    int number;
  };
  std::vector<Saved> saved_;
};

}  // namespace trireme
