// Attention over a sequence that is split over cp, with ring and Ulysses, against plain attention on one rank, in f64:
// output and every gradient. A separate test with one-hot values checks which tokens see which.
#include "nn/context_attention.h"
#include "nn/documents.h"
#include "nn/ring_attention.h"
#include "nn/sequence_order.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;
using nn::ContextParallel, nn::PositionRuns;

namespace context_attention_test {
namespace {

constexpr double rounding = 1e-13;  // f64 sums of some 100 terms, in another order

struct Case {
  std::int64_t batch, length, heads, kv_heads, width;
  bool documents = false;
  std::int64_t window = 0;
  double softcap = 0;
};

std::string describe(const Case& x) {
  return fmt::format("B={} T={} H={} Hkv={} Dh={} documents={} window={} cap={}", x.batch, x.length, x.heads,
                     x.kv_heads, x.width, x.documents, x.window, x.softcap);
}

/// The tokens of dim 1 that a cp rank holds, in its order.
Tensor local_part(const Tensor& whole, int cp, int rank) {
  const NoGrad guard;
  std::vector<Tensor> parts;
  for (const nn::PositionRun& run : nn::zigzag(whole.size(1), cp, rank))
    parts.push_back(view::slice(whole, 1, run.global, run.length));
  return clone(concat(parts, 1));
}

/// Documents of about 5 tokens, different in each sequence, and the window; undefined if the case has neither.
Tensor starts_of(const Case& x) {
  const Tensor starts = x.documents ? nn::document_starts(random_ids({x.batch, x.length}, 17, 0, 5), 3) : Tensor();
  return x.window > 0 ? nn::window_starts(starts, x.batch, 0, x.length, x.window) : starts;
}

struct Whole {
  Tensor q, k, v, dout;
  explicit Whole(const Case& x)
      : q(random({x.batch, x.length, x.heads, x.width}, 1)),
        k(random({x.batch, x.length, x.kv_heads, x.width}, 2)),
        v(random({x.batch, x.length, x.kv_heads, x.width}, 3)),
        dout(random({x.batch, x.length, x.heads, x.width}, 4)) {}
};

struct Results {
  Tensor out, dq, dk, dv;
};

Results run(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& dout,
            const std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)>& f) {
  std::vector<Tensor> inputs = {clone(q), clone(k), clone(v)};
  for (Tensor& x : inputs) require_grad(x);
  const Tensor out = f(inputs[0], inputs[1], inputs[2]);
  backward(out, dout);
  return {out.detach(), grad(inputs[0]), grad(inputs[1]), grad(inputs[2])};
}

/// softmax(q k^T / sqrt(Dh) + mask) v, written with the operations of autograd/, where the mask is a matrix.
Tensor by_definition(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& starts, double softcap) {
  const std::int64_t batch = q.size(0), length = q.size(1), heads = q.size(2), group = heads / k.size(2);
  std::vector<Tensor> results;
  for (std::int64_t b = 0; b < batch; ++b) {
    Tensor mask = Tensor::zeros({length, length}, DType::f64);
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t first = starts.defined() ? starts.data<std::int32_t>()[b * length + i] : 0;
      for (std::int64_t j = 0; j < length; ++j)
        if (j > i || j < first) mask.data<double>()[i * length + j] = -1e30;
    }
    std::vector<Tensor> outs;
    for (std::int64_t h = 0; h < heads; ++h) {
      const auto matrix = [&](const Tensor& x, std::int64_t head) { return select(select(x, 0, b), 1, head); };
      Tensor scores =
          matmul(matrix(q, h), transpose(matrix(k, h / group), 0, 1)) * (1 / std::sqrt(static_cast<double>(q.size(3))));
      if (softcap > 0) scores = tanh(scores / softcap) * softcap;
      outs.push_back(reshape(matmul(softmax(scores + mask), matrix(v, h / group)), {1, length, 1, q.size(3)}));
    }
    results.push_back(concat(outs, 2));
  }
  return concat(results, 0);  // [B, T, H, Dh]
}

