// The mesh: reading it from text, coordinates, groups, and which part of a global tensor a rank holds.
#include <doctest/doctest.h>

#include <mutex>
#include <set>

#include "parallel/mesh/placement.h"
#include "tests/support/errors.h"

using namespace trireme;

TEST_CASE("a mesh is read from text") {
  const MeshShape shape = parse_mesh("dp=2,tp=4,pp=3", 0);
  CHECK(shape.size(Axis::dp) == 2);
  CHECK(shape.size(Axis::tp) == 4);
  CHECK(shape.size(Axis::pp) == 3);
  CHECK(shape.ranks() == 24);
  CHECK(to_string(parse_mesh("tp=2", 2)) == "dp=1,tp=2,pp=1");
  CHECK(to_string(parse_mesh("dp=auto,tp=2", 8)) == "dp=4,tp=2,pp=1");
  CHECK(to_string(parse_mesh("dp=1", 0)) == "dp=1,tp=1,pp=1");
}

TEST_CASE("a mesh that cannot be is refused, with the arithmetic") {
  const auto refused = [](const char* text, int world, const char* message) {
    CAPTURE(text);
    CHECK_THROWS_WITH_AS(parse_mesh(text, world), doctest::Contains(message), Error);
  };
  refused("xp=2", 0, "unknown axis 'xp'");
  refused("tp=auto", 0, "only dp can be auto");
  refused("dp=1000000000000", 0, "dp=1000000000000 is more than 1048576 ranks");
  refused("dp=2, tp=2", 0, "expected axes and sizes without spaces");
  refused("", 0, "'' is not a mesh");
  refused("dp=2,", 0, "'dp=2,' is not a mesh");
  refused("dp=2,cp=3,ep=4", 0, "ep=4 does not divide dp x cp = 2 x 3 = 6");
  refused("dp=2,dp=2", 0, "given twice");
  refused("tp=0", 0, "axis tp needs a size of 1 or more");
  refused("tp=two", 0, "got 'two'");
  refused("tp=2x", 0, "got '2x'");
  refused("dp=2,tp=2", 8, "2 x 2 x 1 x 1 = 4 ranks, but the launcher started 8");
  refused("dp=auto,tp=3", 8, "8 ranks are not a multiple");
  try {
    parse_mesh("xp=2", 0);
  } catch (const Error& error) { CHECK(error.code() == ExitCode::usage); }
}

TEST_CASE("arguments out of range of a mesh and its groups are refused") {
  using testing::error_of, testing::says;
  run_thread_ranks(2, 1, ProcessGroup::Deadline(1800), [&](const std::shared_ptr<ProcessGroup>& world) {
    const DeviceMesh mesh(world, parse_mesh("dp=2", 2));
    CHECK(mesh.world_rank(0, 1, 0) == 1);
    CHECK(says(error_of([&] { static_cast<void>(mesh.world_rank(0, 2, 0)); }, ExitCode::internal),
               "[DeviceMesh] no rank has the coordinate 2 on data of the mesh dp=2,tp=1,pp=1; expected 0 to 1"));
    CHECK(says(error_of([&] { static_cast<void>(mesh.world_rank(-1, 0, 0)); }), "the coordinate -1 on pp"));
    CHECK(says(error_of([&] { static_cast<void>(mesh.world_rank(0, 0, 9)); }), "the coordinate 9 on tp"));
    for (const int rank : {-1, 2, 9})
      CHECK(says(error_of([&] { static_cast<void>(mesh.group(Axis::dp).world_rank(rank)); }, ExitCode::internal),
                 fmt::format("has no rank {}; expected 0 to 1", rank)));
    const auto wrong = static_cast<Axis>(9);
    for (const std::string& message :
         {error_of([&] { static_cast<void>(mesh.coord(wrong)); }), error_of([&] { mesh.group(wrong); }),
          error_of([&] { static_cast<void>(mesh.size(wrong)); }), error_of([&] { static_cast<void>(name(wrong)); }),
          error_of([&] { MeshShape().at(wrong); })})
      CHECK(says(message, "[mesh] 9 is not an axis; expected one of Axis::pp to Axis::data"));
    Tensor x = Tensor::zeros({2});
    ProcessGroup& dp = mesh.group(Axis::dp);
    for (const int rank : {-1, 2}) {
      CHECK(says(error_of([&] { dp.broadcast(x, rank).wait(); }, ExitCode::internal), "[broadcast]"));
      CHECK(says(error_of([&] { dp.send(x, rank, 0).wait(); }, ExitCode::internal), "[send]"));
      CHECK(says(error_of([&] { dp.recv(x, rank, 0).wait(); }, ExitCode::internal), "[recv]"));
    }
    CHECK_THROWS_AS(dp.subgroup({0, 7}, "wrong"), Error);
    CHECK_THROWS_AS(dp.subgroup({}, "empty"), Error);
  });
  MeshShape shape;
  shape.at(Axis::pp) = 0;
  CHECK(says(error_of([&] { DeviceMesh(self_group(), shape); }, ExitCode::usage),
             "[DeviceMesh] the axis pp has 0 ranks; expected at least 1"));
  shape = {};
  shape.at(Axis::ep) = 2;
  CHECK(says(error_of([&] { DeviceMesh(self_group(), shape); }, ExitCode::usage),
             "[DeviceMesh] ep=2 does not divide dp x cp = 1 x 1"));
  CHECK(says(error_of([] { MeshShape().at(Axis::data) = 2; }), "the size of data follows from the others"));
}

