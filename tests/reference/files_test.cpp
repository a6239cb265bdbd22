// The examples of the reference: tensors in files, and in the memory of other libraries.
#include <doctest/doctest.h>

#include "autograd/ops.h"
#include "data/dlpack.h"
#include "data/npy.h"
#include "data/safetensors.h"
#include "tests/support/files.h"

using namespace trireme;

TEST_CASE("reference: NumPy's files") {
  const testing::TempFolder folder;
  const std::filesystem::path path = folder.path();
  const Tensor x = Tensor::randn({3, 4}, 1), y = Tensor::arange(5);
  //! [npy]
  write_npy(path / "x.npy", x);                                            // np.load("x.npy")
  write_npz(path / "both.npz", {{"x", x}, {"y", y}});                      // np.load("both.npz")["y"]
  const Tensor read = read_npy(path / "x.npy");                            // [3, 4]
  const std::map<std::string, Tensor> both = read_npz(path / "both.npz");  // also what np.savez writes
  //! [npy]
  CHECK(sum(square(read - x)).item() == 0);
  CHECK(both.at("y").dtype() == DType::i32);
}

TEST_CASE("reference: safetensors") {
  const testing::TempFolder folder;
  const std::filesystem::path path = folder.path() / "weights.safetensors";
  const Tensor weight = Tensor::randn({3, 4}, 1);
  //! [safetensors]
  SafetensorsWriter writer(path, {{.name = "weight", .dtype = weight.dtype(), .shape = weight.shape()}}, {});
  writer.write(weight);
  writer.commit();  // the file has its name from here on

  const SafetensorsFile file(path);  // mapped; reading a tensor reads its pages only
  for (const std::string& name : file.names()) {
    const Tensor tensor = file.read(name);
    CHECK(tensor.shape() == file.shape(name));
  }
  //! [safetensors]
}

TEST_CASE("reference: DLPack") {
  const Tensor x = Tensor::randn({3, 4}, 1);
  //! [dlpack]
  dlpack::ManagedTensor* exported = dlpack::to_dlpack(x);  // shares x's memory; give it to another library
  const Tensor copy = dlpack::from_dlpack(exported);       // of another library: a copy, and calls its deleter
  //! [dlpack]
  CHECK(sum(square(copy - x)).item() == 0);
}
