// Sums of gradients against closed forms, for every placement, bucket size and number of micro-batches. Overlap changes
// no bit.
#include <doctest/doctest.h>

#include <algorithm>

#include "core/random.h"
#include "tests/grad_sync/support.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

/// Prime sizes, sizes at and next to the padding, and every kind of placement that a parameter may have.
ParameterList make_parameters() {
  return {make_parameter("a", {7}),
          make_parameter("b", {3, 5}, placement::S(0)),
          make_parameter("c", {16}, placement::R),
          make_parameter("d", {64, 33}),
          make_parameter("e", {1}, placement::R, placement::I),
          make_parameter("f", {13, 2}, placement::S(1), placement::I),
          make_parameter("g", {17}, placement::R)};
}

struct Setup {
  const char* mesh = "dp=1";
  std::int64_t bucket_bytes = GradSync::default_bucket_bytes;
  int microbatches = 1;
  bool overlap = true;
};

/// One step: every micro-batch adds ramps to every gradient.
GradSyncReport run_step(GradSync& sync, const ParameterList& parameters, int rank, const Setup& setup) {
  sync.zero_grad();
  for (int m = 0; m < setup.microbatches; ++m) {
    Tensor loss = Tensor::zeros({});
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      loss = loss + weighted_sum(*parameters[i], ramp(parameters[i]->local.shape(), factor(i, rank, m)));
    }
    if (setup.overlap && m == setup.microbatches - 1) sync.last_microbatch();
    backward(loss);
  }
  return sync.finish();
}

/// Whether every gradient on every rank equals the closed form, in each of two steps.
bool sums_are_right(const Setup& setup) {
  const MeshShape shape = parse_mesh(setup.mesh, 0);
  std::vector<int> wrong(static_cast<std::size_t>(shape.ranks()), 0);
  run_thread_ranks(shape.ranks(), 1, deadline, [&](const std::shared_ptr<ProcessGroup>& world) {
    const DeviceMesh mesh(world, shape);
    const ParameterList parameters = make_parameters();
    for (const ParameterPtr& p : parameters) p->name += fmt::format(" of stage {}", mesh.coord(Axis::pp));
    GradSync sync(parameters, mesh, setup.bucket_bytes);
    for (int step = 0; step < 2; ++step) {
      run_step(sync, parameters, mesh.rank(), setup);
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const double expected = expected_factor(mesh, *parameters[i], i, setup.microbatches);
        const bool right = same_bits(parameters[i]->grad(), ramp(parameters[i]->local.shape(), expected));
        wrong[static_cast<std::size_t>(mesh.rank())] += right ? 0 : 1;
      }
    }
  });
  return std::all_of(wrong.begin(), wrong.end(), [](int count) { return count == 0; });
}

}  // namespace

TEST_CASE("every gradient is summed over the axes on which its parameter is R, and over no other") {
  for (const char* mesh : {"dp=1", "dp=2", "dp=3", "tp=2", "dp=2,tp=2", "dp=2,pp=2", "dp=2,tp=2,pp=2"}) {
    for (const std::int64_t bucket_bytes : {std::int64_t{1}, std::int64_t{512}, GradSync::default_bucket_bytes}) {
      for (const int microbatches : {1, 2, 4}) {
        for (const bool overlap : {true, false}) {
          CAPTURE(mesh);
          CAPTURE(bucket_bytes);
          CAPTURE(microbatches);
          CAPTURE(overlap);
          CHECK(sums_are_right({mesh, bucket_bytes, microbatches, overlap}));
        }
      }
    }
  }
}

