// Does a mesh give the same numbers as one rank? The same few steps, on the same made-up batch, are run by one rank and
// by the mesh; then every parameter's gradient and weight is compared, each rank its own shard. The one rank takes the
// batch uncut, as one micro-batch.
//
// The batch has masked targets, unevenly spread over samples, so that averaging averages would show. AdamW divides a
// gradient by its own size: a gradient that is zero in exact arithmetic (the key bias: softmax ignores a shift of all
// scores) becomes a full-size step of rounding noise, different on every mesh. Weights are therefore compared under SGD
// in full, and under AdamW without those rows, whose names are listed; their gradients are compared like all others.
// Read next: examples/parity.cpp.
#pragma once

#include <string>
#include <vector>

#include "parallel/comm/process_group.h"
#include "train/options.h"

namespace trireme {

/// What one rank gave.
struct ParityReference;

/// A comparison, the same on every rank. "Relative" is the norm of the difference over the norm of the reference, per
/// tensor.
struct ParityReport {
  struct Row {
    std::string name;
    double gradient = 0;      ///< relative difference of the first step's gradient, before clipping
    double weight_sgd = 0;    ///< of the weight after the last step under SGD
    double weight_adamw = 0;  ///< and under AdamW
  };
  std::vector<Row> rows;              ///< every parameter of the model, in its order
  double loss = 0;                    ///< largest relative difference of a step's loss
  double gradient_norm = 0;           ///< of a step's gradient norm
  std::vector<std::string> left_out;  ///< rows not compared under AdamW
  double largest() const;
};

class Parity {
 public:
  static constexpr int steps = 3;

  /// Runs the reference on one rank. `options`: model, batch, mesh and precision, resolved. With --zero 3, weights of
  /// any size are sharded unless --zero-resident is given.
  explicit Parity(const TrainOptions& options);
  ~Parity();
  Parity(const Parity&) = delete;
  Parity& operator=(const Parity&) = delete;

  /// Runs the mesh and compares. Collective over `world`, one call per rank; ranks that are threads share this object.
  ParityReport compare(std::shared_ptr<ProcessGroup> world) const;

 private:
  TrainOptions options_;
  std::unique_ptr<ParityReference> reference_;
};

/// A table of the report: the worst `most` rows of each kind, or all with most < 0.
std::string parity_table(const ParityReport& report, int most);

}  // namespace trireme
