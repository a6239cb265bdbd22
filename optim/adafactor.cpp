#include "optim/adafactor.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "autograd/ops.h"
#include "core/kernels.h"
#include "optim/check_values.h"
#include "optim/whole_matrices.h"

namespace trireme::optim {
namespace {

ShardList trained(const ShardList& shards) {
  ShardList result;
  for (const ShardPtr& shard : shards)
    if (shard->parameter->requires_grad()) result.push_back(shard);
  return result;
}

/// Whether the last two dims are matrices with factored statistics. Else each row is a vector by itself, such as the
/// biases of q, k and v: the gradient of the second is rounding, and must not change the updates of the others.
bool is_factored(const Parameter& p) { return p.decay && p.local.dims() >= 2; }

std::int64_t rows_of(const Parameter& p) { return p.local.dims() == 1 ? 1 : p.global_shape[-2]; }

/// What is kept of a parameter, for all of its matrices here, f32: whole on every rank that holds a part of one.
struct Statistic {
  std::string name;                      // "row" [.., R], "column" [.., C], or of vectors "v" [.., R, C]
  std::shared_ptr<Parameter> described;  // name, shape and placements of the tensor, for checkpoints
  Tensor value, fresh;                   // fresh: of this step, of the matrices that this rank computes; else 0
  Tensor saved;                          // the part of `value` that this rank saves
};

/// A statistic of p with the extents `last` in place of its last two dims. `rows`: it has the rows of p, also the
/// padded ones.
Statistic make_statistic(const char* name, const Parameter& p, const std::vector<std::int64_t>& last, bool rows,
                         Device device) {
  const int lead = std::max(p.local.dims() - 2, 0);
  std::vector<std::int64_t> local, global, start;
  for (int dim = 0; dim < lead; ++dim) {
    local.push_back(p.local.size(dim));
    global.push_back(p.global_shape[dim]);
    start.push_back(p.rectangle.start[dim]);
  }
  for (const std::int64_t extent : last) {
    local.push_back(extent);
    global.push_back(extent);
    start.push_back(0);
  }
  const auto shape_of = [](const std::vector<std::int64_t>& extents) {
    return Shape(std::span<const std::int64_t>(extents));
  };
  Statistic s{.name = name, .described = std::make_shared<Parameter>(), .value = {}, .fresh = {}, .saved = {}};
  s.described->name = p.name;
  s.described->global_shape = shape_of(global);
  s.described->placements = {.edp = p.placements.edp, .ep = p.placements.ep};
  s.described->rectangle = {shape_of(global), shape_of(start)};
  s.described->logical_rows = lead > 0 || rows ? p.logical_rows : global[0];
  s.described->copy_of_earlier_stage = p.copy_of_earlier_stage;
  s.value = Tensor::zeros(shape_of(local), DType::f32, device);
  s.fresh = Tensor::zeros(shape_of(local), DType::f32, device);
  s.saved = s.value;
  return s;
}

/// The vectors [E, C] of experts, of which each rank of ep has its own: only their rows of `value` are used and saved.
void save_own_experts(Statistic& s, const Parameter& p) {
  const std::int64_t first = p.rectangle.start[0];
  s.saved = view::slice(s.value, 0, first, p.local.size(0));
  s.described->rectangle.start = s.described->rectangle.start.with(0, first);
}

class Adafactor final : public Optimizer {
 public:
  Adafactor(const ShardList& shards, const DeviceMesh& mesh, const AdafactorConfig& config)
      : Optimizer("adafactor", shards, {"row", "column", "v"}, config.memory,
                  [](const Parameter&) { return std::vector<std::string>(); }),
        config_(config),
        shards_(trained(shards)),
        whole_(shards_, mesh) {
    const MemoryScope scope(config.memory);
    for (const ShardPtr& shard : shards_) {
      const Parameter& p = *shard->parameter;
      const Device device = device_of(*shard);
      std::vector<Statistic>& mine = statistics_.emplace_back();
      if (is_factored(p)) {
        mine.push_back(make_statistic("row", p, {p.global_shape[-2]}, true, device));
        mine.push_back(make_statistic("column", p, {p.global_shape[-1]}, false, device));
      } else {
        const std::vector<std::int64_t> last(p.global_shape.end() - std::min(p.local.dims(), 2), p.global_shape.end());
        mine.push_back(make_statistic("v", p, last, true, device));
        if (p.local.dims() == 2 && p.placements.ep.sharded()) save_own_experts(mine.back(), p);
      }
    }
  }

