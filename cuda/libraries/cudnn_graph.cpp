#include "cuda/libraries/cudnn_graph.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/error.h"

namespace trireme::cuda {

void check_cudnn(cudnnStatus_t status, std::string_view call, const char* file, int line, std::string_view what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 1024> words{};
  cudnnGetLastErrorString(words.data(), words.size());
  const bool transient = status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
  fail(transient ? ExitCode::retryable : ExitCode::internal, call.substr(0, call.find('(')),
       "{}: {}; {}, at {}:{}, in cuDNN {}; choose another --attention", cudnnGetErrorString(status), words.data(), what,
       file, line, cudnnGetVersion());
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type, std::string_view what) : what_(what) {
  TRIREME_CUDNN(cudnnBackendCreateDescriptor(type, &descriptor_), what_);
}
CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_ != nullptr) cudnnBackendDestroyDescriptor(descriptor_);
}
CudnnDescriptor& CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                      std::int64_t count, const void* values) {
  TRIREME_CUDNN(cudnnBackendSetAttribute(descriptor_, name, type, count, values), what_);
  return *this;
}
CudnnDescriptor& CudnnDescriptor::set(cudnnBackendAttributeName_t name, std::int64_t value) {
  return set(name, CUDNN_TYPE_INT64, 1, &value);
}
CudnnDescriptor& CudnnDescriptor::set(cudnnBackendAttributeName_t name, bool value) {
  return set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
}
CudnnDescriptor& CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
  return set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}
CudnnDescriptor& CudnnDescriptor::set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
  return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.descriptor_);
}
CudnnDescriptor& CudnnDescriptor::finalize() {
  TRIREME_CUDNN(cudnnBackendFinalize(descriptor_), what_);
  return *this;
}

CudnnDescriptor cudnn_properties(std::string_view json, std::string_view what) {
  CudnnDescriptor properties(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, what);
  properties
      .set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, static_cast<std::int64_t>(json.size()),
           json.data())
      .finalize();
  return properties;
}

namespace {

cudnnDataType_t library_type(SdpaElement type) {
  switch (type) {
    case SdpaElement::bf16:
      return CUDNN_DATA_BFLOAT16;
    case SdpaElement::f16:
      return CUDNN_DATA_HALF;
    case SdpaElement::f32:
      return CUDNN_DATA_FLOAT;
    case SdpaElement::i32:
      return CUDNN_DATA_INT32;
    case SdpaElement::boolean:
      return CUDNN_DATA_BOOLEAN;
  }
  fail(ExitCode::internal, "attention", "element type {}; expected one of SdpaElement", static_cast<int>(type));
}

cudnnPointwiseMode_t pointwise_mode(SdpaOp op) {
  switch (op) {
    case SdpaOp::add:
      return CUDNN_POINTWISE_ADD;
    case SdpaOp::subtract:
      return CUDNN_POINTWISE_SUB;
    case SdpaOp::multiply:
      return CUDNN_POINTWISE_MUL;
    case SdpaOp::divide:
      return CUDNN_POINTWISE_DIV;
    case SdpaOp::exponential:
      return CUDNN_POINTWISE_EXP;
    case SdpaOp::logarithm:
      return CUDNN_POINTWISE_LOG;
    case SdpaOp::greater_equal:
      return CUDNN_POINTWISE_CMP_GE;
    case SdpaOp::select:
      return CUDNN_POINTWISE_BINARY_SELECT;
    case SdpaOp::index:
      return CUDNN_POINTWISE_GEN_INDEX;
    default:
      fail(ExitCode::internal, "attention", "operation {} is not pointwise", static_cast<int>(op));
  }
}

/// Ids of tensors without memory begin here.
constexpr std::int64_t kFirstInside = 1000;

CudnnDescriptor tensor(const SdpaNode& node, std::size_t index, std::string_view what) {
  const bool is_virtual = node.id == SdpaId::none;
  CudnnDescriptor result(CUDNN_BACKEND_TENSOR_DESCRIPTOR, what);
  result
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID,
           is_virtual ? kFirstInside + static_cast<std::int64_t>(index) : static_cast<std::int64_t>(node.id))
      .set(CUDNN_ATTR_TENSOR_DATA_TYPE, library_type(node.type))
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, node.at.dims.data())
      .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, node.at.strides.data())
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{16})
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_virtual)
      .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, is_scalar(node.id))
      .finalize();
  return result;
}

