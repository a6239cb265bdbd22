#include "train/saved_run.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "data/json.h"
#include "data/safetensors.h"
#include "train/console.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
constexpr const char* file_name = "run.safetensors";

/// A local shard of something that is stored whole.
struct Stored {
  std::string name;
  const nn::Parameter* parameter;
  Tensor local;
  std::shared_ptr<const optim::Shard> shard;  // the piece that `local` is; null: all of the parameter's local tensor

  /// The stored shape: the global one without padded rows.
  Shape shape() const { return parameter->global_shape.with(0, parameter->logical_rows); }
};

std::vector<Stored> stored_tensors(const nn::ParameterList& parameters, optim::Optimizer* optimizer) {
  std::vector<Stored> all;
  if (optimizer == nullptr) {
    for (const nn::ParameterPtr& p : parameters) all.push_back({p->name, p.get(), p->value.detach(), nullptr});
    return all;
  }
  for (const optim::StateTensor& s : optimizer->weights()) {
    all.push_back({s.parameter->name, s.parameter, s.value, s.shard});
  }
  for (const optim::StateTensor& s : optimizer->state()) {
    all.push_back({fmt::format("optimizer.{}.{}", s.name, s.parameter->name), s.parameter, s.value, s.shard});
  }
  return all;
}

// ---- saving ---------------------------------------------------------------------------------------------------------

/// The parameter's local tensor on the first of the ranks that share it, undefined on the others. Collective over them.
Tensor unsharded(const Stored& stored) {
  return stored.shard ? optim::assemble(*stored.shard, stored.local) : stored.local;
}

/// The ranks that meet in a file: those with the first copy of every shard. One of each stage hands it on.
bool hands_on(const DeviceMesh& mesh) { return mesh.is_first(Axis::tp) && mesh.is_first(Axis::ep); }

/// What is sharded over an axis, whole, on its first rank; undefined on the others. Collective over the axis.
Tensor joined(const Tensor& local, Placement placement, const DeviceMesh& mesh, Axis axis) {
  ProcessGroup& group = mesh.group(axis);
  if (!placement.sharded() || group.size() == 1) return mesh.is_first(axis) ? local : Tensor();
  std::vector<std::int64_t> extents = {group.size()};
  extents.insert(extents.end(), local.shape().begin(), local.shape().end());
  Tensor pieces =
      mesh.is_first(axis) ? Tensor::empty(Shape(std::span<const std::int64_t>(extents)), local.dtype()) : Tensor();
  group.gather(contiguous(local), pieces, 0).wait();
  if (!pieces.defined()) return {};
  const std::int64_t piece = local.size(placement.dim);
  const Tensor whole = Tensor::empty(local.shape().with(placement.dim, piece * group.size()), local.dtype());
  for (int i = 0; i < group.size(); ++i) {
    Tensor part = view::slice(whole, placement.dim, i * piece, piece);
    copy(view::select(pieces, 0, i), part);
  }
  return whole;
}

/// The whole tensor, without padding, on the rank that hands it on; undefined on the others. Collective over tp, ep and
/// the ranks that share a shard. Of those the first of each edp come here; the others call unsharded().
Tensor assemble(const Stored& stored, const DeviceMesh& mesh) {
  const Placements& placements = stored.parameter->placements;
  const Tensor local = unsharded(stored);  // of a dense tensor on the first of all that hold it, which are more
  if (!local.defined()) return {};
  Tensor whole = joined(local, placements.tp, mesh, Axis::tp);
  if (whole.defined()) whole = joined(whole, placements.ep, mesh, Axis::ep);
  return whole.defined() ? view::slice(whole, 0, 0, stored.parameter->logical_rows) : whole;
}

Tensor from_text(const std::string& text) {
  return Tensor::from(std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()),
                      {static_cast<std::int64_t>(text.size())});
}

/// The entries a stage will contribute, as JSON; what rank 0 learns before it writes the header.
std::string describe(const std::vector<Stored>& tensors) {
  nlohmann::json list = nlohmann::json::array();
  for (const Stored& t : tensors) {
    const Shape shape = t.shape();
    list.push_back({t.name, static_cast<int>(t.local.dtype()), std::vector<std::int64_t>(shape.begin(), shape.end())});
  }
  return list.dump();
}

