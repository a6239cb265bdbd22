#include "train/gpt/saved_gpt.h"

#include "models/gpt_text.h"

namespace trireme {
namespace {

/// Number of elements in the stored weights and buffers.
double stored_elements(const checkpoint::Checkpoint& saved) {
  double elements = 0;
  for (const auto& [name, tensor] : saved.manifest().tensors)
    if (!name.starts_with("optimizer.")) elements += static_cast<double>(tensor.shape.count());
  return elements;
}

}  // namespace

SavedGpt read_saved_gpt(const checkpoint::Checkpoint& saved) {
  const std::string architecture = saved_architecture(saved);
  if (architecture != "gpt")
    fail(ExitCode::usage, "checkpoint", "{} holds a model of the architecture '{}'; expected 'gpt'; change the path",
         saved.path().string(), architecture);
  const std::filesystem::path manifest = saved.path() / checkpoint::manifest_name;
  const StoredGpt model = read_gpt_text(saved.run("model"), manifest, stored_elements(saved));
  SavedGpt gpt{.config = model.config,
               .dtype = model.dtype,
               .tokenizer = parse_tokenizer(saved.run("tokenizer"), manifest),
               .progress = read_progress(saved),
               .usage = {}};
  const RunTexts& texts = saved.manifest().run;
  if (const auto usage = texts.find(usage_entry); usage != texts.end())
    gpt.usage = UsageTexts::parse(usage->second, manifest);
  gpt.config.dropout = 0;
  return gpt;
}

}  // namespace trireme
