// The distributions of nn/init.h: moments and bounds, the fans that they divide by, and the same weights on every mesh.
#include "nn/init.h"

#include "nn/linear.h"
#include "tests/support/errors.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;
using nn::Fan, nn::Init;

namespace init_test {
namespace {

/// The whole parameter of one rank, as numbers.
std::vector<double> weights(const Shape& shape, const Init& init, DType dtype = DType::f32) {
  const nn::Build b(std::make_shared<const DeviceMesh>(self_group(), MeshShape{}), dtype, 5);
  return values(b.parameter("w", shape, {}, init)->local.detach());
}

struct Moments {
  double mean = 0, deviation = 0, largest = 0;
};
Moments moments(const std::vector<double>& numbers) {
  Moments m;
  const auto n = static_cast<double>(numbers.size());
  for (const double x : numbers) m.mean += x / n, m.largest = std::max(m.largest, std::abs(x));
  for (const double x : numbers) m.deviation += (x - m.mean) * (x - m.mean) / n;
  m.deviation = std::sqrt(m.deviation);
  return m;
}

/// Mean 0 and this standard deviation, within five standard errors; no number beyond `bound`, and one near it.
void check_distribution(const std::string& what, const Shape& shape, const Init& init, double deviation, double bound) {
  const std::vector<double> numbers = weights(shape, init);
  const Moments m = moments(numbers);
  const double error = 5 / std::sqrt(static_cast<double>(numbers.size()));
  CHECK_MESSAGE(std::abs(m.mean) < error * deviation, what);
  CHECK_MESSAGE(std::abs(m.deviation - deviation) < error * deviation, what, ": ", m.deviation, " of ", deviation);
  CHECK_MESSAGE(m.largest <= bound * (1 + 1e-6), what);
  if (std::isfinite(bound)) CHECK_MESSAGE(m.largest > 0.99 * bound, what);
}

}  // namespace

TEST_CASE("initial weights have the deviations and bounds of their formulas") {
  const Shape matrix = {48, 100}, kernel = {32, 10, 3, 5};  // fans 100 and 48; 150 and 480
  const double none = std::numeric_limits<double>::infinity(), gain = Init::relu_gain;
  check_distribution("uniform", matrix, Init::uniform(-0.5, 0.5), 0.5 / std::sqrt(3.0), 0.5);
  check_distribution("kaiming_normal", matrix, Init::kaiming_normal(), gain / 10, none);
  check_distribution("kaiming_normal out", matrix, Init::kaiming_normal(1, Fan::out), 1 / std::sqrt(48.0), none);
  check_distribution("kaiming_uniform", kernel, Init::kaiming_uniform(), gain / std::sqrt(150.0),
                     gain * std::sqrt(3 / 150.0));
  check_distribution("kaiming_uniform out", kernel, Init::kaiming_uniform(2, Fan::out), 2 / std::sqrt(480.0),
                     2 * std::sqrt(3 / 480.0));
  check_distribution("xavier_normal", kernel, Init::xavier_normal(2), 2 * std::sqrt(2 / 630.0), none);
  check_distribution("xavier_uniform", matrix, Init::xavier_uniform(), std::sqrt(2 / 148.0), std::sqrt(6 / 148.0));
  // The deviation of a normal number between -2 and 2 is 0.87963.
  check_distribution("truncated_normal", matrix, Init::truncated_normal(0.02), 0.02 * 0.879626, 0.04);
  for (const double x : weights({3, 4}, Init::constant(0.25))) CHECK(x == 0.25);
}

TEST_CASE("each number depends on its place only, in tensors that are drawn in several parts") {
  const std::vector<double> numbers = weights({300, 300}, Init::normal(0.5));
  for (std::size_t i = 0; i < numbers.size(); i += 7)
    REQUIRE(numbers[i] == static_cast<float>(0.5 * random_normal(5, stream_of("w"), i)));
}

TEST_CASE("uniform numbers reach from the lower end to below the upper") {
  const std::vector<double> numbers = weights({200, 100}, Init::uniform(2, 5));
  const auto [low, high] = std::minmax_element(numbers.begin(), numbers.end());
  CHECK(*low >= 2);
  CHECK(*low < 2.01);
  CHECK(*high < 5);
  CHECK(*high > 4.99);
}

TEST_CASE("orthogonal matrices have orthogonal rows or columns of the length of the gain") {
  for (const Shape& shape : {Shape{7, 12}, Shape{12, 7}, Shape{6, 2, 5}}) {
    const std::int64_t rows = shape[0], columns = shape.count() / rows, few = std::min(rows, columns);
    const std::vector<double> m = weights(shape, Init::orthogonal(3), DType::f64);
    const auto at = [&](std::int64_t i, std::int64_t k) {
      return m[static_cast<std::size_t>(rows <= columns ? i * columns + k : k * columns + i)];
    };
    for (std::int64_t i = 0; i < few; ++i)
      for (std::int64_t j = 0; j < few; ++j) {
        double product = 0;
        for (std::int64_t k = 0; k < std::max(rows, columns); ++k) product += at(i, k) * at(j, k);
        CHECK(std::abs(product - (i == j ? 9 : 0)) < 1e-5);  // the numbers are rounded to f32
      }
  }
}

TEST_CASE("every mesh starts from the same weights, whatever their distribution") {
  const std::vector<Init> all = {Init::uniform(-1, 2),     Init::truncated_normal(0.02), Init::orthogonal(),
                                 Init::kaiming_normal(),   Init::kaiming_uniform(),      Init::xavier_normal(),
                                 Init::xavier_uniform(0.5)};
  for (const nn::Split split : {nn::Split::out, nn::Split::in}) {
    const auto collect = [&](const std::string& mesh_text, Collected& results) {
      run_mesh(mesh_text, [&](const MeshPtr& mesh) {
        for (std::size_t i = 0; i < all.size(); ++i) {
          const nn::Build b(mesh, DType::f32, 5);
          const nn::Linear layer(b / fmt::format("l{}", i), 8, {3, 12}, split, {.weight_init = all[i]});
          const Parameter& p = *b.parameters().front();
          results.add(p.name, whole(p.local, p, *mesh));
        }
      });
    };
    Collected reference;
    collect("tp=1", reference);
    for (const std::string& mesh : Meshes{"tp=2", "tp=4"}) {
      Collected results;
      collect(mesh, results);
      for (const auto& [name, tensors] : results.all())
        for (const Tensor& tensor : tensors)
          CHECK_MESSAGE(same_bits(tensor, reference.all().at(name).front()), mesh, ": ", name);
    }
  }
}

TEST_CASE("a linear layer with several output dims counts all of them as outputs") {
  const nn::Build b(std::make_shared<const DeviceMesh>(self_group(), MeshShape{}), DType::f32, 5);
  const nn::Linear layer(b, 50, {3, 64}, nn::Split::none, {.weight_init = Init::xavier_uniform()});
  const double bound = std::sqrt(6.0 / (50 + 192));
  const double largest = moments(values(b.parameters().front()->local.detach())).largest;
  CHECK(largest <= bound * (1 + 1e-6));
  CHECK(largest > 0.99 * bound);
}

TEST_CASE("weights without inputs, and a bound near 0, are refused by name") {
  CHECK(says(error_of([] { weights({8}, Init::kaiming_normal()); }, ExitCode::usage),
             "[init] [w] [8] has no dim of inputs after 1 of outputs; expected a weight [out, in, ..]"));
  CHECK(says(error_of(
                 [] {
                   weights({8, 4}, Init::truncated_normal(1, 0));
                 },
                 ExitCode::usage),
             "[w] a bound of 0 standard deviations; expected at least 0.1"));
}

}  // namespace init_test
