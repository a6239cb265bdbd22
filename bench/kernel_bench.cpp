// kernel_bench: time and effective bandwidth of the memory-bound CPU kernels, at shapes of small and large models.
//   build/bin/kernel_bench [threads] [part of a kernel's name]
// GB/s counts the bytes that a kernel must move (stated in its file), not those that it does move. Beside it is the
// share of memory bandwidth (bench/peaks.h), above 100% if the tensors fit into a cache. --markdown FILE writes the
// same as a table. One thread is timed in processor time, which other processes disturb little; several threads in wall
// time. Products and attention have their own benchmarks.
#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <set>
#include <string>

#include "bench/command_line.h"
#include "bench/peaks.h"
#include "bench/timing.h"
#include "core/cores.h"
#include "core/kernels.h"
#include "core/parallel_for.h"
#include "core/random.h"

using namespace trireme;

namespace {

const KernelTable& table() { return kernels(Device::cpu); }

Tensor random(const Shape& shape, DType dtype = DType::f32) {
  Tensor x = Tensor::empty(shape);
  for (std::int64_t i = 0; i < x.count(); ++i) {
    x.data<float>()[i] = 4 * random_uniform(1, 2, static_cast<std::uint64_t>(i)) - 2;
  }
  return cast(x, dtype);
}

Tensor random_ids(std::int64_t count, std::int64_t vocab) {
  Tensor ids = Tensor::empty({count}, DType::i32);
  for (std::int64_t i = 0; i < count; ++i) {
    ids.data<std::int32_t>()[i] =
        static_cast<std::int32_t>(random_word(1, 3, static_cast<std::uint64_t>(i)) % static_cast<std::uint64_t>(vocab));
  }
  return ids;
}

std::string name_filter;
std::set<std::string> known_names;
bool only_names = false;  // report() only adds the name to known_names
double memory_gigas = 1;  // GB/s of main memory
bench::MarkdownTable markdown_table("Kernels bound by memory: GB/s (share of memory bandwidth)",
                                    {"kernel", "shape", "dtype", "us", "GB/s"});

double seconds() {
  timespec now{};
  clock_gettime(threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The best repetition within about a fifth of a second: slower ones waited for other processes.
void report(const std::string& name, const Shape& shape, DType dtype, std::int64_t bytes,
            const std::function<void()>& run) {
  if (only_names) known_names.insert(name);
  if (only_names || name.find(name_filter) == std::string::npos) return;
  const double start = seconds();
  double best = 1e9;
  for (int i = 0; i < 5 || seconds() - start < 0.2; ++i) {
    const double before = seconds();
    run();
    best = std::min(best, seconds() - before);
  }
  const std::string speed = bench::share(static_cast<double>(bytes) / best * 1e-9, memory_gigas);
  fmt::print("{:24} {:14} {:5} {:10.1f} us {:>14} GB/s\n", name, to_string(shape), trireme::name(dtype), best * 1e6,
             speed);
  markdown_table.row(
      {name, to_string(shape), std::string(trireme::name(dtype)), fmt::format("{:.1f}", best * 1e6), speed});
}

void elementwise(const Shape& shape, DType dtype) {
  const Tensor x = random(shape, dtype), dy = random(shape, dtype), row = random({shape[1]}, dtype);
  Tensor y = Tensor::empty(shape, dtype), sums = Tensor::empty({1, shape[1]}, dtype),
         last = Tensor::empty({shape[0], 1}, dtype);
  Tensor all = Tensor::empty({1, 1}, dtype);
  const std::int64_t bytes = x.bytes();
  report("fill", shape, dtype, bytes, [&] { table().fill(y, 1); });
  report("copy", shape, dtype, 2 * bytes, [&] { table().copy(x, y); });
  const Tensor heads = view::transpose(view::reshape(x, {shape[0], shape[1] / 32, 32}), 0, 1);
  Tensor moved = Tensor::empty(heads.shape(), dtype);
  report("copy [N,H,32]->[H,N,32]", shape, dtype, 2 * bytes, [&] { table().copy(heads, moved); });
  const Tensor turned = view::transpose(x, 0, 1);
  Tensor transposed = Tensor::empty(turned.shape(), dtype);
  report("copy transpose", shape, dtype, 2 * bytes, [&] { table().copy(turned, transposed); });
  Tensor other = Tensor::empty(shape, dtype == DType::f32 ? DType::bf16 : DType::f32);
  report("cast f32<->16 bit", shape, dtype, bytes + other.bytes(), [&] { table().copy(x, other); });
  report("add", shape, dtype, 3 * bytes, [&] { table().binary(Binary::add, x, dy, y); });
  const Tensor bias = view::expand(row, shape), scalar = view::expand(view::slice(row, 0, 0, 1), shape);
  report("add bias", shape, dtype, 2 * bytes, [&] { table().binary(Binary::add, x, bias, y); });
  report("multiply scalar", shape, dtype, 2 * bytes, [&] { table().binary(Binary::multiply, x, scalar, y); });
  report("axpby", shape, dtype, 3 * bytes, [&] { table().axpby(0.5, x, 0.5, y); });
  for (const auto& [name, op] :
       {std::pair{"gelu", Unary::gelu}, {"gelu_tanh", Unary::gelu_tanh}, {"silu", Unary::silu}}) {
    report(name, shape, dtype, 2 * bytes, [&, op = op] { table().unary(op, x, y); });
    report(std::string(name) + " backward", shape, dtype, 3 * bytes,
           [&, op = op] { table().unary_backward(op, x, dy, y); });
  }
  report("dropout", shape, dtype, 2 * bytes, [&] { table().dropout(x, 0.1, 1, 2, {shape, {0, 0}}, y); });
  report("sum to columns", shape, dtype, bytes, [&] { table().reduce(Reduction::sum, x, sums); });
  report("sum to rows", shape, dtype, bytes, [&] { table().reduce(Reduction::sum, x, last); });
  report("sum of all", shape, dtype, bytes, [&] { table().reduce(Reduction::sum, x, all); });
  report("sum_squares", shape, dtype, bytes, [&] { (void)table().sum_squares({&x, 1}); });
}

void rows(const Shape& shape, DType dtype) {
  const Tensor x = random(shape, dtype), dy = random(shape, dtype), gamma = random({shape[1]}, dtype);
  Tensor y = Tensor::empty(shape, dtype), mean = Tensor::empty({shape[0]}), rstd = Tensor::empty({shape[0]});
  Tensor dgamma = Tensor::empty({shape[1]}), dbeta = Tensor::empty({shape[1]});
  const std::int64_t bytes = x.bytes();
  report("layer_norm", shape, dtype, 2 * bytes, [&] { table().layer_norm(x, gamma, gamma, 1e-5, y, mean, rstd); });
  report("layer_norm backward", shape, dtype, 3 * bytes,
         [&] { table().layer_norm_backward(x, gamma, mean, rstd, dy, {}, y, dgamma, dbeta); });
  report("rms_norm", shape, dtype, 2 * bytes, [&] { table().rms_norm(x, gamma, 1e-5, y, rstd); });
  report("rms_norm backward", shape, dtype, 3 * bytes,
         [&] { table().rms_norm_backward(x, gamma, rstd, dy, {}, y, dgamma); });
  report("softmax", shape, dtype, 2 * bytes, [&] { table().softmax(x, y); });
  report("softmax backward", shape, dtype, 3 * bytes, [&] { table().softmax_backward(x, dy, y); });
}

void vocabulary(std::int64_t tokens, std::int64_t vocab, std::int64_t width, DType dtype) {
  const Tensor logits = random({tokens, vocab}, dtype), targets = random_ids(tokens, vocab);
  Tensor gradient = Tensor::empty({tokens, vocab}, dtype), top = Tensor::empty({tokens}), sum = Tensor::empty({tokens});
  Tensor at_target = Tensor::empty({tokens}), total = Tensor::empty({tokens});
  const Tensor dloss = Tensor::full({}, 1);
  const VocabSlice slice{0, vocab, vocab};
  report("cross_entropy stats", logits.shape(), dtype, logits.bytes(),
         [&] { table().cross_entropy_stats(logits, targets, slice, top, sum, at_target, total); });
  report("cross_entropy backward", logits.shape(), dtype, 2 * logits.bytes(),
         [&] { table().cross_entropy_backward(logits, targets, slice, top, sum, 0, 1, dloss, gradient); });
  report("cross_entropy in one pass", logits.shape(), dtype, 2 * logits.bytes(),
         [&] { table().cross_entropy_one_pass(logits, targets, slice, 0, 1, top, sum, at_target, total, gradient); });
  const Tensor weight = random({vocab, width}, dtype);
  Tensor y = Tensor::empty({tokens, width}, dtype), dweight = Tensor::zeros({vocab, width});
  report("embedding", y.shape(), dtype, 2 * y.bytes(), [&] { table().embedding(weight, targets, 0, y); });
  report("embedding backward", y.shape(), dtype, y.bytes() + 8 * y.count(),
         [&] { table().embedding_backward(y, targets, 0, dweight); });
}

void optimizers(std::int64_t count, DType low_dtype) {
  const Tensor gradient = random({count});
  const Tensor weight = random({count}), m = random({count}), v = Tensor::full({count}, 1);
  const Tensor low = low_dtype == DType::f32 ? Tensor() : Tensor::empty({count}, low_dtype);
  const std::int64_t copy_bytes = low.defined() ? low.bytes() : 0;
  const AdamWUpdate adamw{gradient, weight, m, v, low, 0.1};
  const SgdUpdate sgd{gradient, weight, m, low, 0.1};
  report("adamw", {count}, low_dtype, 28 * count + copy_bytes, [&] {
    table().adamw({.lr = 1e-6, .step = 10}, {&adamw, 1});
  });
  report("sgd momentum", {count}, low_dtype, 20 * count + copy_bytes, [&] {
    table().sgd({.lr = 1e-6, .momentum = 0.9}, {&sgd, 1});
  });
}

/// Throws if no kernel's name contains the filter. Collects the names in a round over the smallest tensors.
void require_known_name() {
  only_names = true;
  elementwise({1, 32}, DType::f32);
  rows({1, 1}, DType::f32);
  vocabulary(1, 1, 1, DType::f32);
  optimizers(1, DType::f32);
  only_names = false;
  if (std::none_of(known_names.begin(), known_names.end(), [](const auto& n) { return n.find(name_filter) != n.npos; }))
    fail(ExitCode::usage, "kernel_bench", "no kernel has {} in its name; expected a part of one of: {}",
         in_quotes(name_filter), fmt::join(known_names, ", "));
}

void measure_all() {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Shape& shape : {Shape{768, 128}, Shape{768, 512}, Shape{8192, 3072}}) elementwise(shape, dtype);
    for (const Shape& shape : {Shape{768, 128}, Shape{256, 768}, Shape{8192, 768}}) rows(shape, dtype);
    vocabulary(768, 96, 128, dtype);
    vocabulary(512, 50304, 768, dtype);
    optimizers(800'000, dtype);
    optimizers(32'000'000, dtype);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Time and bandwidth of the memory-bound CPU kernels");
  int team = threads();
  app.add_option("threads", team, "Threads")->check(CLI::Range(1, bench::most_threads))->capture_default_str();
  app.add_option("name", name_filter, "Only kernels whose name has this in it");
  bench::MarkdownFile markdown;
  markdown.declare(app);
  return bench::run_benchmark(app, argc, argv, [&] {
    require_known_name();
    markdown.require_writable();
    set_threads(team);
    const OwnCores own_cores(0, team);
    const bench::MemorySpeed memory = bench::memory_speed(team);
    memory_gigas = std::max(memory.read, memory.update) * 1e-9;
    fmt::print("{} threads; memory {:.1f} GB/s\n", threads(), memory_gigas);
    measure_all();
    markdown.write(markdown_table.text());
  });
}
