// GGUF files: what the package gguf wrote, what we write, how far Q8_0 is from the numbers, and parts of tensors.
#include "data/gguf/file.h"

#include <cmath>

#include "core/io.h"
#include "data/gguf/writer.h"
#include "tests/support/elements.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

using namespace trireme;
using namespace trireme::testing;

namespace gguf_test {
namespace {

const std::filesystem::path golden = "tests/golden/small.gguf";  // made by make_gguf.py there

/// numbers() of make_gguf.py.
Tensor numbers(const Shape& shape) {
  Tensor x = Tensor::empty(shape, DType::f32);
  const std::int64_t columns = shape[shape.dims() - 1];
  for (std::int64_t i = 0; i < x.count(); ++i)
    x.data<float>()[i] = static_cast<float>(std::sin(static_cast<double>(i + 1)) *
                                            std::ldexp(1.0, static_cast<int>(i / columns % 9) - 4));
  return x;
}

const GgufValue& value(const GgufFile& file, const char* key) {
  const GgufValue* found = file.layout().find(key);
  REQUIRE_MESSAGE(found != nullptr, key);
  return *found;
}

std::vector<std::string> texts(const GgufValue& array) {
  std::vector<std::string> all;
  array.for_each([&](const GgufValue& each) { all.emplace_back(each.text()); });
  return all;
}

std::vector<double> doubles(const GgufValue& array) {
  std::vector<double> all;
  array.for_each([&](const GgufValue& each) { all.push_back(each.number()); });
  return all;
}

double largest(const Tensor& x) {
  double most = 0;
  const Tensor values = contiguous(cast(x, DType::f64));
  for (std::int64_t i = 0; i < values.count(); ++i) most = std::max(most, std::abs(values.data<double>()[i]));
  return most;
}

}  // namespace

TEST_CASE("values and tensors that the package gguf wrote are read") {
  const GgufFile file(golden);
  CHECK(file.layout().version == 3);
  CHECK(file.layout().alignment == 32);
  CHECK(value(file, "general.architecture").text() == "llama");
  CHECK(value(file, "test.u32").whole() == 4000000000);
  CHECK(value(file, "test.i32").whole() == -5);
  CHECK(value(file, "test.f32").number() == 0.1F);
  CHECK(value(file, "test.true").truth());
  CHECK_FALSE(value(file, "test.false").truth());
  CHECK(value(file, "test.text").text() == "gr\u00fc\u00dfe \U0001F600");
  CHECK(texts(value(file, "test.texts")) == std::vector<std::string>{"a", "", "ccc"});
  CHECK(doubles(value(file, "test.numbers")) == std::vector<double>{1, -2, 3});
  CHECK(doubles(value(file, "test.floats")) == std::vector<double>{0.5, -1.25});
  CHECK(value(file, "test.u8").whole() == 200);
  CHECK(value(file, "test.i8").whole() == -100);
  CHECK(value(file, "test.u16").whole() == 60000);
  CHECK(value(file, "test.i16").whole() == -30000);
  CHECK(value(file, "test.u64").whole() == std::numeric_limits<std::int64_t>::max());
  CHECK(value(file, "test.i64").whole() == -(std::int64_t{1} << 62));
  CHECK(value(file, "test.f64").number() == 0.1);
  CHECK(file.layout().find("test") == nullptr);
  CHECK(same_bits(file.read("f32"), numbers({3, 5})));
  CHECK(same_bits(file.read("f16"), cast(numbers({7}), DType::f16)));
  CHECK(same_bits(file.read("bf16"), cast(numbers({2, 3, 4}), DType::bf16)));
  CHECK(file.find("q8_0")->storage == GgufStorage::q8_0);
  CHECK(file.find("q8_0")->shape == Shape{4, 96});
  CHECK(relative_difference(cast(file.read("q8_0"), DType::f64), cast(numbers({4, 96}), DType::f64)) < 0.01);
  CHECK(says(error_of([&] { file.read("absent"); }, ExitCode::data), "there is no tensor \"absent\""));
}

TEST_CASE("the same values and tensors make the same file, byte for byte") {
  const GgufFile file(golden);
  GgufValues values;
  const std::vector<std::string> three = {"a", "", "ccc"};
  const std::vector<std::int32_t> whole = {1, -2, 3};
  const std::vector<float> floats = {0.5F, -1.25F};
  for (const auto& [key, each] : file.layout().values) {
    if (key == "general.architecture")
      values.add(key, "llama");
    else if (key == "test.u32")
      values.add(key, std::uint32_t{4000000000});
    else if (key == "test.i32")
      values.add(key, std::int32_t{-5});
    else if (key == "test.f32")
      values.add(key, 0.1F);
    else if (key == "test.true")
      values.add(key, true);
    else if (key == "test.texts")
      values.add(key, three);
    else if (key == "test.numbers")
      values.add(key, whole);
    else if (key == "test.floats")
      values.add(key, floats);
    else
      values.add(key, each);
  }
  const TempFolder folder;
  GgufWriter writer(folder / "again.gguf", values,
                    {{"f32", GgufStorage::f32, {3, 5}},
                     {"f16", GgufStorage::f16, {7}},
                     {"bf16", GgufStorage::bf16, {2, 3, 4}},
                     {"q8_0", GgufStorage::q8_0, {4, 96}}});
  writer.write(numbers({3, 5}));
  writer.write(cast(numbers({7}), DType::f64));
  writer.write(numbers({2, 3, 4}));
  writer.write(view::transpose(contiguous(view::transpose(numbers({4, 96}), 0, 1)), 0, 1));
  writer.commit();
  CHECK(read_file(folder / "again.gguf") == read_file(golden));
}

TEST_CASE("Q8_0: an error is below 0.0045 of the largest of 32 neighbours") {
  const TempFolder folder;
  Tensor x = Tensor::randn({64, 256}, 5);
  x.data<float>()[7] = 900;
  for (std::int64_t i = 0; i < 32; ++i) x.data<float>()[512 + i] = 0;
  GgufWriter writer(folder / "x.gguf", {}, {{"x", GgufStorage::q8_0, {64, 256}}});
  writer.write(x);
  writer.commit();
  const Tensor y = GgufFile(folder / "x.gguf").read("x");
  double squares = 0, all = 0;
  for (std::int64_t block = 0; block < x.count() / 32; ++block) {
    double most = 0, off = 0;
    for (std::int64_t i = 32 * block; i < 32 * (block + 1); ++i) {
      const double a = x.data<float>()[i], d = y.data<float>()[i] - a;
      most = std::max(most, std::abs(a)), off = std::max(off, std::abs(d));
      if (block > 0) squares += d * d, all += a * a;
    }
    CHECK(off <= 0.0045 * most);
  }
  CHECK(std::sqrt(squares / all) < 0.0065);
  MESSAGE("relative error of normal numbers: ", std::sqrt(squares / all));
  CHECK(largest(view::slice(view::reshape(y, {64 * 256}), 0, 512, 32)) == 0);

  x.data<float>()[100] = std::numeric_limits<float>::infinity();
  CHECK(says(error_of([&] { to_q8_0(x, "x"); }, ExitCode::data), "among elements 96 to 127"));
  x.data<float>()[100] = 1e9F;
  CHECK(says(error_of([&] { to_q8_0(x, "x"); }, ExitCode::data), "store the tensors as F32 or BF16"));
}

TEST_CASE("a rectangle of a stored tensor is that of the whole one, also within blocks") {
  const GgufFile file(golden);
  for (const char* name : {"q8_0", "f32", "bf16", "f16"}) {
    const Tensor whole = file.read(name);
    for (std::int64_t begin = 0; begin < whole.size(-1); begin += 5)
      for (std::int64_t length = 1; begin + length <= whole.size(-1); length += 13) {
        Shape start = whole.shape(), shape = whole.shape().with(-1, length);
        for (int dim = 0; dim < start.dims(); ++dim) start = start.with(dim, 0);
        start = start.with(-1, begin);
        if (whole.dims() > 1) start = start.with(0, 1), shape = shape.with(0, whole.size(0) - 1);
        Tensor part = Tensor::empty(shape, whole.dtype()), expected = whole;
        file.read(name, start, part);
        for (int dim = 0; dim < start.dims(); ++dim) expected = view::slice(expected, dim, start[dim], shape[dim]);
        CHECK(same_bits(part, contiguous(expected)));
      }
  }
}

}  // namespace gguf_test