  bool takes_scale_on_device() const override { return false; }
  void store_moments_in_bf16(std::uint64_t /*seed*/) override {
    fail(ExitCode::usage, "adafactor",
         "moments are to be stored in bf16, and Adafactor keeps a row and a column of each matrix; expected f32; do "
         "not call "
         "store_moments_in_bf16() (--moments bf16)");
  }
  std::vector<StateTensor> state() override {
    std::vector<StateTensor> tensors = Optimizer::state();
    for (const std::vector<Statistic>& mine : statistics_)
      for (const Statistic& s : mine) tensors.push_back({s.name, s.described.get(), s.saved, nullptr});
    return tensors;
  }

 private:
  /// Leaves the updates where the gradients were.
  void prepare(const GradientScale& scale) override {
    require(!scale.on_device.defined(), "adafactor",
            "the factor of the gradients is in a tensor; expected a number, as takes_scale_on_device() says");
    const NoGrad guard;
    const std::vector<Tensor> weights = config_.scale_by_weight ? masters() : std::vector<Tensor>();
    std::map<std::pair<std::size_t, std::int64_t>, Tensor> sizes;  // rms(W) of the matrices of this rank
    if (!weights.empty())
      whole_.read(weights, [&](const WholeMatrices::MatrixId& id, const Tensor& w) {
        sizes[{id.shard, id.index}] = root_of_mean_square(id, without_padding(id, w));
      });
    whole_.apply(gradients(), [&](const WholeMatrices::MatrixId& id, const Tensor& g) {
      Tensor update = update_of(id, without_padding(id, g) * scale.value);
      if (!weights.empty()) update = update * maximum(sizes.at({id.shard, id.index}), config_.eps2);
      return with_padding(g, update);
    });
    share_statistics();
  }

