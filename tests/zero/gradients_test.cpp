// Sharded gradients against closed forms, for every placement, stage, bucket size and number of micro-batches. Each
// contribution arrives exactly once, whenever its bucket is sent.
#include "parallel/zero/gradients.h"

#include <algorithm>

#include "tests/support/sanitized.h"
#include "tests/zero/support.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

/// Uneven sizes, and every kind of placement that a parameter may have.
HandMade make_model() {
  using placement::I, placement::R, placement::S;
  HandMade model;
  model.begin_unit("first");
  model.add("a", {7});
  model.add("b", {3, 5}, {.tp = S(0)});
  model.add("c", {17}, {.tp = R});
  model.begin_unit("second");
  model.add("d", {64, 33});
  model.add("e", {5, 3}, {.ep = S(0)});
  model.add("f", {13, 2}, {.edp = I, .ep = I});
  model.unit = nullptr;
  model.add("g", {11});
  return model;
}

Tensor loss_of(const HandMade& model, const std::vector<std::size_t>& order, int rank, int microbatch) {
  Tensor loss = Tensor::zeros({});
  for (const std::size_t i : order) {
    const Parameter& p = *model.parameters[i];
    loss = loss + weighted_sum(p, ramp(p.local.shape(), factor(i, rank, microbatch)));
  }
  return loss;
}

std::vector<std::size_t> in_order(const HandMade& model) {
  std::vector<std::size_t> order(model.parameters.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  return order;
}

bool is_expected(const Zero& zero, const HandMade& model, const DeviceMesh& mesh, std::size_t i, int microbatches) {
  const Parameter& p = *model.parameters[i];
  const Tensor expected = ramp(p.local.shape(), expected_factor(mesh, p, i, microbatches));
  return same_bits(zero.gradient(i), zero.shards()[i]->part(expected));
}

}  // namespace

TEST_CASE("trap 17: stages 1 to 3 reduce every micro-batch exactly once, over the axes on which a parameter is R") {
  for (const char* text : {"dp=1", "dp=2", "dp=3", "dp=2,tp=2", "dp=2,pp=2", "cp=2,dp=2", "dp=4,ep=2", "dp=2,ep=2"}) {
    for (const std::int64_t bucket_bytes : {std::int64_t{1}, std::int64_t{512}, std::int64_t{1} << 20}) {
      if (sanitized && bucket_bytes != 512) continue;
      run_mesh(text, [&](const MeshPtr& mesh) {
        for (const int stage : {1, 2, 3}) {
          for (const int microbatches : {1, 2, 4}) {
            for (const bool overlap : {true, false}) {
              HandMade model = make_model();
              name_by_stage(model, *mesh);
              Zero zero(model.parameters, *model.units, *mesh, {.stage = stage, .bucket_bytes = bucket_bytes});
              for (int step = 0; step < 2; ++step) {
                zero.zero_grad();
                for (int m = 0; m < microbatches; ++m) {
                  if (overlap && m == microbatches - 1) zero.last_microbatch();
                  backward(loss_of(model, in_order(model), mesh->rank(), m));
                }
                zero.finish();
                for (std::size_t i = 0; i < model.parameters.size(); ++i)
                  CHECK_MESSAGE(is_expected(zero, model, *mesh, i, microbatches), text, " stage ", stage,
                                " micro-batches ", microbatches, " ", model.parameters[i]->name);
              }
            }
          }
        }
      });
    }
  }
}

TEST_CASE("hybrid sharding sums over all of data") {
  run_mesh("dp=4", [](const MeshPtr& mesh) {
    for (const int stage : {1, 2, 3}) {
      HandMade model = make_model();
      Zero zero(model.parameters, *model.units, *mesh, {.stage = stage, .shard_ranks = 2});
      zero.zero_grad();
      for (int m = 0; m < 3; ++m) {
        if (m == 2) zero.last_microbatch();
        backward(loss_of(model, in_order(model), mesh->rank(), m));
      }
      zero.finish();
      for (std::size_t i = 0; i < model.parameters.size(); ++i) {
        CHECK(is_expected(zero, model, *mesh, i, 3));
        const bool dense = gradient_axes(model.parameters[i]->placements, *mesh) == std::vector<Axis>{Axis::data};
        if (dense) CHECK(zero.shards()[i]->ranks() == 2);
      }
    }
  });
}

