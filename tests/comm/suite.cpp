#include "tests/comm/suite.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <vector>

#include "core/random.h"

namespace trireme::testing {
namespace {

constexpr std::array dtypes = {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8};

// Small whole numbers, so that sums over 8 ranks are exact in every dtype.
double value(int rank, std::int64_t i) { return static_cast<double>((rank * 7 + i * 3) & 15); }

/// Makes the tensor on the host and copies it to `device`: no kernel of the device is launched.
Tensor make(const Shape& shape, DType dtype, const std::function<double(std::int64_t)>& f,
            Device device = Device::cpu) {
  Tensor x = Tensor::empty(shape, dtype);
  visit_any(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto values = x.span<T>();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = T(static_cast<float>(f(static_cast<std::int64_t>(i))));
  });
  return x.to(device);
}

Tensor full(const Shape& shape, double value, DType dtype, Device device) {
  return Tensor::full(shape, value, dtype).to(device);
}

double element(const Tensor& x, std::int64_t i) {
  return view::reshape(x, {x.count(), 1}).as_strided({1}, {1}, i).item();
}

void expect(const char* what, const ProcessGroup& group, const Tensor& tensor,
            const std::function<double(std::int64_t)>& f) {
  const Tensor x = tensor.to(Device::cpu);
  const Tensor wanted = make({x.count()}, x.dtype(), f);
  if (x.count() == 0 || std::memcmp(wanted.raw(), x.raw(), static_cast<std::size_t>(x.bytes())) == 0) return;
  const auto* const got = static_cast<const std::byte*>(x.raw());
  const auto* const bits = static_cast<const std::byte*>(wanted.raw());
  const std::size_t size = size_of(x.dtype());
  for (std::int64_t i = 0; i < x.count(); ++i) {  // finds the element; 0 and -0 differ too
    const std::size_t at = static_cast<std::size_t>(i) * size;
    verify(std::memcmp(got + at, bits + at, size) == 0, "{} of {} {} on rank {} of {}: element {} is {}, expected {}",
           what, x.count(), name(x.dtype()), group.rank(), group.size(), i, element(x, i), element(wanted, i));
  }
}

void check_reductions(ProcessGroup& group, Device device, DType dtype, std::int64_t count, Launch launch) {
  const int n = group.size(), me = group.rank(), root = n - 1;
  const auto mine = [&](std::int64_t i) { return value(me, i); };
  const auto total = [&](std::int64_t i) {
    double sum = 0;
    for (int r = 0; r < n; ++r) sum += value(r, i);
    return sum;
  };
  Tensor x = make({count}, dtype, mine, device);
  group.all_reduce(x, ReduceOp::sum, launch).wait();
  expect("all_reduce", group, x, total);

  x = make({count}, dtype, mine, device);
  group.all_reduce(x, ReduceOp::max, launch).wait();
  expect("all_reduce max", group, x, [&](std::int64_t i) {
    double largest = 0;
    for (int r = 0; r < n; ++r) largest = std::max(largest, value(r, i));
    return largest;
  });

  x = make({count}, dtype, mine, device);
  group.reduce(x, root, launch).wait();
  if (me == root) {
    expect("reduce", group, x, total);
  } else {
    expect("reduce, not the root", group, x, mine);
  }

  x = make({n, count}, dtype, mine, device);
  Tensor y = Tensor::empty({count}, dtype, device);
  group.reduce_scatter(x, y, launch).wait();
  expect("reduce_scatter", group, y, [&](std::int64_t i) { return total(me * count + i); });
}

void check_moves(ProcessGroup& group, Device device, DType dtype, std::int64_t count, Launch launch) {
  const int n = group.size(), me = group.rank(), root = n / 2;
  const auto mine = [&](std::int64_t i) { return value(me, i); };
  const auto stacked = [&](std::int64_t i) { return value(static_cast<int>(i / count), i % count); };
  const Tensor x = make({count}, dtype, mine, device);
  Tensor y = Tensor::empty({n, count}, dtype, device);
  group.all_gather(x, y, launch).wait();
  expect("all_gather", group, y, stacked);

  y = me == root ? full({n, count}, 0.0, dtype, device) : Tensor();
  group.gather(x, y, root, launch).wait();
  if (me == root) expect("gather", group, y, stacked);

  const Tensor whole = make({n, count}, dtype, mine, device);
  y = Tensor::empty({n, count}, dtype, device);
  group.all_to_all(whole, y, launch).wait();
  expect("all_to_all", group, y,
         [&](std::int64_t i) { return value(static_cast<int>(i / count), me * count + i % count); });

  y = Tensor::empty({count}, dtype, device);
  group.scatter(me == root ? whole : Tensor(), y, root, launch).wait();
  expect("scatter", group, y, [&](std::int64_t i) { return value(root, me * count + i); });

  Tensor everywhere = make({count}, dtype, mine, device);
  group.broadcast(everywhere, root, launch).wait();
  expect("broadcast", group, everywhere, [&](std::int64_t i) { return value(root, i); });
}

float random_value(int rank, std::int64_t i) {
  return random_uniform(17, static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(i)) - 0.5F;
}

template <class T>
void check_bits_of(ProcessGroup& group, Device device, std::int64_t count) {
  const int n = group.size();
  const auto in_rank_order = [&](std::int64_t i) {  // inputs are rounded to T before they are added
    float sum = static_cast<float>(T(random_value(0, i)));
    for (int r = 1; r < n; ++r) sum += static_cast<float>(T(random_value(r, i)));
    return static_cast<double>(sum);
  };
  for (const Launch launch : {Launch::lazy, Launch::background}) {
    Tensor x = make(
        {count}, dtype_of<T>, [&](std::int64_t i) { return random_value(group.rank(), i); }, device);
    group.all_reduce(x, ReduceOp::sum, launch).wait();
    expect("all_reduce of random values", group, x, in_rank_order);
  }
  const Tensor whole = make(
      {n, count}, dtype_of<T>, [&](std::int64_t i) { return random_value(group.rank(), i); }, device);
  Tensor y = Tensor::empty({count}, dtype_of<T>, device);
  group.reduce_scatter(whole, y).wait();
  expect("reduce_scatter of random values", group, y,
         [&](std::int64_t i) { return in_rank_order(group.rank() * count + i); });
}

}  // namespace

