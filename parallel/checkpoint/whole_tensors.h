// WholeTensors: brings the parts of a model's tensors together on the first rank of a group, one tensor at a time.
// Other ranks send their parts. For files that hold whole tensors, which other programs read.
//
//   WholeTensors whole(owned_parts(held), group, "save_weights", remedy);
//   for (const auto& [name, tensor] : whole.tensors()) {
//     const Tensor value = whole.gather(name);  // collective; undefined on all ranks but the first
//     if (value.defined()) writer.write(value);
//   }
//
// Read next: parallel/checkpoint/weights.cpp, models/weight_transfer.h.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "parallel/checkpoint/held_tensor.h"

namespace trireme::checkpoint {

/// A part of a tensor that one rank has.
struct TensorPart {
  int rank = 0;
  Shape start, shape;
};

/// A tensor whose parts all ranks of the group have together.
struct WholeTensor {
  DType dtype = DType::f32;
  Shape shape;
  std::vector<TensorPart> parts;  ///< each element comes once
};

/// The tensors of all ranks of a group, which the first rank can gather.
class WholeTensors {
 public:
  /// `parts`: those of this rank, such as owned_parts(); `where` begins messages. Collective over `group`, which must
  /// outlive this object. Throws on all ranks ExitCode::usage, with `remedy`, if two tensors have one name, and
  /// ExitCode::internal if a part is missing.
  WholeTensors(std::vector<HeldTensor> parts, ProcessGroup& group, const char* where, const char* remedy);

  const std::map<std::string, WholeTensor>& tensors() const { return tensors_; }
  /// The whole tensor, dense, on the host of the first rank; undefined on other ranks. Collective: all ranks ask for
  /// the same names in the same order.
  Tensor gather(const std::string& name);
  bool first() const { return group_.rank() == 0; }  ///< whether this rank gets the whole tensors

 private:
  std::vector<HeldTensor> parts_;
  ProcessGroup& group_;
  std::map<std::string, WholeTensor> tensors_;
  std::map<std::string_view, const HeldTensor*> mine_;
  std::int64_t on_the_way_ = 0;
};

}  // namespace trireme::checkpoint
