// Speed of convolutions with the shapes of ResNet-18 (He et al. 2016) at 224 x 224: forward, gradient of the input, and
// gradient of the weight.
//
//   build/bin/conv_bench                               # batch 4, 1 thread and all of them
//   build/bin/conv_bench --batch 8 --threads 2 --dtype bf16 --repeats 9
//   bench/conv_compare.py --python VENV/bin/python     # takes turns with PyTorch
//
// Prints milliseconds, GFLOP/s, and the share of this machine's peak, which is measured just before. The limit of a
// convolution here is 2 N O OH OW C R S FLOPs at that peak: no shape is bound by memory. "all" is the sum over the
// network's convolutions, each as often as it occurs; the gradient of the network's input is not in it. With --turns,
// it speaks the protocol of bench/turns.h: a step is one pass over all shapes.
#include <fmt/core.h>

#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/command_line.h"
#include "bench/timing.h"
#include "bench/turns.h"
#include "core/cores.h"
#include "core/cpu/conv.h"
#include "core/machine_speed.h"
#include "core/parallel_for.h"

namespace trireme::bench {
namespace {

struct Layer {
  std::string name;
  std::int64_t in, out, size, kernel, stride;  // size: of the input image
  int count;                                   // in the network
};

const std::vector<Layer>& layers() {
  static const std::vector<Layer> all = {
      {"first", 3, 64, 224, 7, 2, 1},           {"64", 64, 64, 56, 3, 1, 4},    {"64-128/2", 64, 128, 56, 3, 2, 1},
      {"64-128/2 1x1", 64, 128, 56, 1, 2, 1},   {"128", 128, 128, 28, 3, 1, 3}, {"128-256/2", 128, 256, 28, 3, 2, 1},
      {"128-256/2 1x1", 128, 256, 28, 1, 2, 1}, {"256", 256, 256, 14, 3, 1, 3}, {"256-512/2", 256, 512, 14, 3, 2, 1},
      {"256-512/2 1x1", 256, 512, 14, 1, 2, 1}, {"512", 512, 512, 7, 3, 1, 3},
  };
  return all;
}

ConvGeometry geometry(const Layer& layer, std::int64_t batch) {
  const std::int64_t padding = layer.kernel / 2;
  return {.batch = batch,
          .in_channels = layer.in,
          .height = layer.size,
          .width = layer.size,
          .out_channels = layer.out,
          .kernel_height = layer.kernel,
          .kernel_width = layer.kernel,
          .groups = 1,
          .stride = {layer.stride, layer.stride},
          .padding = {padding, padding},
          .dilation = {1, 1}};
}

double flops(const ConvGeometry& g) {
  return 2.0 * static_cast<double>(g.batch * g.out_channels * g.out_positions()) *
         static_cast<double>(g.in_group() * g.kernel_positions());
}

/// One convolution with its tensors, and the three passes over it.
struct Problem {
  Layer layer;
  ConvGeometry g;
  Tensor x, weight, y, dx, dw;
  Problem(const Layer& of, std::int64_t batch, DType dtype)
      : layer(of),
        g(geometry(of, batch)),
        x(random_tensor({batch, g.in_channels, g.height, g.width}, 1, dtype)),
        weight(random_tensor({g.out_channels, g.in_channels, g.kernel_height, g.kernel_width}, 2, dtype)),
        y(random_tensor({batch, g.out_channels, g.out_height(), g.out_width()}, 3, dtype)),
        dx(Tensor::empty(x.shape(), dtype)),
        dw(Tensor::empty(weight.shape(), accumulate_dtype(dtype))) {}
  void forward() { cpu::conv2d(x, weight, {}, g, y); }
  void input_gradient() { cpu::conv2d_input_gradient(y, weight, g, dx); }
  void weight_gradient() { cpu::conv2d_weight_gradient(x, y, g, dw); }
};

template <class F>
double seconds_of(double work, F&& f) {
  const int calls = static_cast<int>(std::clamp(1e9 / work, 1.0, 100.0));
  f();
  const auto start = Clock::now();
  for (int call = 0; call < calls; ++call) f();
  return seconds_since(start) / calls;
}

const std::vector<std::string> passes = {"forward", "input", "weight"};

/// Seconds of each pass of each problem, by "layer pass".
std::map<std::string, double> measure(std::vector<Problem>& problems) {
  std::map<std::string, double> seconds;
  for (Problem& p : problems) {
    const double work = flops(p.g);
    seconds[p.layer.name + " forward"] = seconds_of(work, [&] { p.forward(); });
    seconds[p.layer.name + " input"] = seconds_of(work, [&] { p.input_gradient(); });
    seconds[p.layer.name + " weight"] = seconds_of(work, [&] { p.weight_gradient(); });
  }
  return seconds;
}

std::vector<Problem> problems(std::int64_t batch, DType dtype) {
  std::vector<Problem> all;
  for (const Layer& layer : layers()) all.emplace_back(layer, batch, dtype);
  return all;
}

void print(int team, std::int64_t batch, DType dtype, int repeats) {
  set_threads(team);
  const OwnCores own_cores(0, team);
  const double peak = measure_flops(team, dtype);
  fmt::print("# {}, {}, batch {}: peak {:.1f} GFLOP/s; ms, GFLOP/s (share of peak), medians of {}\n",
             thread_count(team), name(dtype), batch, peak * 1e-9, repeats);
  std::vector<Problem> all = problems(batch, dtype);
  std::map<std::string, std::vector<double>> times;
  for (int i = 0; i < repeats; ++i)
    for (const auto& [key, seconds] : measure(all)) times[key].push_back(seconds);
  fmt::print("{:14} {:>26} {:>26} {:>26}\n", "", "forward", "gradient of input", "gradient of weight");
  double total = 0, work = 0;
  for (const Problem& p : all) {
    fmt::print("{:14}", p.layer.name);
    for (const std::string& pass : passes) {
      const double seconds = median(times[p.layer.name + " " + pass]), of_pass = flops(p.g);
      if (pass != "input" || p.layer.in != 3) {
        total += seconds * p.layer.count;
        work += of_pass * p.layer.count;
      }
      fmt::print(" {:>9.3f} ms {:>14}", seconds * 1e3, share(of_pass / seconds * 1e-9, peak * 1e-9));
    }
    fmt::print("\n");
  }
  fmt::print("all: {:.1f} ms, {}\n", total * 1e3, share(work / total * 1e-9, peak * 1e-9));
}

/// Takes turns: each line of standard input is a number of passes over all shapes.
void take_turns_by_line(int team, std::int64_t batch, DType dtype) {
  set_threads(team);
  const OwnCores own_cores(0, team);
  std::vector<Problem> all = problems(batch, dtype);
  measure(all);
  Turns::say({{"ready", {{"peak", measure_flops(team, dtype)}}}});
  for (std::string line; std::getline(std::cin, line);)
    for (int i = 0; i < std::stoi(line); ++i) {
      const auto start = Clock::now();
      const auto parts = measure(all);
      Turns::say({{"seconds", seconds_since(start)}, {"parts", parts}});
    }
  Turns::say({{"end", nlohmann::json::object()}});
}

}  // namespace
}  // namespace trireme::bench

