// HostCopy: the values of a tensor, read later. The copy from a device is queued when it is made; get() waits for this
// copy only, not for what was queued after it. So the host can queue more work before it reads a number.
//
//   HostCopy loss(there);        // queued behind the kernels that compute it
//   ...                          // more kernels
//   loss.get().item();           // the host waits until the copy has arrived; the later kernels go on
#pragma once

#include <memory>

#include "core/tensor.h"

namespace trireme {

class HostCopy {
 public:
  /// Of a tensor on the host: the tensor itself.
  explicit HostCopy(const Tensor& x);
  const Tensor& get();  ///< dense, on the host

 private:
  Tensor here_;  // outlives the download
  std::unique_ptr<DeviceBackend::Download> under_way_;
};

}  // namespace trireme
