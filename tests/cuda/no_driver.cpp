// A stand-in for the CUDA driver on machines without one, for cudnn_library_test.cpp. It has no device, and accepts any
// program that is loaded without looking at it. When cuDNN makes a plan, it opens libcuda.so.1 and loads the kernel
// that it has compiled; the rest of a plan needs neither driver nor GPU.
extern "C" {

namespace {
int something;
constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE
}  // namespace

int cuInit(unsigned) { return kNoDevice; }
int cuDeviceGetCount(int* count) {
  *count = 0;
  return kNoDevice;
}
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
int cuGetErrorString(int, const char** text) {
  *text = "an error of the stand-in for the CUDA driver";
  return 0;
}
int cuGetErrorName(int, const char** text) { return cuGetErrorString(0, text); }
int cuLibraryLoadData(void** library, ...) {
  *library = &something;
  return 0;
}
int cuLibraryGetKernel(void** kernel, ...) {
  *kernel = &something;
  return 0;
}
int cuLibraryUnload(void*) { return 0; }

// Looked up but not called.
#define NO_DRIVER(name) \
  int name() { return kNoDevice; }
NO_DRIVER(cuCtxGetCurrent)
NO_DRIVER(cuCtxGetLimit)
NO_DRIVER(cuCtxPopCurrent)
NO_DRIVER(cuCtxPushCurrent)
NO_DRIVER(cuDeviceGet)
NO_DRIVER(cuKernelGetAttribute)
NO_DRIVER(cuKernelSetAttribute)
NO_DRIVER(cuLaunchCooperativeKernel)
NO_DRIVER(cuLaunchKernel)
NO_DRIVER(cuLaunchKernelEx)
NO_DRIVER(cuLibraryLoadFromFile)
NO_DRIVER(cuLinkAddData)
NO_DRIVER(cuLinkComplete)
NO_DRIVER(cuLinkCreate)
NO_DRIVER(cuLinkDestroy)
NO_DRIVER(cuOccupancyMaxPotentialClusterSize)
NO_DRIVER(cuStreamGetCtx)

}  // extern "C"
