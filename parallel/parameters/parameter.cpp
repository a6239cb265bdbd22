#include "parallel/parameters/parameter.h"

#include "autograd/engine.h"

namespace trireme {

const Tensor& Parameter::value() const {
  if (unit != nullptr && !unit->in_use && !in_backward())
    fail(ExitCode::internal, "unit",
         "{} is read outside a use of its unit '{}': under ZeRO its value may be missing or of an earlier step; "
         "expected a read inside a use; call the module that begins the unit, or read the value inside the function "
         "that is given to Build::use_unit()",
         name, unit->name);
  return local;
}

}  // namespace trireme
