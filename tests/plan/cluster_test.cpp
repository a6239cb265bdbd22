#include "ops/plan/cluster.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "core/error.h"

using namespace trireme;
using namespace trireme::plan;

namespace {

/// Two nodes of two; everything is 1.
constexpr const char* easy =
    R"({"name": "easy", "ranks_per_node": 2,
        "device": {"bf16_tflops": 1, "f32_tflops": 0.5, "memory_gb": 1, "reserved_gb": 0, "memory_gb_per_s": 1,
                   "efficiency": {"products": 1, "attention": 0.5, "memory": 1}, "kernel_us": 3},
        "within": {"latency_us": 1, "gb_per_s": 1}, "between": {"latency_us": 10, "gb_per_s": 0.1}})";

ClusterModel easy_model() { return ClusterModel(parse_cluster(easy, "easy.json")); }

ProfileEvent call(std::string name, double flops, double bytes, DType dtype = DType::bf16) {
  return {.category = "kernel", .name = std::move(name), .cost = {.flops = flops, .bytes = bytes, .dtype = dtype}};
}

double collective(comm::CollectiveKind kind, std::int64_t bytes, std::vector<int> members) {
  return easy_model()
      .collective({.collective = {.kind = kind}, .bytes = bytes}, {.name = "tp", .members = std::move(members)})
      .link;
}

std::string with(const std::string& from, const std::string& to) {
  std::string text = easy;
  return text.replace(text.find(from), from.size(), to);
}

}  // namespace

TEST_CASE("a kernel takes the longer of its arithmetic and its memory traffic, and products wait for half of theirs") {
  const ClusterModel model = easy_model();
  CHECK(model.kernel(call("gemm", 1e12, 1)) == doctest::Approx(1).epsilon(1e-4));
  CHECK(model.kernel(call("gemm", 1e12, 1e9)) == doctest::Approx(1.5).epsilon(1e-4));
  CHECK(model.kernel(call("grouped_gemm", 1e12, 1, DType::f32)) == doctest::Approx(2).epsilon(1e-4));
  CHECK(model.kernel(call("attention", 1e12, 1e9)) == doctest::Approx(2.4).epsilon(1e-4));
  CHECK(model.kernel(call("gemm", 1e6, 2e9)) == doctest::Approx(2));
  CHECK(model.kernel(call("unary", 0, 8)) == 3e-6);
}

TEST_CASE("a file may say how much times vary") {
  CHECK(easy_model().variation().calls == 0);
  const std::string text = with("\"kernel_us\": 3", "\"variation\": {\"calls\": 0.02, \"devices\": 0.01}");
  const Variation read = ClusterModel(parse_cluster(text, "easy.json")).variation();
  CHECK(read.calls == 0.02);
  CHECK(read.devices == 0.01);
}

TEST_CASE("products take what bench/results measured on H100 and H200, with one efficiency for a library on a GPU") {
  struct Product {
    double m, n, k;
    std::array<double, 4> ms;  // ours and cuBLASLt's on H100; the same on H200
  };
  const std::vector<Product> products = {
      {4096, 4096, 4096, {0.1817, 0.1711, 0.1851, 0.1727}},    {8192, 8192, 8192, {1.359, 1.371, 1.392, 1.403}},
      {8192, 2304, 768, {0.04714, 0.05166, 0.04648, 0.05176}}, {8192, 3072, 768, {0.06026, 0.06499, 0.05939, 0.06478}},
      {8192, 768, 3072, {0.05613, 0.05658, 0.05485, 0.05778}}, {8192, 50304, 768, {0.8664, 0.8884, 0.8885, 0.898}},
      {3072, 768, 8192, {0.07973, 0.05773, 0.07939, 0.05824}}};
  constexpr std::array<double, 4> reached = {0.87, 0.89, 0.86, 0.82}, memory_speed = {3350e9, 3350e9, 4800e9, 4800e9};
  int met = 0;
  for (std::size_t library = 0; library < 4; ++library) {
    Cluster cluster;
    cluster.device.bf16_flops = 989e12;
    cluster.device.memory_speed = memory_speed.at(library);
    cluster.device.products = reached.at(library);
    const ClusterModel model(cluster);
    for (const auto& [m, n, k, ms] : products) {
      const double seconds = model.kernel(call("gemm", 2 * m * n * k, 2 * (m * k + k * n + m * n)));
      if (std::abs(1e3 * seconds / ms.at(library) - 1) < 0.09) ++met;
    }
  }
  CHECK(met == 25);
}

