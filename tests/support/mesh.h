// What the tests of layers and models share: ranks on a mesh, whole tensors assembled from shards, and random
// parameters, which hide no mistake.
// Read next: parallel/mesh/mesh.h, tests/support/gradcheck.h.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "parallel/comm/staged_group.h"
#include "parallel/parameters/parameter.h"
#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"

namespace trireme::testing {

using MeshPtr = std::shared_ptr<const DeviceMesh>;
using Meshes = std::vector<std::string>;  ///< in the syntax of --mesh

/// Runs `body` on every rank of the mesh that `text` names. Ranks are threads; if a device is open, they share it.
inline void run_mesh(const std::string& text, const std::function<void(const MeshPtr&)>& body) {
  const MeshShape shape = parse_mesh(text, 0);
  run_thread_ranks(shape.ranks(), 1, ProcessGroup::Deadline(1800), [&](const std::shared_ptr<ProcessGroup>& world) {
    body(std::make_shared<const DeviceMesh>(is_available(Device::cuda) ? staged(world) : world, shape));
  });
}

/// This rank's part of a whole tensor under a placement on tp.
inline Tensor tp_part(const Tensor& whole, Placement placement, const DeviceMesh& mesh) {
  if (!placement.sharded()) return clone(whole);
  const std::int64_t piece = whole.size(placement.dim) / mesh.size(Axis::tp);
  return clone(view::slice(whole, placement.dim, mesh.coord(Axis::tp) * piece, piece));
}

/// The whole tensor of one that is sharded over an axis, on every rank of the axis. Collective over it if sharded.
inline Tensor whole_over(const Tensor& local, Placement placement, const DeviceMesh& mesh, Axis axis) {
  if (!placement.sharded()) return clone(local);
  ProcessGroup& group = mesh.group(axis);
  std::vector<std::int64_t> extents = {group.size()};
  extents.insert(extents.end(), local.shape().begin(), local.shape().end());
  const Tensor pieces = Tensor::empty(Shape(std::span<const std::int64_t>(extents)), local.dtype());
  group.all_gather(clone(local), pieces).wait();
  const NoGrad guard;
  std::vector<Tensor> parts;
  for (int i = 0; i < group.size(); ++i) parts.push_back(view::select(pieces, 0, i));
  return concat(parts, placement.dim);
}

inline Tensor tp_whole(const Tensor& local, Placement placement, const DeviceMesh& mesh) {
  return whole_over(local, placement, mesh, Axis::tp);
}

/// A parameter's value or gradient as a whole tensor, padded rows cut off.
inline Tensor whole(const Tensor& local, const Parameter& p, const DeviceMesh& mesh) {
  const Tensor over_tp = tp_whole(local.detach(), p.placements.tp, mesh);
  return clone(view::slice(whole_over(over_tp, p.placements.ep, mesh, Axis::ep), 0, 0, p.logical_rows));
}

/// Copies a whole tensor, which may lack padded rows, into this rank's shard.
inline void set_whole(Parameter& p, const Tensor& values) {
  Tensor part = values, local = p.local;
  for (int dim = 0; dim < part.dims(); ++dim) {
    const std::int64_t start = std::min(p.rectangle.start[dim], part.size(dim));
    const std::int64_t length = std::min(local.size(dim), part.size(dim) - start);
    part = view::slice(part, dim, start, length);
    local = view::slice(local, dim, 0, length);
  }
  copy(part, local);
}

/// Adds spread * normal numbers to every parameter: the same whole tensor on any mesh. Biases that start at 0 and gains
/// that start at 1 would hide that they are applied twice, or not at all. Padded rows get numbers too.
inline void randomise(const ParameterList& parameters, double spread) {
  for (const ParameterPtr& p : parameters) {
    Tensor values = Tensor::empty(p->global_shape, DType::f64);
    for (std::int64_t i = 0; i < values.count(); ++i) {
      values.data<double>()[i] = spread * random_normal(77, stream_of(p->name), static_cast<std::uint64_t>(i));
    }
    for (int dim = 0; dim < values.dims(); ++dim) {
      values = view::slice(values, dim, p->rectangle.start[dim], p->local.size(dim));
    }
    const NoGrad guard;
    copy(values + cast(p->local, DType::f64), p->local);
  }
}

/// Tensors by name, filled in by several ranks.
class Collected {
 public:
  void add(const std::string& name, const Tensor& tensor) {
    const std::scoped_lock lock(mutex_);
    tensors_[name].push_back(tensor);
  }
  /// One tensor per call of add(), in no particular order.
  const std::map<std::string, std::vector<Tensor>>& all() const { return tensors_; }

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<Tensor>> tensors_;
};

}  // namespace trireme::testing