TEST_CASE("tp varies fastest, and groups run along one axis") {
  std::mutex mutex;
  std::set<std::string> seen;
  run_thread_ranks(8, 1, ProcessGroup::Deadline(1800), [&](const std::shared_ptr<ProcessGroup>& world) {
    const DeviceMesh mesh(world, parse_mesh("dp=2,tp=2,pp=2", 8));
    const int r = world->rank();
    CHECK(mesh.coord(Axis::tp) == r % 2);
    CHECK(mesh.coord(Axis::dp) == r / 2 % 2);
    CHECK(mesh.coord(Axis::pp) == r / 4);
    CHECK(mesh.world_rank(mesh.coord(Axis::pp), mesh.coord(Axis::dp), mesh.coord(Axis::tp)) == r);
    CHECK(mesh.group(Axis::tp).members() == std::vector<int>{r / 2 * 2, r / 2 * 2 + 1});
    CHECK(mesh.group(Axis::dp).members() == std::vector<int>{r - (r / 2 % 2) * 2, r - (r / 2 % 2) * 2 + 2});
    CHECK(mesh.group(Axis::pp).members() == std::vector<int>{r % 4, r % 4 + 4});
    REQUIRE(mesh.pipeline_ends() != nullptr);
    CHECK(mesh.pipeline_ends()->members() == std::vector<int>{r % 4, r % 4 + 4});
    Tensor sum = Tensor::full({1}, r);
    mesh.group(Axis::pp).all_reduce(sum).wait();
    CHECK(sum.item() == 2 * (r % 4) + 4);
    const std::scoped_lock lock(mutex);
    seen.insert(mesh.where());
  });
  CHECK(seen.size() == 8);
  CHECK(seen.count("rank 5 (dp=0,tp=1,pp=1)") == 1);
}

TEST_CASE("a mesh may be of a part of the ranks; its groups are of these") {
  run_thread_ranks(8, 1, ProcessGroup::Deadline(1800), [&](const std::shared_ptr<ProcessGroup>& world) {
    const int r = world->rank();
    const std::vector<int> part = r / 2 % 2 == 0 ? std::vector{0, 1, 4, 5} : std::vector{2, 3, 6, 7};
    const DeviceMesh mesh(world->subgroup(part, "half of the world"), parse_mesh("tp=2,pp=2", 0));
    CHECK(mesh.coord(Axis::tp) == r % 2);
    CHECK(mesh.coord(Axis::pp) == r / 4);
    CHECK(mesh.world_rank(mesh.coord(Axis::pp), 0, mesh.coord(Axis::tp)) == r);
    CHECK(mesh.group(Axis::tp).members() == std::vector<int>{r / 2 * 2, r / 2 * 2 + 1});
    CHECK(mesh.group(Axis::pp).members() == std::vector<int>{r % 4, r % 4 + 4});
    REQUIRE(mesh.pipeline_ends() != nullptr);
    CHECK(mesh.pipeline_ends()->members() == std::vector<int>{r % 4, r % 4 + 4});
    Tensor sum = Tensor::full({1}, r);
    mesh.group(Axis::tp).all_reduce(sum).wait();
    CHECK(sum.item() == r / 2 * 4 + 1);
  });
}

