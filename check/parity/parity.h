// Does a mesh compute the same numbers as one rank? One rank and the mesh run the same few steps on the same synthetic
// batch. Then every parameter's gradient and weight is compared; each rank compares its own shard. The single rank
// takes the whole batch as one micro-batch.
//
// The batch has masked targets, unevenly spread over samples, to reveal an average of averages. AdamW divides a
// gradient by its own magnitude and so hides a wrong scale. Therefore gradients are compared first, then weights under
// SGD, then weights under the optimizer of the options. AdamW, the default, gets an eps near the gradients' magnitude:
// check/parity/parity.cpp explains why.
// Read next: check/parity/rounding.h (how large a difference may be), examples/parity.cpp,
// check/parity/parity_matrix.h.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/gpt_config.h"
#include "models/model.h"
#include "parallel/comm/process_group.h"
#include "train/loop/task.h"

namespace trireme {

/// A model to compare, and its data. Both functions are called on every rank.
struct ParityModel {
  std::function<std::unique_ptr<Model>(const TrainOptions& options, std::shared_ptr<const DeviceMesh> mesh)> make;
  std::function<GlobalBatch(const TrainOptions& options)> data;
};

/// The model of `task` and its data, which must have been prepared for a comparison. `task` must outlive the result.
ParityModel parity_model(const Task& task);

/// A GPT and synthetic text (train/gpt/comparison_batch.h).
ParityModel gpt_parity(const GptConfig& config);

/// For dry runs of a model whose comparison has these options: a sample of its data.
DryProgram dry_program(const ParityModel& model, const TrainOptions& options);

/// The results of one rank, in the dtype of the options. Comparisons of one model and batch on many meshes can share
/// them.
struct ParityReference;
std::shared_ptr<const ParityReference> parity_reference(const TrainOptions& options, const ParityModel& model);

/// The result of a comparison, the same on every rank. "Relative" is the norm of the difference over the norm of the
/// reference, per tensor.
struct ParityReport {
  struct Row {
    std::string name;
    double gradient = 0;       ///< relative difference of the first step's gradient, before clipping
    double weight_sgd = 0;     ///< relative difference of the weight after the last step under SGD
    double weight_second = 0;  ///< the same under the second optimizer; with an average of the weights, of that
  };
  std::string second = "adamw";  ///< the second optimizer; "ema": its average
  std::vector<Row> rows;         ///< every parameter of the model in order, then every buffer
  double loss = 0;               ///< largest relative difference of a step's loss
  double gradient_norm = 0;      ///< largest relative difference of a step's gradient norm
  double first_step = 0;         ///< the larger of both in the first step, which both sides make with the same weights
  double largest() const;
};

/// The same options in f32, and on one rank.
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

  /// A random change of the mesh's initial weights (check/faults/disturb.h).
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