void check_collectives(ProcessGroup& group, Device device) {
  int turn = 0;
  for (const DType dtype : dtypes) {
    const auto long_one = static_cast<std::int64_t>(40000 / size_of(dtype)) + 1;
    for (const std::int64_t count :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{37}, std::int64_t{1000}, long_one}) {
      const Launch launch = ++turn % 3 == 0 ? Launch::background : Launch::lazy;
      check_reductions(group, device, dtype, count, launch);
      check_moves(group, device, dtype, count, launch);
      if (turn % 4 == 0) group.barrier();
    }
  }
}

void check_bits(ProcessGroup& group, Device device) {
  for (const std::int64_t count : {63, 9001}) {
    check_bits_of<float>(group, device, count);
    check_bits_of<bf16>(group, device, count);
    check_bits_of<f16>(group, device, count);
  }
}

void check_bf16_accumulation(ProcessGroup& group, Device device) {
  // Within one operation: 256 + 1 + 1 + ... (n - 1 ones). bf16 alone would lose each 1 (its step at 256 is 2).
  const int n = group.size();
  Tensor x = full({3}, group.rank() == 0 ? 256.0 : 1.0, DType::bf16, device);
  group.all_reduce(x).wait();
  const auto rounded = static_cast<float>(bf16(256.0F + static_cast<float>(n - 1)));
  expect("all_reduce of 256 and ones", group, x, [&](std::int64_t) { return rounded; });
}

void check_bf16_between_operations(ProcessGroup& group) {
  // Each result is a bf16 tensor: 1 + 2^-9 rounds to 1 each time. Sums over micro-batches must therefore be kept in
  // f32, where 4096 steps of 2^-9 reach 9 exactly.
  const int steps = 4096;
  Tensor low = Tensor::full({1}, 1.0, DType::bf16), high = Tensor::full({1}, 1.0, DType::f32);
  for (int step = 0; step < steps; ++step) {
    const double small = group.rank() == 0 ? 0x1p-9 : 0.0;
    Tensor a = Tensor::full({1}, small, DType::bf16), b = Tensor::full({1}, small, DType::f32);
    const Work first = group.all_reduce(a);
    group.all_reduce(b).wait();
    low.data<bf16>()[0] = bf16(static_cast<float>(low.data<bf16>()[0]) + static_cast<float>(a.data<bf16>()[0]));
    high.data<float>()[0] += b.data<float>()[0];
  }
  verify(low.item() == 1.0 && high.item() == 9.0, "1 + 4096 x 2^-9 is {} in bf16 and {} in f32; expected 1 and 9",
         low.item(), high.item());
}

void check_launches(ProcessGroup& group, Device device) {
  const int n = group.size();
  const double ranks = n * (n + 1) / 2.0;  // sum of rank + 1
  for (int round = 0; round < 20; ++round) {
    std::vector<Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 12; ++i) {
      const std::int64_t count = (i * 977) % 20000;
      tensors.push_back(full({count}, (group.rank() + 1) * (i + 1), DType::f32, device));
      works.push_back(
          group.all_reduce(tensors.back(), ReduceOp::sum, (i + round) % 3 == 0 ? Launch::background : Launch::lazy));
    }
    if (round % 2 == 0) std::reverse(works.begin(), works.end());
    works[5] = Work();  // a dropped Work waits
    works[3].wait();
    works[3].wait();
    const Work copy = works[7];
    works[7] = Work();
    works.clear();
    // `copy` shares the operation of works[7]. It is complete, because later operations of the group are.
    const std::size_t shared = round % 2 == 0 ? 4 : 7;
    expect("mixed all_reduce", group, tensors[shared],
           [&](std::int64_t) { return ranks * static_cast<double>(shared + 1); });
    Work(copy).wait();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      expect("mixed all_reduce", group, tensors[i], [&](std::int64_t) { return ranks * static_cast<double>(i + 1); });
    }
  }
  Tensor x = full({100}, 1.0, DType::f32, device);
  Work work = group.all_reduce(x, ReduceOp::sum, Launch::background);
  work.wait();
  verify(work.done(), "a Work that was waited for is not done");
  verify(Work().done(), "an empty Work is not done");
}

