// WeightMap: how the weights of another program's file lie in those of a model here, one entry for each of our tensors.
// The same map reads the file and writes it, and does not depend on the file's format.
//
// An entry is a list of parts. A part is a matrix (or a vector) of our tensor and the place of the same numbers in a
// tensor of theirs. It says what differs: theirs may be transposed (GPT-2's Conv1D), hold several of ours one below the
// other (fused q, k and v), be one of several that are stacked in ours (gate and up, experts) or the reverse, and may
// order the rows of a head as neighbours where we have halves (rotary positions in GGUF).
//
//   // qkv.weight [3, D, D] of GPT-2, which has one [D, 3 D], transposed:
//   for (j = 0; j < 3; ++j)
//     entry.parts.push_back({.name = "h.0.attn.c_attn.weight", .shape = {d, 3 * d}, .at = {j}, .first_row = j * d,
//                            .transposed = true});
// Read next: models/weight_transfer.h, which reads and writes by such a map; models/hugging_face/decoder.cpp, the maps
// of Hugging Face's folders.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace trireme {

/// A part of one of our tensors, and where the other program keeps its numbers. "Rows" are those of a matrix as we have
/// it, or the elements of a vector.
struct WeightPart {
  std::string name;                          ///< of their tensor
  Shape shape;                               ///< of their whole tensor
  std::vector<std::int64_t> at = {};         ///< the part is ours[at[0]][at[1]]...; empty: all of ours
  std::vector<std::int64_t> at_theirs = {};  ///< the same in their tensor
  std::int64_t first_row = 0;                ///< row 0 of the part is this row of theirs
  bool transposed = false;                   ///< theirs has rows and columns exchanged
  /// Not 0: the rows are those of so many heads, and theirs has the two rows of a rotary pair side by side, where ours
  /// has the first ones of all pairs and then the second ones.
  std::int64_t interleaved_heads = 0;
};

/// One of our tensors. Its parts do not overlap, and together are all of it.
struct WeightEntry {
  std::string name;  ///< as in Model::parameters()
  Shape shape;       ///< whole, without padding
  std::vector<WeightPart> parts;
};

using WeightMap = std::vector<WeightEntry>;  ///< of all tensors of a model

/// A matrix or vector that is the same in both.
WeightEntry same_weight(std::string ours, std::string theirs, const Shape& shape);
/// The shape of a part as it lies in our tensor: [rows, columns] or [rows].
Shape part_shape(const WeightEntry& entry, const WeightPart& part);

/// Fills `ours`, a part or some of its rows and columns, from `theirs`: a rectangle of their tensor with the same rows
/// and columns, as it lies there. With interleaved heads both have whole heads, of which each has `head_rows` rows.
void copy_to_ours(const WeightPart& part, const Tensor& theirs, Tensor& ours, std::int64_t head_rows);
/// Writes one part of `ours`, the whole tensor, to its place in `theirs`, their whole tensor.
void copy_to_theirs(const WeightEntry& entry, const WeightPart& part, const Tensor& ours, Tensor& theirs);

}  // namespace trireme
