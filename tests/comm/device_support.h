// What the tests of groups for GPU tensors share.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "core/error.h"
#include "core/tensor.h"

namespace trireme::testing {

/// Whether the message has this text; shows it when not.
inline bool says(const Error& error, const char* text) {
  const bool found = std::string(error.what()).find(text) != std::string::npos;
  if (!found) MESSAGE(error.what());
  return found;
}

inline Tensor on_device(const Shape& shape, double value) { return Tensor::full(shape, value).to(Device::cuda); }

}  // namespace trireme::testing
