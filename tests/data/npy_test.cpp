// .npy and .npz files: what NumPy wrote, what we write, and what is refused.
#include "data/npy.h"

#include <cstdlib>

#include "core/io.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

using namespace trireme;
using namespace trireme::testing;

namespace npy_test {
namespace {

const std::filesystem::path golden = "tests/golden";  // made by make_npy.py there

/// 0, 1, 2, .. in the order of the indices.
bool counts(const Tensor& x, const Shape& shape) {
  if (x.shape() != shape) return false;
  const Tensor values = contiguous(cast(x, DType::f64));
  for (std::int64_t i = 0; i < values.count(); ++i)
    if (values.data<double>()[i] != static_cast<double>(i)) return false;
  return true;
}

constexpr DType written[] = {DType::f64, DType::f32, DType::f16, DType::i64, DType::i32, DType::u8};

/// Runs a line of Python with numpy as np; false, with a message, if that is not installed.
bool numpy(const std::string& line) {
  if (std::system("python3 -c 'import numpy' 2>/dev/null") != 0) {
    MESSAGE("skipped: python3 has no package numpy");
    return false;
  }
  CHECK(std::system(("python3 -c \"import numpy as np; " + line + "\"").c_str()) == 0);
  return true;
}

}  // namespace

TEST_CASE("arrays that NumPy wrote are read") {
  const Tensor fortran = read_npy(golden / "fortran.npy");
  CHECK(fortran.dtype() == DType::f64);
  CHECK(fortran.contiguous());
  CHECK(counts(fortran, {2, 3, 4}));
  CHECK(counts(read_npy(golden / "version2.npy"), {5}));
  const auto arrays = read_npz(golden / "arrays.npz");
  CHECK(arrays.size() == 9);
  for (const auto& [name, dtype] : std::map<std::string, DType>{{"float64", DType::f64},
                                                                {"float32", DType::f32},
                                                                {"float16", DType::f16},
                                                                {"int64", DType::i64},
                                                                {"int32", DType::i32},
                                                                {"uint8", DType::u8}}) {
    CHECK(arrays.at(name).dtype() == dtype);
    CHECK(counts(arrays.at(name), {2, 3}));
  }
  CHECK(arrays.at("scalar").item() == 7);
  CHECK(arrays.at("scalar").dims() == 0);
  CHECK(arrays.at("empty").shape() == Shape{0, 3});
  CHECK(arrays.at("strided").data<float>()[1] == 2);
}

TEST_CASE("arrays of NumPy that no tensor can hold are refused with a remedy") {
  CHECK(says(error_of([] { read_npy(golden / "big_endian.npy"); }, ExitCode::data), "change the byte order"));
  CHECK(says(error_of([] { read_npy(golden / "structured.npy"); }, ExitCode::data), "save its fields one by one"));
  CHECK(says(
      error_of([] { read_npz(golden / "compressed.npz"); }, ExitCode::data),
      "tests/golden/compressed.npz byte 130: \"a.npy\" is compressed (method 8); expected stored arrays; write them "
      "with np.savez"));
  CHECK(
      says(error_of([] { read_npz(golden / "fortran.npy"); }, ExitCode::data), "expected a file that np.savez wrote"));
  CHECK(says(error_of([] { read_npy(golden / "arrays.npz"); }, ExitCode::data), "expected a file that np.save wrote"));
  error_of([] { read_npy(golden / "absent.npy"); }, ExitCode::io);
}

TEST_CASE("what is written is read again bit by bit, whatever its strides") {
  const TempFolder folder;
  for (const DType dtype : written) {
    const Tensor x = is_floating(dtype) ? random({3, 5, 2}, 1, dtype) : cast(random_ids({3, 5, 2}, 1, 0, 200), dtype);
    write_npy(folder / "x.npy", x);
    CHECK(same_bits(read_npy(folder / "x.npy"), x));
    write_npy(folder / "x.npy", view::transpose(x, 0, 2));
    CHECK(same_bits(read_npy(folder / "x.npy"), view::transpose(x, 0, 2)));
  }
  for (const Shape& shape : {Shape{}, Shape{7}, Shape{0, 3}, Shape{1, 1, 1, 1, 1, 2}}) {
    write_npy(folder / "x.npy", Tensor::full(shape, 2));
    CHECK(same_bits(read_npy(folder / "x.npy"), Tensor::full(shape, 2)));
  }
  const Tensor a = random({4, 3}, 1), b = random_ids({2}, 2, 0, 9);
  write_npz(folder / "all.npz", {{"a", a}, {"layer/b \xC3\xA9", b}, {"empty", Tensor::zeros({0})}});
  const auto all = read_npz(folder / "all.npz");
  CHECK(all.size() == 3);
  CHECK(same_bits(all.at("a"), a));
  CHECK(same_bits(all.at("layer/b \xC3\xA9"), b));
  write_npz(folder / "none.npz", {});
  CHECK(read_npz(folder / "none.npz").empty());
}

TEST_CASE("NumPy reads what is written, if it is installed") {
  const TempFolder folder;
  write_npy(folder / "x.npy", view::transpose(counting({2, 3}), 0, 1));
  if (!numpy(fmt::format("x = np.load('{}'); assert x.dtype == np.int32 and x.tolist() == [[0, 3], [1, 4], [2, 5]]",
                         (folder / "x.npy").string())))
    return;
  write_npz(folder / "all.npz", {{"a", Tensor::full({2}, 3, DType::f16)}, {"b", Tensor::full({}, 4, DType::f64)}});
  numpy(
      fmt::format("z = np.load('{}'); assert sorted(z.files) == ['a', 'b'] and z['a'].dtype == np.float16 and "
                  "z['a'].tolist() == [3, 3] and z['b'].shape == () and z['b'] == 4",
                  (folder / "all.npz").string()));
}

TEST_CASE("what NumPy cannot hold is refused, and no file is left") {
  const TempFolder folder;
  const Tensor x = Tensor::zeros({2}, DType::bf16);
  CHECK(says(error_of([&] { write_npy(folder / "x.npy", x); }, ExitCode::usage),
             "[npy] NumPy has no bf16; expected f64, f32, f16, i64, i32 or u8; cast(x, DType::f32) first"));
  CHECK(says(error_of([&] { write_npz(folder / "x.npz", {{"x", x}}); }, ExitCode::usage), "NumPy has no bf16"));
  const Tensor y = Tensor::zeros({2});
  CHECK(says(error_of(
                 [&] {
                   write_npz(folder / "x.npz", {{"y", y}, {"y", y}});
                 },
                 ExitCode::usage),
             "[npz] an array named \"y\"; expected names of 1 to 1000 bytes in UTF-8, each once"));
  CHECK(list_folder(folder.path()).empty());
}

TEST_CASE("the checksum is CRC-32") {
  CHECK(crc32("123456789") == 0xCBF43926U);
  CHECK(crc32("") == 0);
}

}  // namespace npy_test
