// Reads the weights of a model from another program's tensors, and gives them back, by a WeightMap. On any mesh: each
// rank reads only what it holds, and the first rank gets whole tensors for a file, one after another.
//
//   require_fit(source, map, ignored);                                   // before memory is taken for the model
//   read_weights(source, map, nn::detail::held_weights(model).tensors, world);
//   write_weights(held, map, world, [&](const std::string& name, const Tensor& whole) { file.write(whole); });
//
// The file's format is behind TensorSource.
// Read next: models/weight_map.h, models/hugging_face/folder.h.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/weight_map.h"
#include "parallel/checkpoint/held_tensor.h"

namespace trireme {

/// Tensors of another program, by name.
class TensorSource {
 public:
  /// What is known of a tensor before it is read.
  struct Stored {
    DType dtype = DType::f32;
    Shape shape;
  };

  virtual ~TensorSource() = default;
  TensorSource(const TensorSource&) = delete;
  TensorSource& operator=(const TensorSource&) = delete;

  virtual std::string path() const = 0;                                 ///< for messages
  virtual std::vector<std::string> names() const = 0;                   ///< of all tensors, sorted
  virtual std::optional<Stored> find(std::string_view name) const = 0;  ///< nothing: there is no such tensor
  /// Fills `into`, dense, on the host and of the dtype that find() gave, with the rectangle that begins at `start`.
  virtual void read(std::string_view name, const Shape& start, Tensor& into) const = 0;
  virtual void require_whole()
      const = 0;  ///< throws ExitCode::data if a file has become shorter; call it after reading

 protected:
  TensorSource() = default;
};

/// Whether a tensor that the map does not use may be there.
using Ignored = std::function<bool(const std::string& name)>;

/// Throws ExitCode::data, with all of them by name, if tensors are missing, have another shape, hold integers, or are
/// neither used by the map nor ignored. `where` begins the message.
void require_fit(const TensorSource& source, const WeightMap& map, const Ignored& ignored, const char* where);

/// Called with the bytes of this rank's weights that are read so far.
using ReadProgress = std::function<void(std::uint64_t bytes)>;

/// Fills `held`, what this rank holds of the model's weights, and converts floating dtypes. require_fit() must have
/// passed. What the map does not name keeps its values. What needs no conversion is read in place, everything else
/// `bytes_at_once` at a time, or whole heads; so it needs little memory besides the weights. Collective over `group`.
/// Throws ExitCode::data on all ranks if a file is cut short while it is read.
void read_weights(const TensorSource& source, const WeightMap& map, const std::vector<checkpoint::HeldTensor>& held,
                  ProcessGroup& group, const ReadProgress& progress = {}, std::int64_t bytes_at_once = 16 << 20);

/// A tensor of the other program, for the header of a file.
struct TheirTensor {
  std::string name;
  Shape shape;
};
/// All tensors of a map, in the order in which write_weights() gives them.
std::vector<TheirTensor> their_tensors(const WeightMap& map);

/// Calls `write` on the first rank of the group with each of their_tensors(), whole and dense, in `dtype`. Needs memory
/// for one tensor there, and for those of ours that it is made of. Collective. Throws on all ranks what `write` throws.
/// With `adapter_scale` (nn::LoraOptions::scale()) above 0, weights get their adapters added.
void write_weights(const std::vector<checkpoint::HeldTensor>& held, const WeightMap& map, ProcessGroup& group,
                   DType dtype, const std::function<void(const std::string& name, const Tensor& whole)>& write,
                   double adapter_scale = 0);

}  // namespace trireme