TEST_CASE("data is dp and cp as one axis, ep and edp another view of it") {
  run_thread_ranks(16, 1, ProcessGroup::Deadline(1800), [&](const std::shared_ptr<ProcessGroup>& world) {
    const DeviceMesh mesh(world, parse_mesh("dp=4,cp=2,tp=2,ep=4", 16));
    const int r = world->rank(), data = r / 2, tp = r % 2;
    CHECK(mesh.coord(Axis::data) == data);
    CHECK(mesh.coord(Axis::cp) == data % 2);
    CHECK(mesh.coord(Axis::dp) == data / 2);
    CHECK(mesh.coord(Axis::ep) == data % 4);
    CHECK(mesh.coord(Axis::edp) == data / 4);
    CHECK(mesh.group(Axis::cp).members() == std::vector<int>{data / 2 * 4 + tp, data / 2 * 4 + 2 + tp});
    CHECK(mesh.group(Axis::edp).members() == std::vector<int>{data % 4 * 2 + tp, data % 4 * 2 + 8 + tp});
    CHECK(mesh.group(Axis::ep).size() == 4);
    CHECK(mesh.group(Axis::data).size() == 8);
    for (const Axis axis : all_axes) {
      CHECK(mesh.group(axis).rank() == mesh.coord(axis));
      if (mesh.size(axis) > 1) CHECK(mesh.group(axis).world_rank(mesh.coord(axis)) == r);
    }
    if (r == 5) CHECK(mesh.where() == "rank 5 (dp=1,tp=1,pp=0,cp=0,ep=2)");
  });
}

TEST_CASE("gradients are summed where a parameter is replicated, norms where it is sharded") {
  run_thread_ranks(8, 1, ProcessGroup::Deadline(1800), [&](const std::shared_ptr<ProcessGroup>& world) {
    using placement::R, placement::S;
    const DeviceMesh mesh(world, parse_mesh("dp=2,cp=2,tp=2,ep=2", 8));
    CHECK(gradient_axes({}, mesh) == std::vector{Axis::data});
    CHECK(gradient_axes({.tp = R}, mesh) == std::vector{Axis::data, Axis::tp});
    CHECK(gradient_axes({.ep = S(0), .tp = S(1)}, mesh) == std::vector{Axis::edp});
    CHECK(shard_axes({.ep = S(0), .tp = S(1)}, mesh) == std::vector{Axis::ep, Axis::tp});
    CHECK(shard_axes({}, mesh).empty());
  });
}

TEST_CASE("gradients are summed in any order unless another group has to get the same bits") {
  run_thread_ranks(8, 1, ProcessGroup::Deadline(1800), [&](const std::shared_ptr<ProcessGroup>& world) {
    using placement::I, placement::R, placement::S;
    const auto order = [](const Placements& placements, Axis axis, const DeviceMesh& mesh) {
      return order_of_gradients(placements, axis, mesh);
    };
    const DeviceMesh both(world, parse_mesh("dp=2,cp=2,tp=2,ep=2", 8));
    CHECK(order({.tp = I}, Axis::data, both) == SumOrder::ranks);  // each tp rank has a copy, and a group of data
    CHECK(order({.tp = S(0)}, Axis::data, both) == SumOrder::any);
    CHECK(order({.tp = R}, Axis::data, both) == SumOrder::any);  // terms of the sum over tp
    CHECK(order({.tp = R}, Axis::tp, both) == SumOrder::ranks);  // each rank of data has a copy, and a group of tp
    CHECK(order({.ep = S(0), .tp = I}, Axis::edp, both) == SumOrder::ranks);
    CHECK(order({.ep = S(0), .tp = S(1)}, Axis::edp, both) == SumOrder::any);
    const DeviceMesh data(world, parse_mesh("dp=8", 8)), tp(world, parse_mesh("tp=8", 8));
    CHECK(order({.tp = I}, Axis::data, data) == SumOrder::any);
    CHECK(order({.tp = R}, Axis::tp, tp) == SumOrder::any);
  });
}

TEST_CASE("a rank holds a rectangle of the global tensor") {
  run_thread_ranks(4, 1, ProcessGroup::Deadline(1800), [](const std::shared_ptr<ProcessGroup>& world) {
    const DeviceMesh mesh(world, parse_mesh("dp=2,tp=2", 4));
    const Rectangle r = local_rectangle({6, 8}, {.edp = placement::S(0), .tp = placement::S(1)}, mesh, "w");
    CHECK(r.start == Shape{3 * mesh.coord(Axis::dp), 4 * mesh.coord(Axis::tp)});
    CHECK(local_shape({6, 8}, {.edp = placement::S(0), .tp = placement::S(1)}, mesh, "w") == Shape{3, 4});
    CHECK(local_shape({6, 8}, {}, mesh, "w") == Shape{6, 8});
    CHECK_THROWS_WITH_AS(local_shape({6, 7}, {.tp = placement::S(1)}, mesh, "blocks.0.w"),
                         doctest::Contains("[blocks.0.w] dim 1 of [6, 7] does not divide over tp=2"), Error);
  });
}
