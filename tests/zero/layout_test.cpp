// How parameters are cut, packed and grouped.
#include "parallel/zero/bucket.h"
#include "tests/zero/support.h"

using namespace trireme;
using namespace trireme::testing;

TEST_CASE("rows are shared evenly, the first ranks have one more, and a rank may have none") {
  for (const std::int64_t extent : {0, 1, 2, 7, 16, 31}) {
    for (const int ranks : {1, 2, 3, 5}) {
      std::int64_t end = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const DimRange span = even_share(extent, ranks, rank);
        CHECK(span.start == end);
        CHECK(span.length == extent / ranks + (rank < extent % ranks ? 1 : 0));
        end += span.length;
      }
      CHECK(end == extent);
    }
  }
}

TEST_CASE("the dim that is cut has rows enough for even pieces, and is not the last of several") {
  CHECK(dim_to_cut({3, 384, 384}, 4) == 1);
  CHECK(dim_to_cut({1536, 384}, 4) == 0);
  CHECK(dim_to_cut({32, 7}, 2) == 0);
  CHECK(dim_to_cut({5, 7}, 2) == 0);
  CHECK(dim_to_cut({3, 384}, 4) == 0);
  CHECK(dim_to_cut({2, 8, 384}, 4) == 1);
  CHECK(dim_to_cut({3}, 8) == 0);
}

TEST_CASE("a bucket packs and unpacks shards of prime sizes; padding goes nowhere") {
  for (const char* mesh_text : {"dp=2", "dp=3", "dp=5"}) {
    run_mesh(mesh_text, [](const MeshPtr& mesh) {
      HandMade model;
      for (const Shape& shape : {Shape{7}, Shape{13, 5}, Shape{3, 101, 2}, Shape{1}, Shape{2, 2, 2}})
        model.add(fmt::format("p{}", model.parameters.size()), shape);
      ShardList shards;
      const auto buckets = make_zero_buckets(model.parameters, *model.units, *mesh, {}, {}, shards);
      REQUIRE(buckets.size() == 1);
      const ZeroBucket& bucket = buckets[0];
      const Tensor pieces = Tensor::full({bucket.ranks(), bucket.piece}, 1e9);
      bucket.pack(bucket.values(), pieces);
      double packed = 0, whole = 0;
      for (const float x : pieces.span<float>()) packed += std::abs(x);
      std::vector<Tensor> back;
      for (const Tensor& value : bucket.values()) {
        for (const float x : value.span<float>()) whole += std::abs(x);
        back.push_back(Tensor::full(value.shape(), -1));
      }
      CHECK(packed == doctest::Approx(whole));  // every element once, and zeros as padding
      bucket.unpack(pieces, back);
      for (std::size_t i = 0; i < back.size(); ++i) {
        CHECK(same_bits(back[i], bucket.values()[i]));
        const Shard& shard = *bucket.shards[i];
        const Tensor mine = bucket.in_piece(view::select(pieces, 0, mesh->coord(Axis::data)), i);
        CHECK(same_bits(mine, shard.part(back[i])));
      }
    });
  }
}

TEST_CASE("a bucket holds one unit and one set of axes; shards keep the order of the parameters") {
  run_mesh("dp=4,tp=2,ep=2", [](const MeshPtr& mesh) {
    HandMade model;
    model.begin_unit("first");
    model.add("a", {40});
    model.add("b", {40}, {.tp = placement::R});
    model.add("expert", {2, 40}, {.ep = placement::S(0)});
    model.add("c", {40});
    model.begin_unit("second");
    model.add("d", {40});
    model.begin_unit("third");
    model.unit->chunk = 1;
    model.add("of another chunk", {40});
    ShardList shards;
    ZeroOptions options;
    const auto buckets = make_zero_buckets(model.parameters, *model.units, *mesh, {}, options, shards);
    std::vector<std::string> names;
    for (const ZeroBucket& bucket : buckets) {
      std::string text;
      for (const ShardPtr& shard : bucket.shards) text += shard->parameter->name + ";";
      names.push_back(text);
    }
    CHECK(names == std::vector<std::string>{"of another chunk;", "d;", "c;a;", "expert;", "b;"});
    CHECK(buckets[0].chunk == 1);
    CHECK(buckets[3].group == &mesh->group(Axis::edp));
    CHECK(buckets[4].group == &mesh->group(Axis::data));
    CHECK(buckets[4].sum_over_tp);
    for (std::size_t i = 0; i < shards.size(); ++i) CHECK(shards[i]->parameter == model.parameters[i]);
    options.bucket_bytes = 1;
    CHECK(make_zero_buckets(model.parameters, *model.units, *mesh, {}, options, shards).size() == 6);
  });
}