int main(int argc, char** argv) {
  using namespace trireme;
  CLI::App app{"Speed of the convolutions of ResNet-18"};
  std::vector<int> teams;
  std::int64_t batch = 4;
  int repeats = 5;
  bool turns = false;
  std::string dtype = "f32";
  app.add_option("--threads", teams, "numbers of threads to measure (default: 1 and all)")
      ->delimiter(',')
      ->check(CLI::Range(1, bench::most_threads));
  app.add_option("--batch", batch, "samples")->check(CLI::Range(1, 1 << 12));
  app.add_option("--repeats", repeats, "measurements of each")->check(CLI::Range(1, 1 << 20));
  app.add_option("--dtype", dtype, "element type")->check(CLI::IsMember({"f32", "bf16", "f16", "f64"}));
  app.add_flag("--turns", turns, "read from standard input how many passes to do, one line per turn");
  return bench::run_benchmark(app, argc, argv, [&] {
    const DType type = dtype == "bf16"  ? DType::bf16
                       : dtype == "f16" ? DType::f16
                       : dtype == "f64" ? DType::f64
                                        : DType::f32;
    if (teams.empty()) teams = threads() > 1 ? std::vector{1, threads()} : std::vector{1};
    if (turns) return bench::take_turns_by_line(teams.back(), batch, type);
    for (const int team : teams) bench::print(team, batch, type, repeats);
  });
}