TEST_CASE("sums over copies start during backward, and miss nothing when more or fewer pieces come than expected") {
  constexpr int microbatches = 3;
  run_mesh("dp=4", [](const MeshPtr& mesh) {
    for (const int stage : {1, 2, 3}) {
      for (const int shard_ranks : {1, 2}) {
        for (const int expected : {0, 1, 2, microbatches, 7}) {
          HandMade model = make_model();
          for (int i = 0; i < 4; ++i) model.add(fmt::format("more{}", i), {4 + i});
          Zero zero(model.parameters, *model.units, *mesh,
                    {.stage = stage, .shard_ranks = shard_ranks, .bucket_bytes = 1});
          for (int step = 0; step < 2; ++step) {
            zero.zero_grad(expected);
            for (int m = 0; m < microbatches; ++m) {
              if (m + 1 == microbatches) zero.last_microbatch();
              backward(loss_of(model, in_order(model), mesh->rank(), m));
            }
            const GradSyncReport report = zero.finish();
            const auto copied = static_cast<int>(std::count_if(zero.buckets().begin(), zero.buckets().end(),
                                                               [](const auto& b) { return b.replicas != nullptr; }));
            CHECK(copied > 2);
            // At most as many buckets are in flight as the largest unit has; the sum over copies has started for all others.
            const int on_the_way = shard_ranks == 1 ? 0 : 3;
            if (stage == 1 || (expected > 0 && expected <= microbatches))
              CHECK(report.copies_overlapped >= copied - on_the_way);
            if (stage > 1 && expected == 7) CHECK(report.copies_overlapped == 0);
            for (std::size_t i = 0; i < model.parameters.size(); ++i)
              CHECK_MESSAGE(is_expected(zero, model, *mesh, i, microbatches), "stage ", stage, " shards over ",
                            shard_ranks, " expected ", expected, " ", model.parameters[i]->name);
          }
        }
      }
    }
  });
}

TEST_CASE("gradients that become ready in another order on each rank, or in parts, are all there") {
  run_mesh("dp=3", [](const MeshPtr& mesh) {
    HandMade model = make_model();
    Zero zero(model.parameters, *model.units, *mesh, {.stage = 2, .bucket_bytes = 1});
    zero.zero_grad();
    const std::size_t count = model.parameters.size();
    for (int m = 0; m < 3; ++m) {
      // In two backwards, as in a schedule that computes weight gradients later. Which half comes first differs.
      std::vector<std::size_t> halves[2];
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t which = (i + static_cast<std::size_t>(2 * mesh->rank())) % count;
        halves[(which + static_cast<std::size_t>(m)) % 2].push_back(which);
      }
      backward(loss_of(model, halves[0], mesh->rank(), m));
      backward(loss_of(model, halves[1], mesh->rank(), m));
    }
    zero.finish();
    for (std::size_t i = 0; i < count; ++i) CHECK(is_expected(zero, model, *mesh, i, 3));
  });
}

TEST_CASE("trap 15: a parameter that no operation of a rank, or of any, uses counts as zero") {
  run_mesh("dp=2", [](const MeshPtr& mesh) {
    for (const int stage : {1, 2, 3}) {
      HandMade model;
      for (const char* name : {"unused", "of rank 1", "used"}) model.add(name, {5});
      Zero zero(model.parameters, *model.units, *mesh, {.stage = stage, .bucket_bytes = 1});
      for (int step = 0; step < 2; ++step) {
        zero.zero_grad();
        zero.last_microbatch();
        backward(
            loss_of(model, mesh->rank() == 1 ? std::vector<std::size_t>{1, 2} : std::vector<std::size_t>{2}, 0, 0));
        zero.finish();
        CHECK(same_bits(zero.gradient(0), zero.shards()[0]->part(Tensor::zeros({5}))));
        CHECK(same_bits(zero.gradient(1), zero.shards()[1]->part(ramp({5}, factor(1, 0, 0)))));
        CHECK(same_bits(zero.gradient(2), zero.shards()[2]->part(ramp({5}, 2 * factor(2, 0, 0)))));
      }
    }
  });
}