TEST_CASE("attention takes what it takes on an H100 and an H200") {
  struct Causal {
    double width, tokens;      // of a head, of a sequence; 268 MB in all for queries, keys, values and outputs
    std::array<double, 2> ms;  // ours, forward and backward, on H100 and H200
  };
  const std::vector<Causal> sums = {{64, 1024, {0.9865, 0.9729}},
                                    {64, 4096, {2.694, 2.688}},
                                    {128, 1024, {0.824, 0.7952}},
                                    {128, 4096, {2.420, 2.420}}};
  for (std::size_t gpu = 0; gpu < 2; ++gpu) {
    Cluster cluster;
    cluster.device.bf16_flops = 989e12;
    cluster.device.memory_speed = gpu == 0 ? 3350e9 : 4800e9;
    const ClusterModel model(cluster);
    for (const auto& [width, tokens, ms] : sums) {
      const double bytes = 268e6, flops = bytes * tokens / 4;  // bf16: 2 T^2 d a head, on 4 T d numbers
      const double seconds = model.kernel(call("attention", flops, bytes)) +
                             model.kernel(call("attention_backward", 2.5 * flops, 2 * bytes));
      CAPTURE(width);
      CHECK(std::abs(1e3 * seconds / ms.at(gpu) - 1) < 0.115);
    }
  }
}

TEST_CASE("memory traffic has an efficiency for kernels that compute, and one for those that copy") {
  const ClusterModel model(parse_cluster(
      with("\"attention\": 0.5, \"memory\": 1", "\"attention\": 0.5, \"elementwise\": 0.25, \"memory\": 0.5"),
      "m.json"));
  CHECK(model.kernel(call("layer_norm", 0, 1e9)) == doctest::Approx(4));
  CHECK(model.kernel(call("cross_entropy_loss", 0, 1e9)) == doctest::Approx(4));
  CHECK(model.kernel(call("axpby", 0, 1e9)) == doctest::Approx(2));
  CHECK(model.kernel(call("adamw", 0, 1e9)) == doctest::Approx(2));
  CHECK(model.kernel(call("gemm", 1e12, 1e9)) == doctest::Approx(2).epsilon(1e-4));
}

TEST_CASE("collectives take their time on the slowest link") {
  using Kind = comm::CollectiveKind;
  // Within a node: 2 (n-1) alpha + 2 (n-1)/n b beta.
  CHECK(collective(Kind::all_reduce, 1'000'000, {0, 1}) == doctest::Approx(2e-6 + 1e-3));
  // Between nodes, one rank of each: its own link.
  CHECK(collective(Kind::all_reduce, 1'000'000, {0, 2}) == doctest::Approx(2e-5 + 1e-2));
  // Two ranks of each node send half of the tensor each.
  CHECK(collective(Kind::all_reduce, 1'000'000, {0, 1, 2, 3}) == doctest::Approx(2 * 11e-6 + 0.75e-2).epsilon(0.01));
  CHECK(collective(Kind::all_gather, 1'000'000, {0, 1}) == doctest::Approx(1e-6 + 1e-3));
  CHECK(collective(Kind::all_reduce, 1'000'000, {0}) == 0);
}

TEST_CASE("messages take the link between their ranks") {
  const ClusterModel model = easy_model();
  CHECK(model.message({.peer = 1, .bytes = 1'000'000}, 0).link == doctest::Approx(1e-6 + 1e-3));
  CHECK(model.message({.peer = 2, .bytes = 1'000'000}, 0).link == doctest::Approx(1e-5 + 1e-2));
}

