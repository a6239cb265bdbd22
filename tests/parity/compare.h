// What the parity tests share: a small model, and its comparison on a mesh of threads.
#pragma once

#include <doctest/doctest.h>

#include <mutex>
#include <string>
#include <vector>

#include "check/parity/parity.h"
#include "check/parity/rounding.h"
#include "tests/parity/training.h"

namespace trireme::testing {

using Meshes = std::vector<std::string>;
using WrapWorld = std::function<std::shared_ptr<ProcessGroup>(std::shared_ptr<ProcessGroup>)>;

/// Replaces the parts of a GPT by those of a Llama.
inline void make_llama(GptConfig& c) {
  c.activation = Activation::swiglu;
  c.norm = Norm::rms;
  c.positions = PositionEncoding::rope;
  c.bias = false;
  c.tied = false;
}

/// Runs one thread per rank. `wrap` may wrap the world group of each rank.
inline ParityReport compare_with_one_rank(
    GptOptions o, const WrapWorld& wrap = [](auto world) { return world; }) {
  resolve(o, 0);
  validate(o);
  set_threads(1);
  const Parity parity(o, parity_reference(o, gpt_parity(o.model.config)));
  std::mutex mutex;
  std::vector<ParityReport> reports;
  run_thread_ranks(o.mesh.shape.ranks(), 1, ProcessGroup::Deadline(1800),
                   [&](const std::shared_ptr<ProcessGroup>& world) {
                     ParityReport mine = parity.compare(wrap(world));
                     const std::scoped_lock lock(mutex);
                     reports.push_back(std::move(mine));
                   });
  for (const ParityReport& report : reports) CHECK(report.largest() == reports.front().largest());
  return reports.front();
}

inline void check_parity(const GptOptions& o, const std::string& what) {
  const ParityReport report = compare_with_one_rank(o);
  CHECK_MESSAGE(report.largest() <= parity_tolerance, what, "\n", parity_table(report, 5));
}

}  // namespace trireme::testing
