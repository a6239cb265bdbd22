#include "ops/plan/cluster.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>

#include "train/options/links_fields.h"

namespace trireme::plan {
namespace {

using nlohmann::json;

JsonFields fields_of(const std::filesystem::path& path) { return {"--machine", path}; }

Cluster::DeviceFigures device(const JsonFields& f, const json& object) {
  Cluster::DeviceFigures d;
  const auto share = [&](double& value, const char* name) {
    return [&f, &value, name](const json& v) { value = f.number(v, name, 0.01, 1); };
  };
  f.read(object, "\"device\"",
         {{"bf16_tflops", [&](const json& v) { d.bf16_flops = 1e12 * f.number(v, "bf16_tflops", 1e-3, 1e6); }},
          {"f32_tflops", [&](const json& v) { d.f32_flops = 1e12 * f.number(v, "f32_tflops", 1e-3, 1e6); }},
          {"memory_gb", [&](const json& v) { d.memory = 1e9 * f.number(v, "memory_gb", 0.1, 1e6); }},
          {"reserved_gb", [&](const json& v) { d.reserved = 1e9 * f.number(v, "reserved_gb", 0, 1e6); }},
          {"memory_gb_per_s", [&](const json& v) { d.memory_speed = 1e9 * f.number(v, "memory_gb_per_s", 0.1, 1e6); }},
          {"variation",
           [&](const json& v) {
             const auto deviation = [&](double& value, const char* name) {
               return [&f, &value, name](const json& number) { value = f.number(number, name, 0, 0.5); };
             };
             f.read(v, "\"variation\"",
                    {{"calls", deviation(d.variation.calls, "calls")},
                     {"devices", deviation(d.variation.devices, "devices")}},
                    {});
           }},
          {"kernel_us", [&](const json& v) { d.kernel_seconds = 1e-6 * f.number(v, "kernel_us", 0, 1e4); }},
          {"efficiency",
           [&](const json& v) {
             f.read(v, "\"efficiency\"",
                    {{"products", share(d.products, "products")},
                     {"attention", share(d.attention, "attention")},
                     {"elementwise", share(d.elementwise, "elementwise")},
                     {"memory", share(d.copies, "memory")}},
                    {});
           }}},
         {"bf16_tflops", "f32_tflops", "memory_gb", "memory_gb_per_s"});
  if (d.reserved >= d.memory)
    f.refuse("\"reserved_gb\" is {:.3g}, all of \"memory_gb\"; expected less; 4 is its default", d.reserved / 1e9);
  return d;
}

Operation operation(const JsonFields& f, const json& object) {
  Operation o;
  JsonFields::Readers readers;
  const auto figure = [&](double& value, const std::string& name, double most) {
    readers[name] = [&f, &value, name, most](const json& v) { value = f.number(v, name, 0, most); };
  };
  figure(o.dollars_per_device_hour, "dollars_per_device_hour", 1e4);
  figure(o.watts_per_device, "watts_per_device", 1e5);
  figure(o.failures_per_device_year, "failures_per_device_year", 1e3);
  figure(o.save_gb_per_s_per_node, "save_gb_per_s_per_node", 1e5);
  figure(o.restart_minutes, "restart_minutes", 1e5);
  f.read(object, "\"operation\"", readers, {});
  if (o.failures_per_device_year > 0 && o.save_gb_per_s_per_node == 0)
    f.refuse(
        "\"operation\" has \"failures_per_device_year\", and the time that a save takes is not known; expected "
        "\"save_gb_per_s_per_node\" above 0");
  return o;
}

/// Calls f(distance) for each dim of a torus: between two nodes, the shorter way round.
template <class F>
void for_each_distance(int from, int to, const std::vector<int>& torus, const F& f) {
  for (const int extent : torus) {
    const int apart = std::abs(from % extent - to % extent);
    f(std::min(apart, extent - apart));
    from /= extent;
    to /= extent;
  }
}

/// The cables from a node to another; 1 where there is a switch.
double hops(int from, int to, const comm::Links& links) {
  int cables = 0;
  for_each_distance(from, to, links.torus, [&](int distance) { cables += distance; });
  return links.torus.empty() ? 1 : cables;
}

/// Some ranks as the links see them.
struct Spread {
  double ranks = 1, nodes = 1;
  double here = 1;  ///< the most on one node
  double hops = 1;  ///< from a node to the next of the ring, in the mean
};

/// `members`: those of a node are neighbours.
Spread spread(const std::vector<int>& members, const comm::Links& links) {
  Spread s{.ranks = static_cast<double>(members.size()), .nodes = 0, .hops = 0};
  int node = links.node_of(members.back());
  double here = 0;
  for (const int member : members) {
    const int its = links.node_of(member);
    if (its != node || s.nodes == 0) {
      s.hops += hops(node, its, links);
      node = its, here = 0, ++s.nodes;
    }
    s.here = std::max(s.here, ++here);
  }
  s.hops /= s.nodes;
  return s;
}

/// Seconds for which the cables of a torus are busy if each rank sends `bytes` to the members on other nodes, in all. The
/// messages use the cables of each dim along which there are members, in both directions.
double all_to_all_in_torus(const std::vector<int>& members, double bytes, const comm::Links& links) {
  std::vector<int> spans(links.torus.size());
  double cables = 0, others = 0;
  const int first = links.node_of(members.front());
  for (const int member : members) {
    const int node = links.node_of(member);
    if (node == first) continue;
    ++others;
    std::size_t dim = 0;
    for_each_distance(first, node, links.torus, [&](int distance) {
      cables += distance;
      spans[dim] = std::max(spans[dim], distance);
      ++dim;
    });
  }
  const auto dims = std::ranges::count_if(spans, [](int distance) { return distance > 0; });
  constexpr double directions = 2;
  return bytes * cables / others * links.ranks_per_node * links.between.seconds_per_byte /
         (directions * static_cast<double>(dims));
}

}  // namespace

Cluster parse_cluster(std::string_view text, const std::filesystem::path& path) {
  const JsonFields f = fields_of(path);
  Cluster cluster;
  LinksFields links(f);
  JsonFields::Readers readers = links.readers();
  readers["name"] = [&](const json& v) { cluster.name = f.text(v, "name", "a text"); };
  readers["sources"] = [&](const json& v) { static_cast<void>(v); };  // for readers
  readers["operation"] = [&](const json& v) { cluster.operation = operation(f, v); };
  readers["device"] = [&](const json& v) { cluster.device = device(f, v); };
  std::vector<std::string> needed = LinksFields::needed();
  needed.insert(needed.end(), {"name", "device"});
  f.read(f.root(text), "the file", readers, needed);
  cluster.links = links.links();
  return cluster;
}

void require_room(const Cluster& cluster, int ranks) {
  const comm::Links& l = cluster.links;
  if (l.torus.empty()) return;
  const double nodes = std::accumulate(l.torus.begin(), l.torus.end(), 1.0, std::multiplies());
  if (ranks > nodes * l.ranks_per_node)
    fail(ExitCode::usage, "plan",
         "{} ranks do not fit onto the machine \"{}\", whose torus has {} nodes of {}; expected {} at most; change "
         "\"torus\" in the machine file, or the number of devices",
         ranks, cluster.name, nodes, l.ranks_per_node, nodes * l.ranks_per_node);
}

Cluster read_cluster(const std::filesystem::path& path) { return parse_cluster(fields_of(path).text(), path); }

// Products: half of the traffic is not hidden behind arithmetic, as the first tiles come before it and results leave
// after it; so a product of short sides reaches a smaller share of the peak. `fill` is what the device takes to fill and
// to drain. Both were chosen for the 28 times of 7 shapes in bench/results/gpu_nvidia_h100_80gb_hbm3.md and
// gpu_nvidia_h200.md (our kernel and cuBLASLt): with one efficiency for each of the four, 25 are met within 9 %.
//
// Attention: each byte of its tensors costs as much as 400 FLOPs, for exponentials, for tiles on the diagonal, and for
// what comes before and after the products of a row; so short sequences reach a smaller share of the peak. With one
// efficiency of 0.44, the 8 sums of forward and backward in the same files (causal; heads of 64 and 128; 1024 and 4096
// tokens) are met within 11 %. Wide heads take less than predicted, narrow ones more.
double ClusterModel::kernel(const ProfileEvent& call) const {
  constexpr double not_hidden = 0.5, fill = 5e-6;  // of the traffic; seconds
  constexpr double flops_for_a_byte = 400;         // of attention
  const Cluster::DeviceFigures& d = c_.device;
  const double peak = call.cost.dtype == DType::f32 || call.cost.dtype == DType::f64 ? d.f32_flops : d.bf16_flops;
  const double copied = call.cost.bytes / (d.memory_speed * d.copies);
  double seconds = copied;
  switch (kernel_kind(call.name)) {
    case KernelKind::product:
      seconds = std::max(copied, call.cost.flops / (peak * d.products) + not_hidden * copied + fill);
      break;
    case KernelKind::attention:
      seconds = std::max(copied, (call.cost.flops / d.attention + flops_for_a_byte * call.cost.bytes) / peak);
      break;
    case KernelKind::elementwise:
      seconds = call.cost.bytes / (d.memory_speed * d.elementwise);
      break;
    case KernelKind::copy:
    case KernelKind::optimizer:
      break;
  }
  return std::max(seconds, d.kernel_seconds);
}

// Bytes b of the whole tensor. alpha: latency of a hop; beta: seconds per byte of a rank's link. Rings that leave a node
// use the links of all of its ranks, each for a part of the tensor. In a torus the ranks of a node share its cables, and
// all groups like this one communicate at the same time: over each cable go as many rings as a hop has cables.
TransferTime ClusterModel::collective(const Trace::Transfer& transfer, const Trace::Group& group) const {
  using Kind = comm::CollectiveKind;
  const comm::Links& l = c_.links;
  const Spread s = spread(group.members, l);
  if (s.ranks <= 1) return {};
  const bool one_node = s.nodes == 1;
  const double n = s.ranks, shares = n - 1;
  const bool torus = l.topology == comm::Links::Topology::torus;
  const double alpha = one_node ? l.within.latency : l.between.latency * s.hops;
  const double sharers = torus ? l.ranks_per_node * s.hops : l.oversubscription;
  const double beta = one_node ? l.within.seconds_per_byte
                               : std::max(l.within.seconds_per_byte, l.between.seconds_per_byte * sharers / s.here);
  const double share = static_cast<double>(transfer.bytes);  // of one rank
  // Latency: once round the ring; or within the node and up and down a tree of nodes.
  const double round = shares * (one_node ? alpha : (s.here - 1) / s.here * l.within.latency + alpha / s.here);
  const double climb = (s.here - 1) * l.within.latency + std::ceil(std::log2(s.nodes)) * l.between.latency;
  const double latency = one_node || torus ? round : std::min(round, climb);
  const auto time = [one_node](double waits, double busy) {
    return TransferTime{.link = waits + busy,
                        .busy = busy,
                        .port = one_node ? TransferTime::Port::within : TransferTime::Port::between};
  };
  switch (transfer.collective.kind) {
    case Kind::all_reduce:
      return time(2 * latency, 2 * beta * share * shares / n);
    case Kind::all_gather:
    case Kind::reduce_scatter:
    case Kind::gather:
    case Kind::scatter:
      return time(latency, beta * share * shares);
    case Kind::all_to_all: {
      const double away = (n - s.here) * share, near = (s.here - 1) * share;
      const double between = torus && !one_node ? all_to_all_in_torus(group.members, away, l)
                                                : away * l.between.seconds_per_byte * l.oversubscription;
      return time(alpha * std::log2(n), std::max(near * l.within.seconds_per_byte, between));
    }
    case Kind::broadcast:
    case Kind::reduce:
      return time(latency, beta * share);
    case Kind::barrier:
      return time(2 * latency, 0);
  }
  return {};
}

TransferTime ClusterModel::message(const Trace::Transfer& transfer, int from) const {
  const comm::Links& l = c_.links;
  const int here = l.node_of(from), there = l.node_of(transfer.peer);
  const bool near = here == there;
  const comm::Link& link = near ? l.within : l.between;
  const double cables = near ? 1 : hops(here, there, l);
  const double sharers = near || l.topology != comm::Links::Topology::torus ? 1 : l.ranks_per_node * cables;
  const double busy = link.seconds_per_byte * sharers * static_cast<double>(transfer.bytes);
  return {.link = cables * link.latency + busy,
          .busy = busy,
          .port = near ? TransferTime::Port::within : TransferTime::Port::between};
}

}  // namespace trireme::plan
