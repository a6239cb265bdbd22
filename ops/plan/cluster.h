// A machine that is not here, from a file of its figures:
//
//   {"name": "8 x H100 SXM, NDR InfiniBand",
//    "device": {"bf16_tflops": 989, "f32_tflops": 67, "memory_gb": 80, "memory_gb_per_s": 3350, "reserved_gb": 4,
//               "efficiency": {"products": 0.87, "attention": 0.44, "elementwise": 0.75, "memory": 0.85},
//               "kernel_us": 3},
//    "ranks_per_node": 8,
//    "within":  {"latency_us": 2, "gb_per_s": 400},
//    "between": {"latency_us": 6, "gb_per_s": 45},
//    "topology": "rail",
//    "operation": {"dollars_per_device_hour": 2.5, "watts_per_device": 1275, "failures_per_device_year": 0.17,
//                  "save_gb_per_s_per_node": 2, "restart_minutes": 10}}
//
// The links are those of --links (train/options/links_file.h), as one rank sees them. "efficiency": the share of the
// peak that arithmetic of products and attention reach, and of the bandwidth that norms, activations and losses, and
// copies and updates reach (KernelKind). "kernel_us": what any kernel takes at least. "reserved_gb": memory
// that the driver and libraries take. "variation": {"calls": 0.02, "devices": 0.01}, standard deviations of a kernel's
// time, as shares of it: from call to call, and from device to device; 0 if left out. "operation" and each of its fields
// may be left out (ops/plan/operation.h).
//
// A kernel takes the longer of its arithmetic and its memory traffic (a roofline: Williams et al. 2009), but a product
// waits for half of its traffic. Collectives are as fast as the best of a ring over all ranks, and of rings within nodes
// with a tree between them. In a torus they are rings, and ranks that communicate at the same time share its cables.
// Read next: ops/plan/cluster.cpp; examples/machines has files.
#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>

#include "ops/plan/operation.h"
#include "ops/plan/simulate.h"
#include "parallel/comm/algorithms/network.h"

namespace trireme::plan {

/// Kinds of kernels: a machine has one efficiency for each, and a step's time is reported by them.
enum class KernelKind {
  product,      ///< matrix products, also grouped ones
  attention,    ///< forward and backward
  elementwise,  ///< norms, activations, losses, embeddings: a little arithmetic for each element that is read
  copy,         ///< moves or adds up what is there: buckets, gradients, casts
  optimizer,    ///< updates of weights
};
inline constexpr std::array<std::string_view, 5> kernel_kind_names = {"products", "attention", "elementwise", "copies",
                                                                      "optimizer"};

/// `kernel`: a name in KernelTable (core/kernels.h).
inline KernelKind kernel_kind(std::string_view kernel) {
  constexpr std::array<std::string_view, 6> copies = {"fill",        "copy",       "axpby",
                                                      "sum_squares", "squares_to", "multiply_by"};
  if (kernel.find("gemm") != std::string_view::npos) return KernelKind::product;
  if (kernel.starts_with("attention")) return KernelKind::attention;
  if (kernel == "adamw" || kernel == "sgd") return KernelKind::optimizer;
  return std::ranges::find(copies, kernel) != copies.end() ? KernelKind::copy : KernelKind::elementwise;
}
inline std::string_view name(KernelKind kind) { return kernel_kind_names[static_cast<std::size_t>(kind)]; }

struct Cluster {
  struct DeviceFigures {
    double bf16_flops = 0, f32_flops = 0;  ///< FLOP/s of products
    double memory = 0;                     ///< bytes
    double reserved = 4e9;                 ///< of them, that tensors cannot have
    double memory_speed = 0;               ///< bytes/s
    /// shares of the peak, or of the bandwidth, that are reached
    double products = 0.87, attention = 0.44, elementwise = 0.75, copies = 0.85;
    double kernel_seconds = 3e-6;  ///< of the smallest kernel
    Variation variation;

    double usable_memory() const { return memory - reserved; }
  };
  std::string name;
  DeviceFigures device;
  comm::Links links;
  Operation operation;
};

/// `text`: of the file `path`. Throws ExitCode::usage, naming the field, for a value that is missing or absurd.
Cluster parse_cluster(std::string_view text, const std::filesystem::path& path);
Cluster read_cluster(const std::filesystem::path& path);
/// Throws ExitCode::usage if a torus has fewer nodes than so many ranks need.
void require_room(const Cluster& cluster, int ranks);

class ClusterModel final : public MachineModel {
 public:
  explicit ClusterModel(Cluster cluster) : c_(std::move(cluster)) {}
  double kernel(const ProfileEvent& call) const override;
  double host(double) const override { return 0; }  // the host queues kernels ahead of the device
  TransferTime collective(const Trace::Transfer& transfer, const Trace::Group& group) const override;
  TransferTime message(const Trace::Transfer& transfer, int from) const override;
  int node_of(int rank) const override { return c_.links.node_of(rank); }
  Variation variation() const override { return c_.device.variation; }

 private:
  Cluster c_;
};

}  // namespace trireme::plan
