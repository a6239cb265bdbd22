// Does a mesh compute the same numbers as one rank? One rank and the mesh run the same few steps on the same synthetic
// batch. Then every parameter's gradient and weight is compared; each rank compares its own shard. The single rank
// takes the whole batch as one micro-batch.
//
// The batch has masked targets, unevenly spread over samples, to reveal an average of averages. AdamW divides a
// gradient by its own magnitude and so hides a wrong scale. Therefore gradients are compared first, then weights under
// SGD, then weights under AdamW with an eps near the gradients' magnitude (train/parity/parity.cpp explains it).
// Read next: train/gpt/gpt_parity.h, train/gpt/parity_options.h, examples/parity.cpp,
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

/// A model to compare, and its data. Both functions are called on every rank.
struct ParityModel {
  std::function<std::unique_ptr<Model>(const TrainOptions& options, std::shared_ptr<const DeviceMesh> mesh)> make;
  struct Data {
    Batch batch;               ///< the whole global batch, the same on every rank
    std::int64_t targets = 0;  ///< the sum of losses is divided by this
  };
  std::function<Data(const TrainOptions& options)> data;
};

/// The results of one rank, in the dtype of the options. Comparisons of one model and batch on many meshes can share
/// them.
struct ParityReference;
std::shared_ptr<const ParityReference> parity_reference(const TrainOptions& options, const ParityModel& model);

/// The result of a comparison, the same on every rank. "Relative" is the norm of the difference over the norm of the
/// reference, per tensor.
struct ParityReport {
  struct Row {
    std::string name;
    double gradient = 0;      ///< relative difference of the first step's gradient, before clipping
    double weight_sgd = 0;    ///< relative difference of the weight after the last step under SGD
    double weight_adamw = 0;  ///< the same under AdamW
  };
  std::vector<Row> rows;     ///< every parameter of the model in order, then every buffer
  double loss = 0;           ///< largest relative difference of a step's loss
  double gradient_norm = 0;  ///< largest relative difference of a step's gradient norm
  double largest() const;
};

/// Is a mesh in bf16 or f16 as close to one rank in f32 as one rank in the same dtype is? Two 16-bit runs may differ by
/// several percent because of rounding, as much as because of some bugs. But two runs that round at the same places are
/// equally far from the exact result. Returns the largest ratio of the two distances over losses, norms, gradients and
/// weights. A distance below the dtype's unit roundoff counts as the roundoff, because every result is stored with that
/// precision.
///
/// Per tensor, both distances are norms of many roundings of the same size, so in a large tensor their ratio is near 1.
/// It is larger in tensors with few elements, and with tp, which rounds partial sums before adding them: up to 3.9 in
/// the covering subset of the matrix. Hence the limit of 6. One rank in bf16 is at a distance of 0.02 from f32, so a
/// missing or doubled contribution shows as a ratio of tens.
double rounding_ratio(const ParityReport& mesh, const ParityReport& one_rank, DType dtype);
inline constexpr double most_rounding_ratio = 6;
/// The unit roundoff: half the distance from 1 to the next number.
inline double roundoff(DType dtype) { return dtype == DType::bf16 ? 0x1p-9 : dtype == DType::f16 ? 0x1p-12 : 0x1p-24; }

/// If a difference is larger than the limit, did the mesh cause it, or could any rounding? Terms may cancel in a sum,
/// and a router may choose between experts that are nearly equal. To find out, one rank runs again from weights that
/// differ by a few units of the dtype's roundoff (train/faults/disturb.h). The largest differences between these runs
/// and the reference, row by row, show how far rounding can reach.
ParityReport rounding_reach(const TrainOptions& options, const std::shared_ptr<const ParityReference>& reference);

/// The largest ratio of a difference in `report` to its limit. Above 1: rounding cannot explain it. The limit is
/// `accepted`, or most_rounding_ratio times the reach of rounding, whichever is larger.
double largest_excess(const ParityReport& report, const ParityReport& reach, double accepted);

/// The same options in f32, and on one rank; rounding_ratio() compares reports made with them.
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

  /// `options`: model, batch, mesh and precision, after resolve(). With --zero 3, weights of any size are sharded
  /// unless --zero-resident is given.
  Parity(const TrainOptions& options, std::shared_ptr<const ParityReference> reference);

  /// Runs the mesh and compares. Collective over `world`, one call per rank. Ranks that are threads share this object.
  ParityReport compare(std::shared_ptr<ProcessGroup> world) const;

  /// A random change of the mesh's initial weights (train/faults/disturb.h).
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

/// The report as a table: the worst `most` rows, or all rows if most < 0.
std::string parity_table(const ParityReport& report, int most);

}  // namespace trireme