void check_case(const Case& x, const std::string& mesh_text, ContextParallel method) {
  const Whole whole(x);
  const Tensor starts = starts_of(x);
  const Results expected = run(whole.q, whole.k, whole.v, whole.dout, [&](const auto& q, const auto& k, const auto& v) {
    return by_definition(q, k, v, starts, x.softcap);
  });
  run_mesh(mesh_text, [&](const MeshPtr& mesh) {
    const int cp = mesh->size(Axis::cp), rank = mesh->coord(Axis::cp);
    const auto part = [&](const Tensor& t) { return local_part(t, cp, rank); };
    const Results got = run(part(whole.q), part(whole.k), part(whole.v), part(whole.dout),
                            [&](const auto& q, const auto& k, const auto& v) {
                              return nn::context_attention(q, k, v, *mesh, method, starts, {0, x.softcap});
                            });
    const std::string where = fmt::format("{} {} rank {} {}", mesh_text, static_cast<int>(method), rank, describe(x));
    CHECK_MESSAGE(relative_difference(got.out, part(expected.out)) < rounding, where);
    CHECK_MESSAGE(relative_difference(got.dq, part(expected.dq)) < rounding, where);
    CHECK_MESSAGE(relative_difference(got.dk, part(expected.dk)) < rounding, where);
    CHECK_MESSAGE(relative_difference(got.dv, part(expected.dv)) < rounding, where);
  });
}

const std::vector<Case> cases = {{1, 8, 4, 4, 3}, {3, 24, 4, 4, 5}, {2, 40, 8, 4, 4}, {1, 136, 4, 4, 13}};

}  // namespace

TEST_CASE("zigzag gives every token to one rank, and sequence order is its inverse") {
  for (const int cp : {1, 2, 3, 4}) {
    const std::int64_t length = 24;
    const Tensor whole = random({2, length, 3}, 1);
    std::vector<int> held(static_cast<std::size_t>(length), 0);
    std::vector<Tensor> parts;
    for (int rank = 0; rank < cp; ++rank) {
      for (const nn::PositionRun& run : nn::zigzag(length, cp, rank)) {
        for (std::int64_t i = 0; i < run.length; ++i) ++held[static_cast<std::size_t>(run.global + i)];
      }
      parts.push_back(local_part(whole, cp, rank));
    }
    CHECK(std::all_of(held.begin(), held.end(), [](int times) { return times == 1; }));
    const Tensor gathered = concat(parts, 1);
    CHECK(same_bits(nn::to_sequence_order(gathered, cp), whole));
    CHECK(same_bits(nn::to_rank_order(whole, cp), gathered));
    check_gradients("order", [cp](const std::vector<Tensor>& x) { return nn::to_sequence_order(x[0], cp); }, {whole});
    check_gradients("order", [cp](const std::vector<Tensor>& x) { return nn::to_rank_order(x[0], cp); }, {whole});
  }
}

TEST_CASE("in a step of the ring every rank computes as many pairs as any other; in all steps each causal pair once") {
  for (const int ranks : {2, 3, 4, 7}) {
    CAPTURE(ranks);
    constexpr std::int64_t local = 6, half = local / 2;
    const std::int64_t length = local * ranks;
    const auto place = [&](int rank, std::int64_t token) {  // in the sequence
      const PositionRuns runs = nn::zigzag(length, ranks, rank);
      const nn::PositionRun& run = runs.back().local <= token ? runs.back() : runs.front();
      return run.global + token - run.local;
    };
    std::vector<int> computed(static_cast<std::size_t>(length * length));
    for (int rank = 0; rank < ranks; ++rank) {
      for (int step = 0; step < ranks; ++step) {
        const nn::RingStep s = nn::ring_step(step, rank, ranks, local);
        int pairs = 0;
        for (std::int64_t q = s.first_query; q < s.first_query + s.queries; ++q) {
          for (std::int64_t k = s.first_key; k < s.first_key + (s.causal ? q + 1 : s.keys); ++k, ++pairs)
            ++computed[static_cast<std::size_t>(place(rank, q) * length + place(s.source, k))];
        }
        CHECK(pairs == (s.causal ? half * (local + 1) : half * local));
      }
    }
    for (std::int64_t q = 0; q < length; ++q) {
      for (std::int64_t k = 0; k < length; ++k) CHECK(computed[static_cast<std::size_t>(q * length + k)] == (k <= q));
    }
  }
}

TEST_CASE("ring attention equals its definition on one rank, forward and backward") {
  for (const Case& x : cases) {
    for (const std::string& mesh : Meshes{"cp=1", "cp=2", "cp=4"}) check_case(x, mesh, ContextParallel::ring);
  }
  check_case({2, 30, 3, 1, 4}, "cp=3", ContextParallel::ring);  // heads that cp does not divide
}