void check_messages(ProcessGroup& group, Device device) {
  const int n = group.size(), me = group.rank();
  const int next = (me + 1) % n, previous = (me + n - 1) % n;
  for (const std::int64_t count : {0, 1, 1000, 300001}) {  // both directions at once, sends first on every rank
    const Tensor x = make(
        {count}, DType::f32, [&](std::int64_t i) { return value(me, i); }, device);
    Work forward = group.send_final(x, next, 1), backward = group.send(x, previous, 2);
    Tensor a = Tensor::empty({count}, DType::f32, device), b = Tensor::empty({count}, DType::f32, device);
    Work from_previous = group.recv(a, previous, 1), from_next = group.recv(b, next, 2);
    from_next.wait();
    from_previous.wait();
    forward.wait();
    backward.wait();
    expect("message from the previous rank", group, a, [&](std::int64_t i) { return value(previous, i); });
    expect("message from the next rank", group, b, [&](std::int64_t i) { return value(next, i); });
  }
  // Messages of one tag arrive in order, also if their recvs are waited for in reverse order. x may change once its
  // send is complete.
  Tensor x = Tensor::empty({5}, DType::i64, device);
  for (int k = 0; k < 50; ++k) {
    copy(Tensor::full({5}, 100.0 * me + k, DType::i64), x);
    group.send(x, next, 3).wait();
  }
  std::vector<Tensor> messages;
  std::vector<Work> works;
  for (int k = 0; k < 50; ++k) {
    messages.push_back(full({5}, 0.0, DType::i64, device));
    works.push_back(group.recv(messages.back(), previous, 3));
  }
  while (!works.empty()) {
    works.back().wait();
    works.pop_back();
  }
  for (int k = 0; k < 50; ++k) {
    expect("messages of one tag", group, messages[static_cast<std::size_t>(k)],
           [&](std::int64_t) { return 100.0 * previous + k; });
  }
}

void check_subgroups(ProcessGroup& group, Device device) {
  const int n = group.size();
  if (n < 2) return;
  const int me = group.world_rank(group.rank());
  std::vector<int> all = group.members(), backwards(all.rbegin(), all.rend());
  std::vector<int> neighbours, halves;  // like the tp and dp axes of a [n / 2, 2] mesh
  for (int place = 0; place < n; ++place) {
    if (place / 2 == group.rank() / 2) neighbours.push_back(group.world_rank(place));
    if (place % 2 == group.rank() % 2) halves.push_back(group.world_rank(place));
  }
  const auto tp = group.subgroup(neighbours, "tp"), dp = group.subgroup(halves, "dp");
  const auto reversed = group.subgroup(backwards, "reversed");
  const auto again = reversed->subgroup(neighbours, "tp");  // the same members and name, but another group
  verify(reversed->rank() == n - 1 - group.rank() && reversed->world_rank(0) == all.back(),
         "subgroup ignores the order given");

  const auto sum_of = [](const std::vector<int>& members) {
    return std::accumulate(members.begin(), members.end(), 0.0, [](double sum, int rank) { return sum + rank + 1; });
  };
  for (const std::int64_t count : {3, 30000}) {
    for (const Launch launch : {Launch::background, Launch::lazy}) {
      std::array<Tensor, 4> x;
      for (Tensor& tensor : x) tensor = full({count}, me + 1, DType::f32, device);
      Work a = tp->all_reduce(x[0], ReduceOp::sum, launch), b = dp->all_reduce(x[1], ReduceOp::sum, launch);
      Work c = reversed->all_reduce(x[2], ReduceOp::sum, launch), d = again->all_reduce(x[3], ReduceOp::sum, launch);
      for (Work* work : {&a, &b, &c, &d}) work->wait();
      for (const std::size_t i : {0U, 3U})
        expect("tp sum", *tp, x[i], [&](std::int64_t) { return sum_of(neighbours); });
      expect("dp sum", *dp, x[1], [&](std::int64_t) { return sum_of(halves); });
      expect("sum over all", *reversed, x[2], [&](std::int64_t) { return sum_of(all); });
    }
  }
  Tensor y = Tensor::empty({n, 1}, DType::i32, device);
  reversed->all_gather(full({1}, me, DType::i32, device), y).wait();
  expect("all_gather in the subgroup's order", *reversed, y,
         [&](std::int64_t i) { return backwards[static_cast<std::size_t>(i)]; });
}

void check_all(ProcessGroup& group, Device device) {
  check_collectives(group, device);
  check_bits(group, device);
  check_bf16_accumulation(group, device);
  check_any_order(group, device);
  verify(group.fastest_order() == SumOrder::any || sums_in_rank_order(group, SumOrder::any, device),
         "other bits than in rank order, in a group that has no other order");
  check_launches(group, device);
  check_messages(group, device);
  check_subgroups(group, device);
}

}  // namespace trireme::testing