std::vector<SafetensorsEntry> parse_description(std::string_view text) {
  std::vector<SafetensorsEntry> entries;
  for (const nlohmann::json& item : nlohmann::json::parse(text)) {
    const auto extents = item[2].get<std::vector<std::int64_t>>();
    entries.push_back({item[0].get<std::string>(), static_cast<DType>(item[1].get<int>()),
                       Shape(std::span<const std::int64_t>(extents))});
  }
  return entries;
}

std::string receive_text(ProcessGroup& stages, int from) {
  Tensor length = Tensor::zeros({1}, DType::i64);
  stages.recv(length, from, 0).wait();
  Tensor text = Tensor::empty({*length.data<std::int64_t>()}, DType::u8);
  stages.recv(text, from, 0).wait();
  return {reinterpret_cast<const char*>(text.raw()), static_cast<std::size_t>(text.count())};
}

void send_text(ProcessGroup& stages, const std::string& text) {
  stages.send(Tensor::full({1}, static_cast<double>(text.size()), DType::i64), 0, 0).wait();
  stages.send(from_text(text), 0, 0).wait();
}

/// A stage other than the first: tells rank 0 what it has, then sends it.
void send_stage(const std::vector<Stored>& tensors, const DeviceMesh& mesh) {
  ProcessGroup& stages = mesh.group(Axis::pp);
  if (hands_on(mesh)) send_text(stages, describe(tensors));
  for (const Stored& stored : tensors) {
    const Tensor whole = assemble(stored, mesh);
    if (whole.defined()) stages.send(contiguous(whole), 0, 0).wait();
  }
}

/// The first stage: its first rank writes its own tensors, then those of the other stages as they arrive.
std::uint64_t write_file(const fs::path& path, const std::vector<Stored>& tensors, const DeviceMesh& mesh,
                         const std::map<std::string, std::string>& metadata) {
  ProcessGroup& stages = mesh.group(Axis::pp);
  std::vector<SafetensorsEntry> entries = parse_description(describe(tensors));
  std::vector<std::vector<SafetensorsEntry>> others;
  std::unique_ptr<SafetensorsWriter> writer;
  if (hands_on(mesh)) {
    for (int stage = 1; stage < stages.size(); ++stage) {
      others.push_back(parse_description(receive_text(stages, stage)));
      entries.insert(entries.end(), others.back().begin(), others.back().end());
    }
    make_directories(path.parent_path());
    writer = std::make_unique<SafetensorsWriter>(path, entries, metadata);
  }
  for (const Stored& stored : tensors) {
    const Tensor whole = assemble(stored, mesh);
    if (writer) writer->write(whole);
  }
  if (!writer) return 0;
  for (std::size_t i = 0; i < others.size(); ++i) {
    for (const SafetensorsEntry& entry : others[i]) {
      Tensor whole = Tensor::empty(entry.shape, entry.dtype);
      stages.recv(whole, static_cast<int>(i) + 1, 0).wait();
      writer->write(whole);
    }
  }
  writer->commit();
  return writer->bytes();
}

nlohmann::json experts_json(const nn::ExpertsOptions& o) {
  nlohmann::json json = {{"count", o.count},
                         {"top_k", o.top_k},
                         {"shared", o.shared},
                         {"aux_loss", o.aux_loss},
                         {"z_loss", o.z_loss},
                         {"router_norm", o.norm == nn::RouterNorm::before ? "before" : "after"},
                         {"aux_scope", o.balance == nn::BalanceScope::sequence ? "sequence" : "batch"}};
  if (o.capacity_factor) json["capacity_factor"] = *o.capacity_factor;
  return json;
}