TEST_CASE("ulysses attention equals its definition on one rank, forward and backward") {
  for (const Case& x : cases) {
    for (const std::string& mesh : Meshes{"cp=1", "cp=2", "cp=4"}) check_case(x, mesh, ContextParallel::ulysses);
  }
}

TEST_CASE("documents stay apart, on one rank, by the ring and by ulysses") {
  for (Case x : cases) {
    x.documents = true;
    for (const std::string& mesh : Meshes{"cp=1", "cp=2", "cp=4"}) {
      check_case(x, mesh, ContextParallel::ring);
      check_case(x, mesh, ContextParallel::ulysses);
    }
  }
}

TEST_CASE("windows and capped scores on one rank, by the ring, which leaves out blocks, and by ulysses") {
  for (Case x : cases) {
    x.softcap = 0.8;
    for (const std::int64_t window : {1, 3, 7, 50}) {
      x.window = window;
      for (const bool documents : {false, true}) {
        x.documents = documents;
        for (const std::string& mesh : Meshes{"cp=1", "cp=2", "cp=4"}) {
          check_case(x, mesh, ContextParallel::ring);
          check_case(x, mesh, ContextParallel::ulysses);
        }
      }
    }
  }
}

TEST_CASE("a window, and positions within documents") {
  const std::vector<std::int32_t> starts = {0, 0, 2, 2, 2, 5};
  const Tensor documents = Tensor::from(std::span<const std::int32_t>(starts), {1, 6});
  const auto numbers = [](const Tensor& x) {
    return std::vector<std::int32_t>(x.span<std::int32_t>().begin(), x.span<std::int32_t>().end());
  };
  CHECK(numbers(nn::document_positions(documents)) == std::vector<std::int32_t>{0, 1, 0, 1, 2, 0});
  CHECK(numbers(nn::window_starts({}, 1, 0, 5, 2)) == std::vector<std::int32_t>{0, 0, 1, 2, 3});
  CHECK(numbers(nn::window_starts({}, 1, 7, 2, 3)) == std::vector<std::int32_t>{5, 6});
  CHECK(numbers(nn::window_starts(documents, 1, 0, 6, 2)) == std::vector<std::int32_t>{0, 0, 2, 2, 3, 5});
}

TEST_CASE("a token sees exactly the tokens up to its own, in every chunk: one-hot values") {
  const std::int64_t length = 16;
  Tensor v = Tensor::zeros({1, length, 4, length}, DType::f64);  // [B, T, H, T]: out is the probabilities themselves
  for (std::int64_t t = 0; t < length; ++t) {
    for (std::int64_t h = 0; h < 4; ++h) v.data<double>()[(t * 4 + h) * length + t] = 1;
  }
  for (const bool documents : {false, true}) {
    const Tensor starts = starts_of({1, length, 4, 4, length, documents});
    for (const ContextParallel method : {ContextParallel::ring, ContextParallel::ulysses}) {
      for (const std::string& text : Meshes{"cp=1", "cp=2", "cp=4"}) {
        run_mesh(text, [&](const MeshPtr& mesh) {
          const int cp = mesh->size(Axis::cp), rank = mesh->coord(Axis::cp);
          const auto part = [&](const Tensor& t) { return local_part(t, cp, rank); };
          const Tensor out = contiguous(nn::context_attention(part(random(v.shape(), 1)), part(random(v.shape(), 2)),
                                                              part(v), *mesh, method, starts));
          const Tensor positions = nn::position_ids(nn::attention_positions(*mesh, length));
          bool right = true;
          for (std::int64_t i = 0; i < out.size(1); ++i) {
            const std::int32_t position = positions.data<std::int32_t>()[i];
            const std::int32_t first = documents ? starts.data<std::int32_t>()[position] : 0;
            for (std::int64_t h = 0; h < 4; ++h) {
              double sum = 0;
              for (std::int64_t j = 0; j < length; ++j) {
                const double p = out.data<double>()[(i * 4 + h) * length + j];
                right = right && (p > 0) == (j >= first && j <= position);
                sum += p;
              }
              right = right && std::abs(sum - 1) < 1e-14;
            }
          }
          CHECK_MESSAGE(right, text, " ", static_cast<int>(method), " ", documents);
        });
      }
    }
  }
}

