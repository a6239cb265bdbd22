#include "autograd/saved_versions.h"

#include <string>
#include <utility>

namespace trireme {

void SavedVersions::add(const Tensor& x, const char* what, int number) {
  if (x.defined()) saved_.push_back({x.storage(), x.version(), x.shape(), what, number});
}

void SavedVersions::check(const char* operation, bool keep) {
  for (const Saved& saved : keep ? saved_ : std::exchange(saved_, {})) {
    const auto storage = saved.storage.lock();
    if (storage == nullptr || storage->version() == saved.version) continue;
    const std::string which =
        saved.number < 0 ? std::string(saved.what) : fmt::format("{} {}", saved.what, saved.number);
    fail(ExitCode::internal, operation,
         "{} {} was written to between forward and backward, which needs the values that forward saved; expected "
         "version {} of its storage, got version {}; change a copy of it (clone), or call backward before. A pointer "
         "from data(), span() or raw() of a Tensor variable that is not const counts as a write; to read only, ask for "
         "data<const float>(), or call them on a const Tensor",
         which, saved.shape, saved.version, storage->version());
  }
}

}  // namespace trireme
