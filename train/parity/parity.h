// Does a mesh give the same numbers as one rank? The same few steps, on the same made-up batch, are run by one rank and
// by the mesh; then every parameter's gradient and weight is compared, each rank its own shard. The one rank takes the
// batch uncut, as one micro-batch.
//
// The batch has masked targets, unevenly spread over samples, so that averaging averages would show. AdamW divides a
// gradient by its own size and so hides a wrong scale: gradients are compared first, weights under SGD, and weights
// under AdamW with an eps near the gradients' size (train/parity/parity.cpp says why).
// Read next: train/parity/gpt_parity.h, train/parity/parity_options.h, examples/parity.cpp,
// train/parity/parity_matrix.h.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/model.h"
#include "parallel/comm/process_group.h"
#include "train/options/options.h"

namespace trireme {

/// A model to compare, and what it is given. Both are called on every rank.
struct ParityModel {
  std::function<std::unique_ptr<Model>(const TrainOptions& options, std::shared_ptr<const DeviceMesh> mesh)> make;
  struct Data {
    Batch batch;               ///< the whole global batch, the same on every rank
    std::int64_t targets = 0;  ///< what the sum of losses is divided by
  };
  std::function<Data(const TrainOptions& options)> data;
};

/// What one rank gave, in the dtype of the options. Comparisons of one model and batch on many meshes may share it.
struct ParityReference;
std::shared_ptr<const ParityReference> parity_reference(const TrainOptions& options, const ParityModel& model);

/// A comparison, the same on every rank. "Relative" is the norm of the difference over the norm of the reference, per
/// tensor.
struct ParityReport {
  struct Row {
    std::string name;
    double gradient = 0;      ///< relative difference of the first step's gradient, before clipping
    double weight_sgd = 0;    ///< of the weight after the last step under SGD
    double weight_adamw = 0;  ///< and under AdamW
  };
  std::vector<Row> rows;     ///< every parameter of the model in its order, then every buffer
  double loss = 0;           ///< largest relative difference of a step's loss
  double gradient_norm = 0;  ///< of a step's gradient norm
  double largest() const;
};

/// Is a mesh in bf16 or f16 as near to one rank in f32 as one rank in the same dtype is? Rounding is then no excuse: a
/// 16-bit run differs from another by several percent, as much as some bugs, but two runs that round at the same places
/// are equally far from the exact result. The largest ratio of the two distances, over losses, norms, gradients and
/// weights; a distance below the dtype's unit roundoff, to which any result is stored, counts as that.
///
/// Per tensor the two distances are norms of roundings of one size. In a large tensor their ratio is near 1. It is
/// larger where there are few elements, and with tp, which rounds partial sums before they are added: up to 3.9 in the
/// covering subset of the matrix, hence the limit of 6. One rank is 0.02 from f32 in bf16, so that a contribution that
/// is missing or counted twice shows as a ratio of tens.
double rounding_ratio(const ParityReport& mesh, const ParityReport& one_rank, DType dtype);
inline constexpr double most_rounding_ratio = 6;
/// Half the distance from 1 to the next number.
inline double roundoff(DType dtype) { return dtype == DType::bf16 ? 0x1p-9 : dtype == DType::f16 ? 0x1p-12 : 0x1p-24; }

/// Where a difference is larger than that, is it the mesh, or would any rounding have led there? Terms may cancel in a
/// sum, and a router may choose between experts that are nearly equal. To find out, one rank runs again from weights
/// that differ by some units of the dtype's roundoff (train/faults/disturb.h): the largest differences between these
/// runs and the reference, row by row, are what rounding reaches.
ParityReport rounding_reach(const TrainOptions& options, const std::shared_ptr<const ParityReference>& reference);

/// How many times more than `accepted`, or than most_rounding_ratio times what rounding reaches, whichever is more, a
/// difference of `report` is: the largest of these ratios.
double unexplained(const ParityReport& report, const ParityReport& reach, double accepted);

/// The same options in f32, and on one rank: to make the two reports of rounding_ratio() with.
void set_f32(TrainOptions& options);
void set_one_rank(TrainOptions& options);
template <std::derived_from<TrainOptions> Options>
Options in_f32(Options options) {
  return set_f32(options), options;
}
template <std::derived_from<TrainOptions> Options>
Options on_one_rank(Options options) {
  return set_one_rank(options), options;
}

class Parity {
 public:
  static constexpr int steps = 3;

  /// `options`: model, batch, mesh and precision, resolved. With --zero 3, weights of any size are sharded unless
  /// --zero-resident is given.
  Parity(const TrainOptions& options, std::shared_ptr<const ParityReference> reference);

  /// Runs the mesh and compares. Collective over `world`, one call per rank; ranks that are threads share this object.
  ParityReport compare(std::shared_ptr<ProcessGroup> world) const;

  /// What the initial weights of the mesh are disturbed by (train/faults/disturb.h).
  struct Disturbance {
    double factor = 0;
    std::uint64_t seed = 0;
  };
  Parity& disturbed(Disturbance disturbance);

 private:
  TrainOptions options_;
  std::shared_ptr<const ParityReference> reference_;
  Disturbance disturbance_;
};

/// A table of the report: the worst `most` rows of each kind, or all with most < 0.
std::string parity_table(const ParityReport& report, int most);

}  // namespace trireme