nlohmann::json model_json(const GptConfig& c, DType dtype) {
  nlohmann::json json = {{"layers", c.layers},
                         {"heads", c.heads},
                         {"kv_heads", c.key_value_heads()},
                         {"width", c.width},
                         {"ffn_width", c.hidden()},
                         {"context", c.context},
                         {"vocab", c.vocab},
                         {"dropout", c.dropout},
                         {"bias", c.bias},
                         {"activation", name(c.activation)},
                         {"norm", name(c.norm)},
                         {"positions", name(c.positions)},
                         {"tied", c.tied},
                         {"dtype", name(dtype)}};
  if (c.document_separator) json["document_separator"] = *c.document_separator;
  if (c.experts.count > 0) json["experts"] = experts_json(c.experts);
  return json;
}

// ---- loading --------------------------------------------------------------------------------------------------------

/// Copies this rank's rectangle out of the stored tensor; padded rows stay as they are.
void load(const SafetensorsFile& file, const Stored& stored, const fs::path& path) {
  if (file.shape(stored.name) != stored.shape()) {
    fail(ExitCode::usage, "resume", "{}: {} has shape {}; this model needs {}; use the model flags of that run",
         path.string(), stored.name, to_string(file.shape(stored.name)), to_string(stored.shape()));
  }
  Tensor part = file.read(stored.name), local = stored.local;
  const Rectangle r = stored.shard ? stored.shard->rectangle() : stored.parameter->rectangle;
  for (int dim = 0; dim < part.dims(); ++dim) {
    const std::int64_t begin = std::min(r.start[dim], part.size(dim));
    const std::int64_t length = std::min(local.size(dim), part.size(dim) - begin);
    part = view::slice(part, dim, begin, length);
    if (dim == 0) local = view::slice(local, 0, 0, length);
  }
  copy(part, local);
}

const std::string& metadata(const SafetensorsFile& file, const std::string& key, const fs::path& path) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) {
    fail(ExitCode::data, "checkpoint", "{} lacks the entry '{}'; expected a file saved by train_gpt", path.string(),
         key);
  }
  return found->second;
}

std::int64_t integer(const nlohmann::json& json, const char* key, const fs::path& path) {
  if (!json.contains(key) || !json[key].is_number_integer()) {
    fail(ExitCode::data, "checkpoint", "{}: '{}' is missing or not a whole number", path.string(), key);
  }
  return json[key].get<std::int64_t>();
}

nlohmann::json loss_scale_json(const optim::LossScaler::State& s) {
  return {{"scale", s.scale},
          {"good_updates", s.good_updates},
          {"overflows_left", s.overflows_left},
          {"in_a_row", s.in_a_row},
          {"skipped", s.skipped}};
}

optim::LossScaler::State read_loss_scale(const nlohmann::json& json) {
  return {.scale = json.at("scale"),
          .good_updates = json.at("good_updates"),
          .overflows_left = json.at("overflows_left"),
          .in_a_row = json.at("in_a_row"),
          .skipped = json.at("skipped")};
}

/// The value whose name is stored under `key`; the first one when there is no such key.
template <class E>
E named(const nlohmann::json& json, const char* key, std::initializer_list<E> values, const fs::path& path) {
  if (!json.contains(key)) return *values.begin();
  for (const E value : values) {
    if (json[key] == name(value)) return value;
  }
  fail(ExitCode::data, "checkpoint", "{}: '{}' is {}, which this program does not know", path.string(), key,
       json[key].dump());
}

/// A model without experts has no such entry.
nn::ExpertsOptions read_experts(const nlohmann::json& model, const fs::path& path) {
  nn::ExpertsOptions experts;
  if (!model.contains("experts")) return experts;
  const nlohmann::json& json = model["experts"];
  experts.count = integer(json, "count", path);
  experts.top_k = integer(json, "top_k", path);
  experts.shared = integer(json, "shared", path);
  if (json.contains("capacity_factor")) experts.capacity_factor = json["capacity_factor"].get<double>();
  experts.aux_loss = json.value("aux_loss", experts.aux_loss);
  experts.z_loss = json.value("z_loss", experts.z_loss);
  experts.norm = json.value("router_norm", "before") == "after" ? nn::RouterNorm::after : nn::RouterNorm::before;
  experts.balance =
      json.value("aux_scope", "sequence") == "batch" ? nn::BalanceScope::batch : nn::BalanceScope::sequence;
  return experts;
}

