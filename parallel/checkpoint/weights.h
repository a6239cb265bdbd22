// Weights in one .safetensors file, which other programs read: whole tensors, on any mesh. The first rank of the group
// writes the file; the others send it their parts. Each rank reads only what it holds.
//
// nn/weights.h has functions that take a module or a model. A checkpoint, with the optimizer's state and one file for
// each rank, is another thing: parallel/checkpoint/saver.h.
// Read next: parallel/checkpoint/weights.cpp, data/safetensors.h.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "parallel/checkpoint/held_tensor.h"
#include "parallel/parameters/unit.h"

namespace trireme::checkpoint {

/// The name in the file of the tensor that has this name in the module; empty: the tensor is left out.
using NameInFile = std::function<std::string(const std::string& name)>;

/// How names and dtypes in the file differ from the module's.
struct SaveOptions {
  std::string prefix = {};          ///< before each name
  NameInFile name_in_file = {};     ///< given the name without the prefix; undefined: as in the module
  std::optional<DType> dtype = {};  ///< of floating tensors in the file; none: their own
  std::map<std::string, std::string> metadata = {{"format", "pt"}};  ///< as the Python packages expect it
};

/// How names in the file differ from the module's, and what may be missing.
struct LoadOptions {
  bool strict = true;       ///< throw if the module has a tensor that the file lacks, or the file one that is not used
  std::string prefix = {};  ///< before each name; tensors without it are not looked at
  NameInFile name_in_file = {};  ///< given the name without the prefix; undefined: as in the module
};

/// Names are as in the file, without the prefix.
struct LoadReport {
  /// A tensor that does not fit.
  struct WrongShape {
    std::string name;
    Shape in_file, expected;
  };
  std::vector<std::string> loaded;
  std::vector<std::string> missing;  ///< in the file; the module keeps its values
  std::vector<std::string> extra;    ///< in the file, and not used
  std::vector<WrongShape> wrong_shape;
  std::vector<std::string> wrong_dtype;  ///< integers for floating numbers, or the reverse
};

/// What this rank holds of them, between steps. Names lose `base` and a dot. Completes gathers of ZeRO first:
/// collective over the mesh.
std::vector<HeldTensor> held_weights(const ParameterList& parameters, const BufferList& buffers, Units& units,
                                     const DeviceMesh& mesh, std::string_view base);

/// Writes one file: complete or absent, with tensors of 8 bytes before those of 4 and 2, and by name. The bytes do not
/// depend on the mesh. Collective over `group`, whose ranks hold all parts. Throws on all ranks ExitCode::io if it
/// cannot be written, and ExitCode::usage if two tensors get one name.
void write_weights(const std::filesystem::path& path, const std::vector<HeldTensor>& held, ProcessGroup& group,
                   const SaveOptions& options);

/// Fills the tensors that this rank holds; converts between floating dtypes, and between integers. Collective over
/// `group`. Before it writes to any tensor it compares all names and shapes, and throws on all ranks ExitCode::data if
/// a shape or kind of dtype differs, or with `strict` if a tensor is missing or extra; the message lists all of them.
LoadReport read_weights(const std::filesystem::path& path, const std::vector<HeldTensor>& held, ProcessGroup& group,
                        const LoadOptions& options);

}  // namespace trireme::checkpoint
