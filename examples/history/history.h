// What the chapters of the history of data parallelism share: a small classifier on every worker, links between them,
// and a log of the loss by seconds and by bytes.
//
// A gradient takes a fixed time, as if every worker had a processor of its own: what is left of it is slept. So curves
// by seconds show the method and the links, not the number of cores here.
// Read next: examples/history/parameter_server.cpp, the oldest method.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/algorithms/message_group.h"

namespace trireme::history {

constexpr double learning_rate = 0.3;
constexpr int log_every = 10;  ///< steps

/// One worker's model and samples.
class Worker {
 public:
  /// `worker` of `workers`: draws its own samples; `slowness` multiplies the time of a gradient.
  Worker(int worker, int workers, double slowness = 1);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  std::int64_t size() const;                ///< P, the number of weights
  Tensor weights() const;                   ///< [P], a copy
  void set_weights(const Tensor& weights);  ///< [P]
  /// The mean gradient [P] of the next samples, at these weights.
  Tensor gradient();
  double loss();  ///< of samples that no worker trains on

 private:
  struct Model;
  std::unique_ptr<Model> model_;
};

struct Point {
  double seconds, megabytes, loss;
};
struct Curve {
  std::string method;
  std::vector<Point> points;  ///< the first: before the first step
  std::string note = {};      ///< what else was measured
};

/// Notes a curve while time and bytes go on.
class Log {
 public:
  explicit Log(std::shared_ptr<comm::Network> network);
  void note(double loss);
  std::vector<Point> points() const { return points_; }

 private:
  std::shared_ptr<comm::Network> network_;
  double start_;
  std::vector<Point> points_;
};

struct Setting {
  int workers = 4;
  int steps = 120;  ///< of each worker, if it is not told otherwise
  comm::Links links;
  double straggler = 3;  ///< slowness of the last worker where a chapter has a slow one
};

/// Runs `body` on `ranks` rank threads over the links. Only rank 0's log is kept.
using Body = std::function<void(const std::shared_ptr<ProcessGroup>& world, Log& log)>;
Curve measured(const Setting& setting, const std::string& method, int ranks, const Body& body,
               comm::Algorithm algorithm = comm::Algorithm::ring);

/// Synchronous data parallelism, beside which every method is shown. `slowness`: of the last worker.
Curve synchronous(const Setting& setting, double slowness = 1);

// The chapters.
std::vector<Curve> parameter_server(const Setting& setting);
std::vector<Curve> hogwild(const Setting& setting);
std::vector<Curve> local_sgd(const Setting& setting);
std::vector<Curve> compression(const Setting& setting);

}  // namespace trireme::history
