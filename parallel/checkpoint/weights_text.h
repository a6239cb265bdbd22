// How ranks tell each other which tensors they hold: lines of text. For parallel/checkpoint/weights*.cpp.
#pragma once

#include <istream>
#include <string>

#include "parallel/checkpoint/weights.h"

namespace trireme::checkpoint {

/// The number of dims, and the extents: "2 3 4".
std::string numbers(const Shape& shape);
/// Reads what write_shape() wrote.
Shape parse_shape(std::istream& in);

/// The name in the file; empty: the tensor is left out. Throws ExitCode::usage, naming `where`, for one with line ends.
std::string stored_name(const HeldTensor& tensor, const NameInFile& change, const char* where);

}  // namespace trireme::checkpoint