TEST_CASE("overlap and bucket size change no bit, and what is reported fits") {
  constexpr int ranks = 3;
  // Random gradients: a sum in another order would differ in its last bits.
  const auto run = [](const Setup& setup, std::vector<GradSyncReport>& reports, int& buckets) {
    std::vector<Tensor> gradients;
    reports.assign(ranks, {});
    run_thread_ranks(ranks, 1, deadline, [&](const std::shared_ptr<ProcessGroup>& world) {
      const DeviceMesh mesh(world, parse_mesh("dp=3", ranks));
      ParameterList parameters;
      for (int i = 0; i < 9; ++i) parameters.push_back(make_parameter(fmt::format("p{}", i), {37, 11 + i}));
      GradSync sync(parameters, mesh, setup.bucket_bytes);
      for (int m = 0; m < setup.microbatches; ++m) {
        Tensor loss = Tensor::zeros({});
        for (const auto& parameter : parameters) {
          const std::uint64_t stream = stream_of(parameter->name) + static_cast<std::uint64_t>(100 * mesh.rank() + m);
          loss = loss + weighted_sum(*parameter, random(parameter->local.shape(), stream, DType::f32));
        }
        if (setup.overlap && m == setup.microbatches - 1) sync.last_microbatch();
        backward(loss);
      }
      reports[static_cast<std::size_t>(mesh.rank())] = sync.finish();
      if (mesh.rank() == 2) {
        buckets = sync.buckets();
        for (const auto& parameter : parameters) gradients.push_back(clone(parameter->grad()));
      }
    });
    return gradients;
  };
  for (const int microbatches : {1, 2, 4}) {
    std::vector<GradSyncReport> reports;
    int buckets = 0;
    const std::vector<Tensor> reference =
        run({"dp=3", GradSync::default_bucket_bytes, microbatches, false}, reports, buckets);
    CHECK(buckets == 1);
    for (const std::int64_t bucket_bytes : {std::int64_t{1}, std::int64_t{4096}, GradSync::default_bucket_bytes}) {
      const std::vector<Tensor> overlapped = run({"dp=3", bucket_bytes, microbatches, true}, reports, buckets);
      for (std::size_t i = 0; i < reference.size(); ++i) CHECK(same_bits(overlapped[i], reference[i]));
      CHECK(buckets == (bucket_bytes == 1 ? 9 : bucket_bytes == 4096 ? 7 : 1));
      for (const GradSyncReport& report : reports) {
        CHECK(report.buckets_overlapped == buckets);
        std::int64_t bytes = 0;
        for (std::int64_t i = 0; i < 9; ++i) bytes += (37 * (11 + i) + 15) / 16 * 64;  // each starts on a 64-byte line
        CHECK(report.bytes == bytes);
      }
    }
  }
}

TEST_CASE("ranks whose gradients become ready in different orders do not deadlock") {
  constexpr int ranks = 4;
  constexpr std::size_t count = 8;
  for (const std::int64_t bucket_bytes : {std::int64_t{1}, std::int64_t{300}}) {
    std::vector<int> wrong(ranks, 0);
    run_thread_ranks(ranks, 1, deadline, [&](const std::shared_ptr<ProcessGroup>& world) {
      const DeviceMesh mesh(world, parse_mesh("dp=4", ranks));
      ParameterList parameters;
      for (std::size_t i = 0; i < count; ++i) parameters.push_back(make_parameter(fmt::format("p{}", i), {19}));
      GradSync sync(parameters, mesh, bucket_bytes);
      Tensor loss = Tensor::zeros({});
      for (std::size_t i = 0; i < count; ++i) {  // rank 0: in order; rank 3: in reverse; the others: rotated
        const auto rank = static_cast<std::size_t>(mesh.rank());
        const std::size_t which = rank == 3 ? count - 1 - i : (i + 3 * rank) % count;
        loss = loss + weighted_sum(*parameters[which], ramp({19}, factor(which, mesh.rank(), 0)));
      }
      sync.last_microbatch();
      backward(loss);
      sync.finish();
      for (std::size_t i = 0; i < count; ++i) {
        const double expected = expected_factor(mesh, *parameters[i], i, 1);
        wrong[static_cast<std::size_t>(mesh.rank())] += same_bits(parameters[i]->grad(), ramp({19}, expected)) ? 0 : 1;
      }
    });
    CHECK(wrong == std::vector<int>(ranks, 0));
  }
}