/// One operation. `tensors`: the descriptors of the graph's nodes. `settings` keeps alive what the operation refers to.
CudnnDescriptor operation(const SdpaOperation& o, const std::vector<CudnnDescriptor>& tensors,
                          std::vector<CudnnDescriptor>& settings, std::string_view what) {
  const auto setting = [&](cudnnBackendDescriptorType_t type) -> CudnnDescriptor& {
    return settings.emplace_back(type, what);
  };
  const auto operand = [&](std::size_t i) -> const CudnnDescriptor& { return tensors[o.operands[i]]; };
  const CudnnDescriptor& y = tensors[o.result];
  const cudnnDataType_t precision = library_type(o.precision);
  if (o.op == SdpaOp::matmul) {
    CudnnDescriptor result(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, what);
    result.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, operand(0))
        .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, operand(1))
        .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, y)
        .set(CUDNN_ATTR_OPERATION_MATMUL_DESC,
             setting(CUDNN_BACKEND_MATMUL_DESCRIPTOR).set(CUDNN_ATTR_MATMUL_COMP_TYPE, precision).finalize())
        .finalize();
    return result;
  }
  if (o.op == SdpaOp::reduce_max || o.op == SdpaOp::reduce_sum) {
    const auto reduction = o.op == SdpaOp::reduce_max ? CUDNN_REDUCE_TENSOR_MAX : CUDNN_REDUCE_TENSOR_ADD;
    CudnnDescriptor result(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, what);
    result.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, operand(0))
        .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y)
        .set(CUDNN_ATTR_OPERATION_REDUCTION_DESC,
             setting(CUDNN_BACKEND_REDUCTION_DESCRIPTOR)
                 .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, precision)
                 .set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &reduction)
                 .finalize())
        .finalize();
    return result;
  }
  if (o.op == SdpaOp::reshape) {
    CudnnDescriptor result(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, what);
    result.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, operand(0)).set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y).finalize();
    return result;
  }
  const cudnnPointwiseMode_t mode = pointwise_mode(o.op);
  CudnnDescriptor& pointwise = setting(CUDNN_BACKEND_POINTWISE_DESCRIPTOR)
                                   .set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode)
                                   .set(CUDNN_ATTR_POINTWISE_MATH_PREC, precision);
  if (o.op == SdpaOp::index) pointwise.set(CUDNN_ATTR_POINTWISE_AXIS, std::int64_t{o.dim});
  pointwise.finalize();
  constexpr std::array names{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                             CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
  CudnnDescriptor result(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, what);
  result.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise);
  for (std::size_t i = 0; i < o.operands.size(); ++i) result.set(names[i], operand(i));
  result.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y).finalize();
  return result;
}

}  // namespace

CudnnDescriptor cudnn_operations(const SdpaGraph& graph, const CudnnDevice& device, std::string_view what) {
  std::vector<CudnnDescriptor> tensors, settings, operations;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) tensors.push_back(tensor(graph.nodes[i], i, what));
  std::vector<cudnnBackendDescriptor_t> handles;
  for (const SdpaOperation& o : graph.operations)
    handles.push_back(operations.emplace_back(operation(o, tensors, settings, what)).get());
  CudnnDescriptor result(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, what);
  result.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(handles.size()),
             handles.data());
  if (device.handle != nullptr) result.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &device.handle);
  result.finalize();
  return result;
}

namespace {

/// The library's suggestions for a graph, best first.
std::vector<CudnnDescriptor> suggestions(const CudnnDescriptor& graph, const CudnnDevice& device,
                                         cudnnBackendHeurMode_t mode, std::string_view what) {
  CudnnDescriptor search(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, what);
  search.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (device.properties != nullptr) search.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *device.properties);
  search.finalize();
  std::int64_t count = 0;
  TRIREME_CUDNN(cudnnBackendGetAttribute(search.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                         &count, nullptr),
                what);
  std::vector<CudnnDescriptor> result;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (std::int64_t i = 0; i < count; ++i)
    handles.push_back(result.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, what).get());
  TRIREME_CUDNN(cudnnBackendGetAttribute(search.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                         count, &count, handles.data()),
                what);
  while (static_cast<std::int64_t>(result.size()) > count) result.pop_back();
  return result;
}

/// False for an engine whose own notes say that its results vary from run to run.
bool repeats(const CudnnDescriptor& configuration, std::string_view what) {
  const CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR, what);
  cudnnBackendDescriptor_t handle = engine.get();
  std::int64_t count = 0;
  TRIREME_CUDNN(cudnnBackendGetAttribute(configuration.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &handle),
                what);
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  TRIREME_CUDNN(cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                         CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes.data()),
                what);
  return std::find(notes.begin(), notes.begin() + count, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) ==
         notes.begin() + count;
}

}  // namespace

CudnnPlan cudnn_plan(const CudnnDescriptor& graph, const CudnnDevice& device, std::string_view what) {
  std::string refused;
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
    for (const CudnnDescriptor& configuration : suggestions(graph, device, mode, what)) {
      if (!repeats(configuration, what)) {
        refused += " an engine's results vary from run to run;";
        continue;
      }
      CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, what);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
      if (device.handle != nullptr) plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &device.handle);
      if (device.properties != nullptr) plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *device.properties);
      if (const cudnnStatus_t status = cudnnBackendFinalize(plan.get()); status != CUDNN_STATUS_SUCCESS) {
        std::array<char, 1024> words{};
        cudnnGetLastErrorString(words.data(), words.size());
        refused += fmt::format(" {}: {};", cudnnGetErrorString(status), words.data());
        continue;
      }
      std::int64_t workspace = 0, count = 0;
      TRIREME_CUDNN(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                             &count, &workspace),
                    what);
      return {std::move(plan), workspace};
    }
  fail(ExitCode::usage, "attention", "cuDNN {} has no engine for {};{} choose another --attention", cudnnGetVersion(),
       what, refused);
}

}  // namespace trireme::cuda