TEST_CASE(
    "in a torus, cables are shared by all ranks whose messages cross them, as the network says that --links has") {
  Cluster machine;
  machine.name = "torus";
  comm::Links& links = machine.links;
  links.between = {.latency = 1e-3, .seconds_per_byte = 1e-6};
  links.topology = comm::Links::Topology::torus;
  links.torus = {8, 4};
  constexpr int nodes = 32;
  constexpr std::int64_t bytes = 1'000'000;
  const auto model = [&] { return ClusterModel(machine); };
  const auto all_send = [&](int stride) {  // one step of the rings of all groups, and of a pipeline's messages
    comm::Network network(links);
    double last = 0;
    for (int from = 0; from < nodes; ++from) {
      const int to = stride < 8 ? from / 8 * 8 + (from + stride) % 8 : (from + stride) % nodes;
      last = std::max(last, network.deliver(from, to, bytes, 0).arrives);
    }
    return last;
  };
  const auto ring = [&](std::vector<int> members) {
    const double steps = static_cast<double>(members.size()) - 1;
    return model()
               .collective({.collective = {.kind = comm::CollectiveKind::all_gather}, .bytes = bytes},
                           {.name = "dp", .members = std::move(members)})
               .link /
           steps;
  };
  CHECK(ring({0, 1, 2, 3, 4, 5, 6, 7}) == doctest::Approx(all_send(1)));
  CHECK(ring({0, 2, 4, 6}) == doctest::Approx(all_send(2)));
  CHECK(ring({0, 8, 16, 24}) == doctest::Approx(all_send(8)));
  CHECK(model().message({.peer = 2, .bytes = bytes}, 0).link == doctest::Approx(all_send(2)));

  // All to all in a line of eight: a rank's bytes cross 16 / 7 cables in the mean, half of them in each direction.
  const double exchange = model()
                              .collective({.collective = {.kind = comm::CollectiveKind::all_to_all}, .bytes = bytes},
                                          {.name = "ep", .members = {0, 1, 2, 3, 4, 5, 6, 7}})
                              .link;
  CHECK(exchange == doctest::Approx(7 * 16.0 / 7 / 2 + 3 * 1e-3).epsilon(1e-3));

  links.ranks_per_node = 2;
  CHECK_NOTHROW(require_room(machine, 64));
  CHECK_THROWS_WITH_AS(require_room(machine, 65),
                       doctest::Contains("whose torus has 32 nodes of 2; expected 64 at most"), Error);
}

TEST_CASE("a file of a machine that is wrong names its field") {
  const auto refused = [](const std::string& text, const char* message) {
    CHECK_THROWS_WITH_AS(parse_cluster(text, "m.json"), doctest::Contains(message), Error);
  };
  refused(with("\"bf16_tflops\": 1,", ""), "\"device\" has no \"bf16_tflops\"");
  refused(with("\"memory_gb\": 1,", "\"memory_gb\": -1,"), "\"memory_gb\" is -1");
  refused(with("\"kernel_us\": 3", "\"variation\": {\"calls\": 2}"), "\"calls\"");
  refused(with("\"reserved_gb\": 0", "\"reserved_gb\": 2"), "\"reserved_gb\" is 2, all of \"memory_gb\"");
  const std::string_view name = "\"name\": \"easy\",";
  refused(with(std::string(name), std::string(name) + "\"operation\": {\"watts\": 1},"), "watts");
  refused(with(std::string(name), std::string(name) + "\"operation\": {\"failures_per_device_year\": 1},"),
          "\"save_gb_per_s_per_node\" above 0");
  refused(with("\"products\": 1", "\"products\": 2"), "\"products\" is 2");
  refused(with("\"name\": \"easy\",", ""), "the file has no \"name\"");
  refused(with("\"kernel_us\"", "\"kernels\""), "\"device\" has a field \"kernels\"");
  refused(with("\"ranks_per_node\": 2", "\"ranks_per_node\": 2, \"topology\": \"torus\""), "has its extents in");
  refused(with("\"gb_per_s\": 0.1", "\"gb_per_s\": 0"), "\"gb_per_s\" is 0");
}

TEST_CASE("the files of examples/machines are right") {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("examples/machines")) {
    INFO(entry.path().string());
    const Cluster cluster = read_cluster(entry.path());
    CHECK(cluster.device.bf16_flops > 1e14);
    ++files;
  }
  CHECK(files >= 5);
}