/// A file from before Llama's parts has none of their keys: it is a GPT-2.
GptConfig read_config(const nlohmann::json& json, const fs::path& path) {
  GptConfig config = {.layers = integer(json, "layers", path),
                      .heads = integer(json, "heads", path),
                      .width = integer(json, "width", path),
                      .context = integer(json, "context", path),
                      .vocab = integer(json, "vocab", path),
                      .dropout = json.value("dropout", 0.0),
                      .bias = json.value("bias", true)};
  config.activation = named(json, "activation", {Activation::gelu, Activation::gelu_tanh, Activation::swiglu}, path);
  config.norm = named(json, "norm", {Norm::layer, Norm::rms}, path);
  config.positions = named(json, "positions", {PositionEncoding::learned, PositionEncoding::rope}, path);
  config.tied = json.value("tied", true);
  if (json.contains("kv_heads")) config.kv_heads = integer(json, "kv_heads", path);
  if (json.contains("ffn_width")) config.ffn_width = integer(json, "ffn_width", path);
  config.experts = read_experts(json, path);
  if (json.contains("document_separator")) config.document_separator = integer(json, "document_separator", path);
  return config;
}

DType read_dtype(const nlohmann::json& json) {
  const std::string dtype = json.value("dtype", "f32");
  return dtype == "bf16" ? DType::bf16 : dtype == "f16" ? DType::f16 : DType::f32;
}

Progress read_progress(const SafetensorsFile& file, const fs::path& path) {
  const nlohmann::json json = parse_json(metadata(file, "progress", path), path);
  Progress progress{.steps = integer(json, "steps", path), .samples = integer(json, "samples", path)};
  if (json.contains("loss_scale")) progress.loss_scale = read_loss_scale(json["loss_scale"]);
  return progress;
}

void require_same(std::string_view flag, const std::string& saved, const std::string& asked, const fs::path& path) {
  if (saved == asked) return;
  fail(ExitCode::usage, "resume", "{} was saved with {} {}, and this run has {}; change {} or start without --resume",
       path.string(), flag, saved, asked, flag);
}

/// The first flag of the model whose value differs, by its name on the command line.
void require_same_keys(const nlohmann::json& saved, const nlohmann::json& asked, const fs::path& path) {
  for (const auto& [key, value] : asked.items()) {
    if (value.is_object() && saved.contains(key)) {  // of the experts
      require_same_keys(saved[key], value, path);
      continue;
    }
    std::string flag = key == "count" ? "--experts" : key == "shared" ? "--shared-experts" : "--" + key;
    std::replace(flag.begin(), flag.end(), '_', '-');
    require_same(flag, saved.value(key, nlohmann::json()).dump(), value.dump(), path);
  }
  require_same("the model flags", saved.dump(), asked.dump(), path);  // a key that this run does not have
}

nlohmann::json data_json(const RunIdentity& run) { return {{"hash", run.data}, {"val_fraction", run.val_fraction}}; }

void require_same_data(const nlohmann::json& saved, const RunIdentity& run, const fs::path& path) {
  require_same("--val-fraction", saved.at("val_fraction").dump(), nlohmann::json(run.val_fraction).dump(), path);
  if (saved.at("hash").get<std::uint64_t>() == run.data) return;
  fail(ExitCode::usage, "resume",
       "{} was saved by a run on other data: text or tokenizer differ; expected the same tokens; change --data, or "
       "start "
       "without --resume",
       path.string());
}

}  // namespace