  std::vector<Tensor> gradients() {
    std::vector<Tensor> all;
    for_each_trained([&](std::size_t place, const Slot& slot) {
      all.push_back(gradients_ != nullptr ? gradients_->gradient(place) : gradient_of(*slot.shard));
    });
    return all;
  }
  std::vector<Tensor> masters() {
    if (gradients_ != nullptr) gradients_->finish_gathers();
    std::vector<Tensor> all;
    for_each_trained([&](std::size_t, const Slot& slot) {
      all.push_back(contiguous(slot.master.defined() ? slot.master : slot.shard->weights));
    });
    return all;
  }
  template <class Each>
  void for_each_trained(const Each& each) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].frozen) continue;
      require(slots_[i].shard->parameter->requires_grad(), "adafactor",
              "{} was frozen after the optimizer was made; expected the parameters that were trained then; make the "
              "optimizer after nn::freeze()",
              slots_[i].shard->parameter->name);
      each(i, slots_[i]);
    }
  }

  /// Of a matrix: []; of vectors: of each row, [R, 1].
  Tensor root_of_mean_square(const WholeMatrices::MatrixId& id, const Tensor& x) const {
    return sqrt(is_factored(*shards_[id.shard]->parameter) ? mean(square(x)) : mean(square(x), 1, true));
  }

  /// U of a whole matrix [R, C], or of R vectors, clipped. Computes their statistics.
  Tensor update_of(const WholeMatrices::MatrixId& id, const Tensor& g) {
    const Tensor s = square(g) + config_.eps1;
    Tensor u;
    if (is_factored(*shards_[id.shard]->parameter)) {
      const Tensor row = next(id, 0, mean(s, 1)), column = next(id, 1, mean(s, 0));  // [R], [C]
      u = g * unsqueeze(sqrt(mean(row) / row), 1) / sqrt(column);
    } else {
      u = g / sqrt(next(id, 0, s));
    }
    return u / maximum(root_of_mean_square(id, u) * (1 / config_.clip), 1.0);
  }

  /// The new value of a statistic of a matrix, of which `average` is this step's: [R], [C] or [R, C], without padding.
  Tensor next(const WholeMatrices::MatrixId& id, std::size_t which, const Tensor& average) {
    const double fresh = std::pow(static_cast<double>(steps()), config_.decay);  // 1 - b
    const Statistic& statistic = statistics_[id.shard][which];
    const Parameter& p = *shards_[id.shard]->parameter;
    const auto part = [&](const Tensor& all) {
      const Tensor one = average.dims() == 1
                             ? view::select(view::reshape(all, {-1, all.size(-1)}), 0, id.index)
                             : view::select(view::reshape(all, {-1, rows_of(p), all.size(-1)}), 0, id.index);
      const Tensor rows = view::slice(one, 0, 0, average.size(0));
      return average.dims() == 1 ? rows : view::slice(rows, 1, 0, average.size(1));
    };
    const Tensor value = part(statistic.value) * (1 - fresh) + average * fresh;
    Tensor kept = part(statistic.fresh);
    copy(value, kept);
    return value;
  }

  /// All ranks get the statistics that the owners of matrices have computed.
  void share_statistics() {
    std::vector<std::vector<Tensor>> fresh;
    for (const std::vector<Statistic>& mine : statistics_) {
      fresh.emplace_back();
      for (const Statistic& s : mine) fresh.back().push_back(s.fresh);
    }
    whole_.share(fresh);
    for (std::vector<Statistic>& mine : statistics_) {
      for (Statistic& s : mine) {
        copy(s.fresh, s.value);
        kernels(s.fresh.device()).fill(s.fresh, 0);
      }
    }
  }

  /// Rows of padding are the last of a matrix, or numbers of a vector; no gradient reaches them.
  Tensor without_padding(const WholeMatrices::MatrixId& id, const Tensor& whole) const {
    const Parameter& p = *shards_[id.shard]->parameter;
    if (p.local.dims() > 2) return whole;
    return contiguous(view::slice(whole, p.local.dims() == 2 ? 0 : 1, 0, p.logical_rows));
  }
  static Tensor with_padding(const Tensor& whole, const Tensor& update) {
    if (whole.shape() == update.shape()) return contiguous(update);
    Tensor all = Tensor::zeros(whole.shape(), DType::f32, whole.device());
    Tensor real = view::slice(view::slice(all, 0, 0, update.size(0)), 1, 0, update.size(1));
    copy(update, real);
    return all;
  }

  void apply(std::span<const Operands> operands, double lr, const GradientScale& /*scale*/) override {
    std::vector<SgdUpdate> updates;
    for (const Operands& o : operands)
      updates.push_back({.gradient = o.gradient,
                         .weight = o.master,
                         .low = o.low_precision,
                         .weight_decay = o.decay * config_.weight_decay});
    kernels(operands.front().master.device()).sgd({.lr = lr}, updates);  // w -= lr (update + decay w)
  }

  AdafactorConfig config_;
  ShardList shards_;  // of trained parameters: the places of whole_
  WholeMatrices whole_;
  std::vector<std::vector<Statistic>> statistics_;  // by shard
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(const ShardList& shards, const DeviceMesh& mesh,
                                          const AdafactorConfig& config) {
  if (!(config.decay < 0))
    fail(ExitCode::usage, "adafactor", "decay is {}; expected below 0: the exponent of 1 - t^decay", config.decay);
  if (!(config.clip > 0)) fail(ExitCode::usage, "adafactor", "clip is {}; expected above 0", config.clip);
  check_not_negative("adafactor", "eps1", config.eps1);
  check_not_negative("adafactor", "eps2", config.eps2);
  check_not_negative("adafactor", "weight_decay", config.weight_decay);
  const bool on_gpu = std::any_of(shards.begin(), shards.end(),
                                  [](const ShardPtr& shard) { return shard->weights.device() != Device::cpu; });
  if (on_gpu && config.memory == MemoryCategory::offloaded)
    fail(ExitCode::usage, "adafactor",
         "the optimizer's state is to stay in host memory, and the weights are on a GPU, where updates of whole "
         "matrices are computed; expected state on the GPU; set AdafactorConfig::memory to "
         "optimizer (drop --offload optimizer)");
  return std::make_unique<Adafactor>(shards, mesh, config);
}
std::unique_ptr<Optimizer> make_adafactor(const ParameterList& parameters, const DeviceMesh& mesh,
                                          const AdafactorConfig& config) {
  check_parameters("adafactor", parameters);
  return make_adafactor(whole_shards(parameters), mesh, config);
}

}  // namespace trireme::optim