TEST_CASE("a parameter without a gradient, on all ranks or on one, counts as zero") {
  std::vector<std::vector<Tensor>> gradients(2);
  std::vector<int> overlapped(2);
  run_thread_ranks(2, 1, deadline, [&](const std::shared_ptr<ProcessGroup>& world) {
    const DeviceMesh mesh(world, parse_mesh("dp=2", 2));
    const auto rank = static_cast<std::size_t>(mesh.rank());
    const ParameterList parameters = {make_parameter("unused", {5}), make_parameter("of rank 1", {5}),
                                      make_parameter("used", {5})};
    GradSync sync(parameters, mesh, 1);
    Tensor loss = weighted_sum(*parameters[2], ramp({5}, 1));
    if (rank == 1) loss = loss + weighted_sum(*parameters[1], ramp({5}, 2));
    sync.last_microbatch();
    backward(loss);
    overlapped[rank] = sync.finish().buckets_overlapped;
    for (const auto& parameter : parameters) gradients[rank].push_back(clone(parameter->grad()));
  });
  for (const auto& of_rank : gradients) {
    CHECK(same_bits(of_rank[0], Tensor::zeros({5})));
    CHECK(same_bits(of_rank[1], ramp({5}, 2)));
    CHECK(same_bits(of_rank[2], ramp({5}, 2)));
  }
  CHECK(overlapped == std::vector{1, 2});
}

TEST_CASE("one rank sends nothing") {
  const DeviceMesh mesh(self_group(), {});
  const ParameterList parameters = make_parameters();
  GradSync sync(parameters, mesh);
  const GradSyncReport report = run_step(sync, parameters, 0, {"dp=1", 0, 2, true});
  CHECK(report.bytes == 0);
  CHECK(report.buckets_overlapped == 0);
}

TEST_CASE("gradients are f32 views into buckets, counted as gradients, whatever the parameter's dtype") {
  const DeviceMesh mesh(self_group(), {});
  auto parameter = make_parameter("half", {6});
  parameter->local = Tensor::full({6}, 0.5, DType::bf16);
  require_grad(parameter->local);
  const std::int64_t before = MemoryPool::current()->use(MemoryCategory::gradients).live;
  GradSync sync({make_parameter("other", {2}), parameter}, mesh);
  CHECK(MemoryPool::current()->use(MemoryCategory::gradients).live - before == 128);
  CHECK(parameter->grad().dtype() == DType::f32);
  sync.zero_grad();
  for (int m = 0; m < 3; ++m) backward(sum(parameter->value() * Tensor::full({6}, 1.0 + 1.0 / 128, DType::bf16)));
  sync.finish();
  for (const float value : parameter->grad().span<float>())
    CHECK(value == 3 + 3.0F / 128);  // a bf16 sum would have rounded
}

TEST_CASE("a gradient completed twice in one backward is refused: its first part may have been sent") {
  const DeviceMesh mesh(self_group(), {});
  const ParameterList parameters = {make_parameter("twice", {2})};
  GradSync sync(parameters, mesh);
  sync.last_microbatch();
  parameters[0]->leaf().run_hooks();
  CHECK_THROWS_WITH_AS(parameters[0]->leaf().run_hooks(), doctest::Contains("twice was completed twice"), Error);
}

TEST_CASE("a GradSync that is gone leaves no hook behind") {
  const DeviceMesh mesh(self_group(), {});
  const ParameterList parameters = {make_parameter("p", {2})};
  {
    GradSync sync(parameters, mesh);
    sync.last_microbatch();
  }
  CHECK_NOTHROW(backward(weighted_sum(*parameters[0], ramp({2}, 1))));
}