TEST_CASE("ring and ulysses in f32 and bf16 stay within their rounding of f64") {
  const Case x{2, 48, 4, 2, 8};
  const Whole whole(x);
  for (const auto& [dtype, tolerance] : {std::pair{DType::f32, 32 * 0x1p-24}, {DType::bf16, 16 * 0x1p-9}}) {
    const auto narrow = [dtype = dtype](const Tensor& t) { return cast(t, dtype); };
    const auto wide = [&](const Tensor& t) { return cast(narrow(t), DType::f64); };
    const Results expected = run(wide(whole.q), wide(whole.k), wide(whole.v), wide(whole.dout),
                                 [&](const auto& q, const auto& k, const auto& v) { return attention(q, k, v); });
    for (const ContextParallel method : {ContextParallel::ring, ContextParallel::ulysses}) {
      run_mesh("cp=2", [&, tolerance = tolerance](const MeshPtr& mesh) {
        const auto part = [&](const Tensor& t) { return local_part(t, 2, mesh->coord(Axis::cp)); };
        const Results got = run(part(narrow(whole.q)), part(narrow(whole.k)), part(narrow(whole.v)),
                                part(narrow(whole.dout)), [&](const auto& q, const auto& k, const auto& v) {
                                  return nn::context_attention(q, k, v, *mesh, method, {});
                                });
        CHECK(rounding_difference(got.out, part(expected.out)) < tolerance);
        CHECK(rounding_difference(got.dq, part(expected.dq)) < tolerance);
        CHECK(rounding_difference(got.dk, part(expected.dk)) < tolerance);
        CHECK(rounding_difference(got.dv, part(expected.dv)) < tolerance);
      });
    }
  }
}

TEST_CASE("the ring gives the same bits on every run") {
  const Case x{2, 32, 4, 2, 8, true};
  const Whole whole(x);
  const Tensor starts = starts_of(x);
  const auto bits = [&] {
    std::vector<Tensor> results(4);
    run_mesh("cp=4", [&](const MeshPtr& mesh) {
      const auto part = [&](const Tensor& t) { return cast(local_part(t, 4, mesh->coord(Axis::cp)), DType::f32); };
      const Results got = run(part(whole.q), part(whole.k), part(whole.v), part(whole.dout),
                              [&](const auto& q, const auto& k, const auto& v) {
                                return nn::context_attention(q, k, v, *mesh, ContextParallel::ring, starts);
                              });
      results[static_cast<std::size_t>(mesh->rank())] = contiguous(got.dk);
    });
    return results;
  };
  const std::vector<Tensor> first = bits(), second = bits();
  for (std::size_t i = 0; i < first.size(); ++i) CHECK(same_bits(first[i], second[i]));
}

TEST_CASE("a document begins after a separator, and in the first place") {
  const std::vector<std::int32_t> tokens = {5, 0, 7, 8, 0, 0, 9, 0};
  const Tensor starts = nn::document_starts(Tensor::from(std::span<const std::int32_t>(tokens), {1, 8}), 0);
  const std::vector<std::int32_t> expected = {0, 0, 2, 2, 2, 5, 6, 6};
  CHECK(std::equal(expected.begin(), expected.end(), starts.data<std::int32_t>()));
  // Rank 0 of 2 holds chunks 0 and 3: positions 0 1 6 7; rank 1 holds 2 3 4 5.
  const Tensor first = nn::first_keys(starts, nn::zigzag(8, 2, 0), nn::zigzag(8, 2, 1));
  const std::vector<std::int32_t> hidden = {0, 0, 4, 4};  // the last document begins after all tokens of rank 1
  CHECK(std::equal(hidden.begin(), hidden.end(), first.data<std::int32_t>()));
  const Tensor own = nn::first_keys(starts, nn::zigzag(8, 2, 0), nn::zigzag(8, 2, 0));
  const std::vector<std::int32_t> before = {0, 0, 2, 2};
  CHECK(std::equal(before.begin(), before.end(), own.data<std::int32_t>()));
}

TEST_CASE("ulysses refuses heads that do not divide by cp, the ring an odd number of local tokens") {
  const auto attend = [](ContextParallel method, std::int64_t local, std::int64_t heads) {
    run_mesh("cp=2", [&](const MeshPtr& mesh) {
      const Tensor x = random({1, local, heads, 4}, 1);
      nn::context_attention(x, x, x, *mesh, method, {});
    });
  };
  CHECK_THROWS_WITH_AS(attend(ContextParallel::ulysses, 4, 3), doctest::Contains("must both divide by cp=2"), Error);
  CHECK_THROWS_WITH_AS(attend(ContextParallel::ring, 3, 3), doctest::Contains("two chunks of one length"), Error);
}

}  // namespace context_attention_test
