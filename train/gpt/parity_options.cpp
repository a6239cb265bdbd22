#include "train/gpt/parity_options.h"
#include "train/options/optimizer_kinds.h"

#include "train/gpt/validate_gpt.h"

namespace trireme {

void set_parity_defaults(GptOptions& o) {
  o.model.config = {.layers = 4, .heads = 4, .width = 64, .context = 32, .vocab = 65};
  o.model.vocab = 65;
  o.batch.micro_batch = 2;
}

GptOptions parity_defaults() {
  GptOptions o;
  set_parity_defaults(o);
  return o;
}

void declare_comparison(Flags& flags, TrainOptions& o) {
  declare_batch(flags, o.batch);
  declare_mesh(flags, o.mesh);
  declare_precision(flags, o.precision);
  flags.group("comparison");
  flags.add("seed", "N", o.run.seed, "of initial weights and dropout", Range::at_least(0));
  std::vector<std::string> others = optimizer_names();
  std::erase(others, "sgd");
  flags.add_choice("optimizer", o.optimizer.optimizer, others, "of the second run; the first has sgd");
  flags.add("freeze", "PATTERN,...", o.optimizer.freeze, "parameters by name that are not trained");
  flags.add("ema-decay", "F", o.optimizer.ema_decay, "none",
            "compare, after the second run, the moving average of the weights with this decay; none: the weights",
            Range::half_open(0, 1));
  flags.add_switch("verify", o.run.verify, "compare what should be the same on several ranks, bit by bit", true);
}

void declare_parity_documents(Flags& flags, DataOptions& o) {
  flags.group("documents (made up: every eighth token or so is a separator)");
  declare_documents(flags, o);
}

void declare_parity(Flags& flags, GptOptions& o) {
  declare_model(flags, o.model);
  declare_experts(flags, o.model);
  declare_adapters(flags, o.model);
  declare_parity_documents(flags, o.data);
  declare_comparison(flags, o);
}

void prepare_parity_model(GptOptions& o) {
  o.model.config.vocab = o.model.vocab.value_or(65);
  o.model.config.document_separator = o.data.separator(0, o.model.config.vocab);
  o.model.config.restart_positions = o.data.restart_positions;
}

void resolve_parity(GptOptions& o, int launcher_ranks) {
  prepare_parity_model(o);
  resolve(o, launcher_ranks);
  validate(o);
}

GptOptions read_parity_options(const std::vector<std::string>& arguments) {
  GptOptions options = parity_defaults();
  options.precision.threads = 1;
  Flags flags("parity", "");
  declare_parity(flags, options);
  flags.parse(arguments);
  resolve_parity(options, 0);
  return options;
}

}  // namespace trireme