std::string save_run(const fs::path& out, const Gpt& model, optim::Optimizer& optimizer, const Progress& progress,
                     const Tokenizer& tokenizer, const RunIdentity& run) {
  const auto start = std::chrono::steady_clock::now();
  const DeviceMesh& mesh = model.mesh();
  const fs::path path = out / "checkpoints" / fmt::format("step_{:08}", progress.steps) / file_name;
  std::uint64_t bytes = 0;
  std::vector<Stored> tensors = stored_tensors(model.parameters(), &optimizer);
  std::erase_if(tensors, [](const Stored& t) { return t.parameter->copy_of_earlier_stage; });
  if (!mesh.is_first(Axis::edp)) {  // they hold the same as the first, or with ZeRO other shards
    for (const Stored& stored : tensors) unsharded(stored);
  } else {
    if (mesh.is_first(Axis::pp)) {
      nlohmann::json state = {{"steps", progress.steps}, {"samples", progress.samples}};
      if (progress.loss_scale) state["loss_scale"] = loss_scale_json(*progress.loss_scale);
      bytes = write_file(path, tensors, mesh,
                         {{"format", "trireme run 1"},
                          {"model", model_json(model.config(), model.dtype()).dump()},
                          {"progress", state.dump()},
                          {"seed", std::to_string(run.seed)},
                          {"data", data_json(run).dump()},
                          {"tokenizer", tokenizer.to_json()}});
    } else {
      send_stage(tensors, mesh);
    }
  }
  mesh.world().barrier();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return fmt::format("saved step {} in {} ({}, {:.2f} s)", progress.steps, path.string(),
                     format_bytes(static_cast<double>(bytes)), seconds.count());
}

namespace {

/// The checkpoints of a run's folder.
std::vector<fs::path> saved_runs_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code unreadable;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "checkpoints", unreadable)) {
    if (fs::is_regular_file(entry.path() / file_name)) found.push_back(entry.path() / file_name);
  }
  return found;
}

}  // namespace

bool holds_saved_run(const fs::path& folder) { return !saved_runs_in(folder).empty(); }

fs::path find_saved_run(const fs::path& path) {
  if (fs::is_regular_file(path)) return path;
  if (fs::is_regular_file(path / file_name)) return path / file_name;
  const std::vector<fs::path> found = saved_runs_in(path);
  if (found.empty()) {
    fail(ExitCode::usage, "checkpoint",
         "{} holds no saved run; expected the --out folder of train_gpt, with checkpoints/step_*/{}; change the path",
         path.empty() ? "''" : path.string(), file_name);
  }
  return *std::max_element(found.begin(), found.end());  // names have the step in eight digits
}

Progress load_run(const fs::path& folder, Gpt& model, optim::Optimizer& optimizer, const Tokenizer& tokenizer,
                  const RunIdentity& run) {
  const fs::path path = find_saved_run(folder);
  const SafetensorsFile file(path);
  const nlohmann::json saved = parse_json(metadata(file, "model", path), path);
  require_same_keys(model_json(read_config(saved, path), read_dtype(saved)), model_json(model.config(), model.dtype()),
                    path);
  require_same("--seed", metadata(file, "seed", path), std::to_string(run.seed), path);
  if (run.data != 0) require_same_data(parse_json(metadata(file, "data", path), path), run, path);
  if (metadata(file, "tokenizer", path) != tokenizer.to_json()) {
    fail(ExitCode::usage, "resume",
         "{} was saved with another tokenizer than this data gives; use the same --data and --tokenizer",
         path.string());
  }
  for (const Stored& stored : stored_tensors(model.parameters(), &optimizer)) {
    if (!file.contains(stored.name)) {
      fail(ExitCode::usage, "resume", "{} has no {}; it was saved with another --optimizer or --momentum",
           path.string(), stored.name);
    }
    load(file, stored, path);
  }
  const Progress progress = read_progress(file, path);
  optimizer.set_steps(progress.steps);
  return progress;
}

SavedModel read_saved_model(const fs::path& folder) {
  const fs::path path = find_saved_run(folder);
  const SafetensorsFile file(path);
  const nlohmann::json json = parse_json(metadata(file, "model", path), path);
  SavedModel saved;
  saved.config = read_config(json, path);
  saved.config.dropout = 0;
  saved.dtype = read_dtype(json);
  saved.tokenizer = parse_tokenizer(metadata(file, "tokenizer", path), path);
  saved.progress = read_progress(file, path);
  return saved;
}

void load_weights(const fs::path& folder, Gpt& model) {
  const fs::path path = find_saved_run(folder);
  const SafetensorsFile file(path);
  for (const Stored& stored : stored_tensors(model.parameters(), nullptr)) load(file, stored, path);
}

}  // namespace trireme
