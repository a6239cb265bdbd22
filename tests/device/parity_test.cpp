// A mesh of ranks that share one emulated GPU equals one rank on the CPU: every kernel that training uses, every axis,
// and what moves tensors between ranks.
#include "cuda/runtime/emulated.h"
#include "parallel/comm/staged_group.h"
#include "parallel/comm/verifying_group.h"
#include "tests/comm/fake_machine.h"
#include "tests/parity/compare.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

GptOptions options(const std::string& mesh, std::int64_t micro_batches = 2) {
  GptOptions o = training_options(mesh, micro_batches);
  o.model.config.layers = 2;
  o.model.config.width = 32;
  o.precision.device = name(Device::cuda);
  return o;
}

ParityReport compare(const GptOptions& o) {
  const cuda::ScopedEmulatedDevice device;
  return compare_with_one_rank(o, [](auto world) { return staged(world); });
}

void check_equal(const GptOptions& o, const std::string& what) {
  const ParityReport report = compare(o);
  CHECK_MESSAGE(report.largest() <= parity_tolerance, what, "\n", parity_table(report, 5));
}

GptOptions llama(const std::string& mesh) {
  GptOptions o = options(mesh);
  o.model.config.norm = Norm::rms;
  o.model.config.positions = PositionEncoding::rope;
  o.model.config.activation = Activation::swiglu;
  o.model.config.kv_heads = 2;
  o.model.config.bias = false;
  return o;
}

}  // namespace

TEST_CASE("device: one rank, and each axis by itself") {
  for (const std::string& mesh : Meshes{"dp=1", "dp=2", "tp=2", "pp=2", "cp=2"}) check_equal(options(mesh), mesh);
}

TEST_CASE("device: the parts of later decoders; capped scores are refused") {
  for (const std::string& mesh : Meshes{"dp=1", "tp=2", "cp=2"}) {
    GptOptions o = llama(mesh);
    GptConfig& c = o.model.config;
    c.rope_scaling = "yarn:4,8";
    c.rope_interleaved = true;
    c.qk_norm = true;
    c.window = 5;
    c.full_every = 2;
    c.logit_softcap = 3;
    c.activation = Activation::geglu;
    c.document_separator = 0;
    c.restart_positions = true;
    check_equal(o, mesh);
    c.attention_softcap = 3;
    CHECK_THROWS_WITH_AS(compare(o), doctest::Contains("--attention-softcap 3 on a GPU"), Error);
  }
}

// Tensors move between GPUs as with NCCL. The fake in its place delays operations that are under way.
TEST_CASE("device: messages and collectives between GPUs") {
  for (const std::string& mesh : Meshes{"dp=2", "tp=2", "pp=2", "cp=2", "dp=2,tp=2,pp=2"}) {
    const cuda::ScopedEmulatedDevice device;
    Machine machine;
    GptOptions o = options(mesh);
    const ParityReport report = compare_with_one_rank(o, [&](auto world) { return machine.group(world); });
    CHECK_MESSAGE(report.largest() <= parity_tolerance, mesh, "\n", parity_table(report, 5));
    CHECK(machine.told == 0);
    CHECK(machine.fabric->communicators() == 0);
  }
}

TEST_CASE("device: with --reduction fast NCCL adds, and all copies stay equal") {
  for (const std::string& mesh : Meshes{"dp=4", "tp=4"}) {
    const cuda::ScopedEmulatedDevice device;
    Machine machine;
    machine.fastest = SumOrder::any;
    GptOptions o = options(mesh);
    o.mesh.zero = mesh == "dp=4" ? 2 : 0;
    o.mesh.sequence_parallel = mesh == "tp=4";
    const ParityReport report = compare_with_one_rank(o, [&](auto world) { return verifying(machine.group(world)); });
    CHECK_MESSAGE(report.largest() <= parity_tolerance, mesh, "\n", parity_table(report, 5));
    CHECK(machine.told == 0);
  }
}

TEST_CASE("device: three axes at once") { check_equal(options("dp=2,tp=2,pp=2"), "dp=2,tp=2,pp=2"); }

TEST_CASE("device: Llama's parts, and documents kept apart") {
  check_equal(llama("tp=2"), "llama, tp=2");
  GptOptions o = llama("cp=2");
  o.model.config.document_separator = 0;
  check_equal(o, "llama, cp=2, documents");
}

TEST_CASE("device: a mixture of experts") {
  GptOptions o = options("dp=2,ep=2");
  o.model.config.experts = {.count = 4, .top_k = 2, .capacity_factor = 1.0, .shared = 1};
  o.model.config.experts.bias_update = 0.001;
  check_equal(o, "dp=2,ep=2");
}

TEST_CASE("device: ZeRO, recomputation and dropout") {
  for (const int stage : {1, 3}) {
    GptOptions o = options("dp=2");
    o.mesh.zero = stage;
    o.precision.recompute = stage == 1 ? "full" : "selective";
    o.model.config.dropout = 0.1;
    check_equal(o, fmt::format("ZeRO-{}", stage));
  }
}

namespace {

/// How far a mesh of four ranks in 16 bits is from f32, relative to one rank in 16 bits.
double ratio_in_16_bits(const std::string& mesh, DType dtype, const WrapWorld& wrap) {
  GptOptions o = options(mesh);
  o.precision.dtype = dtype;
  resolve(o, 0);
  const auto reference = parity_reference(in_f32(o), gpt_parity(o.model.config));
  const ParityReport one_rank = Parity(on_one_rank(o), reference).compare(self_group());
  const cuda::ScopedEmulatedDevice device;
  const Parity parity(o, reference);
  double ratio = 0;
  run_thread_ranks(4, 1, ProcessGroup::Deadline(1800), [&](const std::shared_ptr<ProcessGroup>& world) {
    const ParityReport report = parity.compare(wrap(world));
    if (world->rank() == 0) ratio = rounding_ratio(report, one_rank, dtype);
  });
  return ratio;
}

}  // namespace

TEST_CASE("device: in 16 bits a mesh is no farther from f32 than rounding explains") {
  const auto by_host = [](auto world) { return staged(world); };
  CHECK(ratio_in_16_bits("dp=2,tp=2", DType::bf16, by_host) <= most_rounding_ratio);
  CHECK(ratio_in_16_bits("dp=2,tp=2", DType::f16, by_host) <= most_rounding_ratio);
  Machine machine;
  machine.fastest = SumOrder::any;  // NCCL adds activations in 16 bits
  const auto by_nccl = [&](auto world) { return machine.group(world); };
  CHECK(ratio_in_16_bits("tp=4", DType::bf16, by_nccl) <= most_rounding_ratio);
}
