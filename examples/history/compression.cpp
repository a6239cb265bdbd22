// Gradients that are compressed before they are sent. What is left out is not lost: each worker adds it to its next
// gradient (error feedback: Seide et al. 2014; Karimireddy et al. 2019, "Error Feedback Fixes SignSGD").
//
//   top-k      the largest elements, with their places (Aji and Heafield 2017, "Sparse Communication for Distributed
//              Gradient Descent")
//   1 bit      the signs, and the mean size (Seide et al. 2014, "1-Bit Stochastic Gradient Descent")
//   PowerSGD   two thin matrices whose product is near the gradient, found by one step of a power iteration. Workers'
//              matrices can be added, so an all-reduce serves (Vogels et al. 2019, "PowerSGD: Practical Low-Rank
//              Gradient Compression")
//
// Read next: docs/history.md.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "autograd/ops.h"
#include "examples/history/history.h"

namespace trireme::history {
namespace {

/// The mean over workers of what each has compressed of `g` [P]; `kept` [P]: what this worker's message says.
using Compress = std::function<Tensor(ProcessGroup& world, const Tensor& g, Tensor& kept)>;

Tensor top_k(ProcessGroup& world, const Tensor& g, Tensor& kept) {
  const std::int64_t k = std::max<std::int64_t>(1, g.count() / 100);
  std::vector<std::int32_t> places(static_cast<std::size_t>(g.count()));
  std::iota(places.begin(), places.end(), 0);
  const auto values = g.span<float>();
  const auto larger = [&](std::int32_t a, std::int32_t b) {
    return std::abs(values[static_cast<std::size_t>(a)]) > std::abs(values[static_cast<std::size_t>(b)]);
  };
  std::nth_element(places.begin(), places.begin() + k - 1, places.end(), larger);
  Tensor index = Tensor::empty({k}, DType::i32), value = Tensor::empty({k});
  for (std::int64_t i = 0; i < k; ++i) {
    const std::int32_t place = places[static_cast<std::size_t>(i)];
    index.data<std::int32_t>()[i] = place;
    value.data<float>()[i] = kept.data<float>()[place] = values[static_cast<std::size_t>(place)];
  }
  const std::int64_t n = world.size();
  const Tensor all_index = Tensor::empty({n, k}, DType::i32), all_value = Tensor::empty({n, k});
  world.all_gather(index, all_index).wait();
  world.all_gather(value, all_value).wait();
  Tensor sum = Tensor::zeros({g.count()});
  for (std::int64_t i = 0; i < n * k; ++i)
    sum.data<float>()[all_index.data<std::int32_t>()[i]] += all_value.data<float>()[i];
  return sum * (1.0 / static_cast<double>(n));
}

Tensor one_bit(ProcessGroup& world, const Tensor& g, Tensor& kept) {
  const std::int64_t bytes = (g.count() + 7) / 8, n = world.size();
  const double size = mean(abs(g)).item();
  Tensor bits = Tensor::zeros({bytes + 4}, DType::u8);  // the signs, then the size
  for (std::int64_t i = 0; i < g.count(); ++i) {
    const bool positive = g.data<float>()[i] > 0;
    kept.data<float>()[i] = static_cast<float>(positive ? size : -size);
    if (positive) bits.data<std::uint8_t>()[i / 8] |= static_cast<std::uint8_t>(1U << (i % 8));
  }
  const auto own_size = static_cast<float>(size);
  std::memcpy(bits.data<std::uint8_t>() + bytes, &own_size, 4);
  const Tensor all = Tensor::empty({n, bytes + 4}, DType::u8);
  world.all_gather(bits, all).wait();
  Tensor sum = Tensor::zeros({g.count()});
  for (std::int64_t rank = 0; rank < n; ++rank) {
    const std::uint8_t* theirs = all.data<std::uint8_t>() + rank * (bytes + 4);
    float scale = 0;
    std::memcpy(&scale, theirs + bytes, 4);
    for (std::int64_t i = 0; i < g.count(); ++i)
      sum.data<float>()[i] += (theirs[i / 8] >> (i % 8) & 1) != 0 ? scale : -scale;
  }
  return sum * (1.0 / static_cast<double>(n));
}

/// Makes the columns of `m` [R, r] orthonormal (Gram-Schmidt).
void orthonormalise(Tensor& m) {
  const std::int64_t rows = m.size(0), columns = m.size(1);
  float* x = m.data<float>();
  for (std::int64_t c = 0; c < columns; ++c) {
    for (std::int64_t before = 0; before <= c; ++before) {
      double dot = 0;
      for (std::int64_t r = 0; r < rows; ++r) dot += static_cast<double>(x[r * columns + c]) * x[r * columns + before];
      const double factor = before == c ? 1 / std::sqrt(dot + 1e-20) - 1 : -dot;
      for (std::int64_t r = 0; r < rows; ++r)
        x[r * columns + c] += static_cast<float>(factor * x[r * columns + before]);
    }
  }
}

/// The whole gradient as one matrix, as square as it can be; `q` [C, r] is kept from step to step.
struct PowerSgd {
  Tensor q;
  Tensor operator()(ProcessGroup& world, const Tensor& g, Tensor& kept) {
    constexpr std::int64_t rank = 4;
    const auto columns = static_cast<std::int64_t>(std::sqrt(static_cast<double>(g.count())));
    const std::int64_t rows = (g.count() + columns - 1) / columns;
    Tensor padded = Tensor::zeros({rows * columns});
    Tensor place = view::slice(padded, 0, 0, g.count());
    copy(g, place);
    const Tensor m = view::reshape(padded, {rows, columns});  // [R, C]
    if (!q.defined()) q = Tensor::randn({columns, rank}, 5, 0);
    Tensor p = contiguous(matmul(m, q));  // [R, r]
    world.all_reduce(p, ReduceOp::sum, Launch::lazy, SumOrder::any).wait();
    orthonormalise(p);
    const Tensor own = contiguous(matmul(contiguous(view::transpose(m, 0, 1)), p));  // [C, r]
    q = clone(own);
    world.all_reduce(q, ReduceOp::sum, Launch::lazy, SumOrder::any).wait();
    q = q * (1.0 / world.size());
    const auto product = [&](const Tensor& right) {
      const Tensor whole = contiguous(matmul(p, contiguous(view::transpose(right, 0, 1))));  // [R, C]
      return view::slice(view::reshape(whole, {rows * columns}), 0, 0, g.count());
    };
    copy(product(own), kept);
    return contiguous(product(q));
  }
};

void train(ProcessGroup& world, const Compress& compress, int steps, Log& log) {
  Worker worker(world.rank(), world.size());
  if (world.rank() == 0) log.note(worker.loss());
  Tensor w = worker.weights(), left_out = Tensor::zeros({worker.size()});
  for (int step = 0; step < steps; ++step) {
    const Tensor g = contiguous(worker.gradient() + left_out);  // [P]
    Tensor kept = Tensor::zeros({g.count()});
    const Tensor mean_of_all = compress(world, g, kept);
    left_out = g - kept;
    w = w - mean_of_all * learning_rate;
    worker.set_weights(w);
    if (world.rank() == 0 && step % log_every == log_every - 1) log.note(worker.loss());
  }
}

}  // namespace

std::vector<Curve> compression(const Setting& setting) {
  std::vector<Curve> curves = {synchronous(setting)};
  const std::vector<std::pair<std::string, std::function<Compress()>>> methods = {
      {"top 1 % of the elements", [] { return Compress(top_k); }},
      {"1 bit for each element", [] { return Compress(one_bit); }},
      {"PowerSGD of rank 4", [] { return Compress(PowerSgd()); }}};
  for (const auto& [name, make] : methods)
    curves.push_back(measured(
        setting, name, setting.workers,
        [&](const std::shared_ptr<ProcessGroup>& world, Log& log) { train(*world, make(), setting.steps, log); }));
  return curves;
}

}  // namespace trireme::history