TEST_CASE("trap 2: the norm counts each element once, with the same bits on every rank") {
  for (const char* text : {"dp=1", "dp=3", "dp=2,tp=2", "dp=2,pp=2", "dp=4,ep=2"}) {
    for (const int stage : {1, 2, 3}) {
      for (const int shard_ranks : {0, 2}) {
        if (shard_ranks == 2 && parse_mesh(text, 0).size(Axis::data) != 4) continue;
        Collected norms;
        run_mesh(text, [&](const MeshPtr& mesh) {
          using placement::R, placement::S;
          HandMade model;
          model.add("dense", {7, 3});
          model.add("summed over tp", {5}, {.tp = R});
          model.add("cut over tp", {11}, {.tp = S(0)});
          model.add("expert", {13}, {.ep = S(0)});
          model.add("tied", {17})->copy_of_earlier_stage = false;
          if (mesh->size(Axis::pp) > 1 && mesh->is_last(Axis::pp)) {
            model.parameters.back()->copy_of_earlier_stage = true;
          }
          name_by_stage(model, *mesh);
          Zero zero(model.parameters, *model.units, *mesh, {.stage = stage, .shard_ranks = shard_ranks});
          zero.zero_grad();
          zero.last_microbatch();
          Tensor loss = Tensor::zeros({});
          for (const ParameterPtr& p : model.parameters)
            loss = loss + weighted_sum(*p, Tensor::full(p->local.shape(), 1));
          backward(loss);
          zero.finish();
          norms.add("norm", Tensor::full({1}, zero.gradient_norm(), DType::f64));
        });
        const MeshShape shape = parse_mesh(text, 0);
        const double data = shape.size(Axis::data), tp = shape.size(Axis::tp), ep = shape.size(Axis::ep);
        const double edp = data / ep, pp = shape.size(Axis::pp);
        // The number of elements times the square of how many ranks added a 1. The tied parameter is the sum of both
        // ends.
        const double squares =
            pp * (21 * data * data + 5 * data * data * tp * tp + 11 * tp * data * data + 13 * ep * edp * edp) +
            17 * data * data * pp * pp;
        for (const Tensor& norm : norms.all().at("norm")) {
          CHECK(norm.item() == doctest::Approx(std::sqrt(squares)).epsilon(1e-12));
          CHECK(norm.item() == norms.all().at("norm").front().item());
        }
      }
    }
  }
}

TEST_CASE("full-size gradients exist only while they are filled from stage 2 on") {
  run_mesh("dp=2", [](const MeshPtr& mesh) {
    for (const int stage : {1, 2}) {
      const auto live = [] { return MemoryPool::current()->use(MemoryCategory::gradients).live; };
      const std::int64_t before = live();
      HandMade model;
      for (int i = 0; i < 8; ++i) model.add(fmt::format("p{}", i), {1024});
      Zero zero(model.parameters, *model.units, *mesh, {.stage = stage, .bucket_bytes = 4096});
      CHECK(live() - before == (stage == 1 ? 8 * 4096 : 0));
      zero.zero_grad();
      MemoryPool::current()->reset_peaks();
      for (int m = 0; m < 2; ++m) {
        if (m == 1) zero.last_microbatch();
        backward(loss_of(model, in_order(model), mesh->rank(), m));
      }
      zero.finish();
      CHECK(live() - before == (stage == 1 ? 8 * 4096 : 8 * 2048));
    }
  });
}

TEST_CASE("a sharded gradient has no whole form between steps, and says so") {
  run_mesh("dp=2", [](const MeshPtr& mesh) {
    HandMade model = make_model();
    Zero zero(model.parameters, *model.units, *mesh, {.stage = 2});
    zero.zero_grad();
    backward(loss_of(model, in_order(model), mesh->rank(), 0));
    zero.finish();
    CHECK_THROWS_WITH_AS(model.parameters[0]->grad(), doctest::Contains("is sharded; there is no whole one"), Error);
  });
}

TEST_CASE("--dp-shard that does not divide is refused with the arithmetic") {
  CHECK_THROWS_WITH_AS(run_mesh("dp=4", [](const MeshPtr& mesh) { make_zero_groups(*mesh, 3); }),
                       doctest::Contains("--dp-shard 3 does not divide dp x cp = 4"), Error);
}
