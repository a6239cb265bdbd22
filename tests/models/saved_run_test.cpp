// Saving and resuming: nothing is lost on the same mesh, any mesh reads what any other wrote, and a file that does not
// fit the run is refused with the flag to change.
#include "train/runs/saved_run.h"
#include "train/gpt/gpt_source.h"

#include <chrono>
#include <future>

#include "data/byte_tokenizer.h"
#include "data/json.h"
#include "models/gpt_text.h"
#include "tests/models/recipe.h"
#include "tests/parity/faulty_group.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/sanitized.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

/// Losses of all steps, and this rank's weights and optimizer state after the last.
struct Curve {
  std::vector<double> losses;
  std::vector<Tensor> tensors;
  void add(GptRun& run, int steps) {
    for (const double loss : run.steps(steps)) losses.push_back(loss);
    tensors.clear();
    for (const ParameterPtr& p : run.gpt().parameters()) tensors.push_back(clone(p->local.detach()));
    for (const StateTensor& s : run.optimizer().state()) tensors.push_back(clone(s.value));
  }
};

/// The error of resuming `changed` from a run that `saved` made, on one rank.
std::string refusal(const Recipe& saved, const Recipe& changed, std::int64_t seed = 7,
                    const Tokenizer& tokenizer = test_tokenizer()) {
  const TempFolder folder;
  std::string message;
  run_mesh("dp=1", [&](const MeshPtr& mesh) {
    GptRun first = run_of(mesh, saved);
    first.save(folder.path());
    GptRun second = run_of(mesh, changed);
    message = failure([&] { second.load(folder.path(), {.seed = seed, .tokenizer = tokenizer.to_json()}); });
  });
  return message;
}

/// Calls `hook` once, before the next all-gather.
class HookedGroup : public FaultyGroup {
 public:
  explicit HookedGroup(std::shared_ptr<ProcessGroup> inner) : FaultyGroup(std::move(inner), "no sums", {}) {}
  Work all_gather(Tensor x, Tensor y, Launch launch) override {
    if (hook) std::exchange(hook, nullptr)();
    return FaultyGroup::all_gather(x, y, launch);
  }
  std::function<void()> hook;
};

}  // namespace

TEST_CASE("five steps, a stop and five steps are ten steps, bit for bit") {
  std::vector<Recipe> recipes(sanitized ? 2 : 3, {.config = small_config(0.1)});
  recipes[1].dtype = DType::bf16;
  recipes.back().optimizer = "sgd";
  for (const Recipe& recipe : recipes) {
    for (const std::string& text : sanitized ? Meshes{"dp=2,tp=2,pp=2"} : Meshes{"dp=1", "tp=2", "dp=2,tp=2,pp=2"}) {
      const TempFolder folder;
      run_mesh(text, [&](const MeshPtr& mesh) {
        Curve straight, stopped;
        GptRun whole = run_of(mesh, recipe);
        straight.add(whole, 10);
        {
          GptRun first = run_of(mesh, recipe);
          stopped.add(first, 5);
          first.save(folder.path());
        }
        GptRun second = run_of(mesh, recipe);
        second.load(folder.path());
        CHECK(second.progress.steps == 5);
        CHECK(second.progress.samples == 40);
        stopped.add(second, 5);
        CHECK(stopped.losses == straight.losses);
        REQUIRE(stopped.tensors.size() == straight.tensors.size());
        for (std::size_t i = 0; i < stopped.tensors.size(); ++i)
          CHECK_MESSAGE(same_bits(stopped.tensors[i], straight.tensors[i]), text, ": tensor ", i);
      });
    }
  }
}

TEST_CASE("a run moves from mesh to mesh with the bits of every whole tensor") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const TempFolder folder;
    const Recipe recipe{.dtype = dtype};
    run_mesh("dp=2,tp=2,pp=2", [&](const MeshPtr& mesh) {
      GptRun run = run_of(mesh, recipe);
      run.steps(5);
      run.save(folder / "a");
    });
    // Each mesh trains a step before it loads, so that a tensor that is not loaded would differ.
    struct Move {
      std::string text, to;
      const char* pipeline = "1f1b";
    };
    const std::vector<Move> moves = {{"tp=4", "b"},
                                     {"pp=4", "c"},
                                     {"pp=2", "d", "interleaved:2"},
                                     {"dp=1", "e"},
                                     {"dp=2,tp=2,pp=2", "f", "interleaved:2"},
                                     {"dp=2,tp=2,pp=2", "g"}};
    std::filesystem::path from = folder / "a";
    for (const auto& [text, to, pipeline] : moves) {
      run_mesh(text, [&, to = to, pipeline = pipeline](const MeshPtr& mesh) {
        GptRun run = run_of(mesh, {.dtype = dtype, .pipeline = pipeline});
        run.steps(1);
        run.load(from);
        CHECK(run.optimizer().steps() == 5);
        run.save(folder / to);
      });
      from = folder / to;
    }
    checkpoint::Checkpoint first(find_saved_run(folder / "a"));
    for (const auto& [text, to, pipeline] : moves) {
      checkpoint::Checkpoint other(find_saved_run(folder / to));
      CHECK(without_date(other.manifest().run) == without_date(first.manifest().run));
      REQUIRE(other.names() == first.names());
      for (const std::string& name : first.names())
        CHECK_MESSAGE(same_bits(first.read(name), other.read(name)), text, ": ", name);
    }
  }
}

TEST_CASE("a saved run goes on elsewhere with the same losses") {
  const TempFolder folder;
  const Recipe recipe{.config = small_config(0.1)};
  const std::vector<double> straight = losses_on("dp=1", recipe, 10);
  run_mesh("dp=2,tp=2,pp=2", [&](const MeshPtr& mesh) {
    GptRun run = run_of(mesh, recipe);
    run.steps(5);
    run.save(folder.path());
  });
  for (const std::string& text : Meshes{"dp=1", "tp=4", "dp=4"}) {
    run_mesh(text, [&](const MeshPtr& mesh) {
      GptRun run = run_of(mesh, recipe);
      run.load(folder.path());
      CHECK(largest_relative(run.steps(5), {straight.begin() + 5, straight.end()}) < 1e-5);
    });
  }
}

TEST_CASE("the file holds whole tensors without padding, tied weights once, and says what it is") {
  const TempFolder folder;
  run_mesh("tp=2,pp=2", [&](const MeshPtr& mesh) {
    GptRun run = run_of(mesh, {.dtype = DType::bf16});
    run.steps(2);
    const std::string line = run.save(folder.path());
    if (mesh->rank() == 0) CHECK(contains(line, "saved step 2 in " + (folder / "checkpoints/step_00000002").string()));
  });
  checkpoint::Checkpoint file(find_saved_run(folder.path()));
  CHECK(file.shape("wte.weight") == Shape{65, 32});
  CHECK(file.shape("blocks.3.attn.qkv.weight") == Shape{3, 32, 32});
  CHECK(file.shape("optimizer.v.blocks.0.mlp.down.weight") == Shape{32, 128});
  CHECK(file.read("wte.weight").dtype() == DType::bf16);
  CHECK(same_bits(cast(file.read("optimizer.master.wte.weight"), DType::bf16), file.read("wte.weight")));
  CHECK(file.names().size() == 4 * (4 * 12 + 4));  // weight, m, v and master of 12 in each block, wte, wpe and norm
  CHECK(file.run("progress") == R"({"samples":16,"steps":2})");
  CHECK(file.run("seed") == "7");
}

TEST_CASE("the newest of several saves is found, and its absence named") {
  const TempFolder folder;
  run_mesh("dp=1", [&](const MeshPtr& mesh) {
    GptRun run = run_of(mesh, {});
    for (int i = 0; i < 2; ++i) {
      run.steps(6);
      run.save(folder.path());
    }
    const auto newest = folder / "checkpoints/step_00000012";
    CHECK(find_saved_run(folder.path()) == newest);
    CHECK(find_saved_run(newest) == newest);
    run.load(folder / "checkpoints/step_00000006");
    CHECK(run.progress.steps == 6);
  });
  std::filesystem::create_directories(folder / "empty/checkpoints");
  CHECK_THROWS_WITH_AS(find_saved_run(folder / "empty"),
                       doctest::Contains("empty holds no saved run; expected the --out folder"), Error);
  CHECK_THROWS_WITH_AS(find_saved_run(folder / "nowhere"),
                       doctest::Contains("nowhere does not exist; expected the --out folder"), Error);
}

TEST_CASE("a checkpoint that appears while some ranks have chosen already is loaded by none") {
  const TempFolder folder;
  const auto newest = folder / "checkpoints/step_00000002", hidden = folder / "hidden";
  std::promise<void> appeared;
  std::mutex mutex;
  std::vector<std::int64_t> steps;
  run_thread_ranks(2, 1, ProcessGroup::Deadline(1800), [&](const std::shared_ptr<ProcessGroup>& plain) {
    const auto world = std::make_shared<HookedGroup>(plain);
    const auto mesh = std::make_shared<const DeviceMesh>(world, parse_mesh("dp=2", 2));
    GptRun run = run_of(mesh, {});
    for (int i = 0; i < 2; ++i) {
      run.steps(1);
      run.save(folder.path());
    }
    if (mesh->rank() == 0) {
      std::filesystem::rename(newest, hidden);
      world->hook = [&] {
        std::filesystem::rename(hidden, newest);
        appeared.set_value();
      };
    } else {
      // Rank 0 has chosen then, and waits for this rank.
      const bool in_time = appeared.get_future().wait_for(std::chrono::minutes(30)) == std::future_status::ready;
      REQUIRE_MESSAGE(in_time, "rank 0 did not gather after its choice");
    }
    run.load(folder.path());
    const std::scoped_lock lock(mutex);
    steps.push_back(run.progress.steps);
  });
  CHECK(steps == std::vector<std::int64_t>{1, 1});
}

TEST_CASE("ranks that have opened different checkpoints load neither") {
  const TempFolder folder;
  run_mesh("dp=2", [&](const MeshPtr& mesh) {
    GptRun run = run_of(mesh, {});
    for (const char* name : {"a", "b"}) {
      run.steps(1);
      run.save(folder / name);
    }
    checkpoint::Checkpoint mine(find_saved_run(folder / (mesh->rank() == 0 ? "a" : "b")));
    CHECK_THROWS_WITH_AS(load_weights(mine, run.gpt()),
                         doctest::Contains("[configuration] the checkpoint differs between ranks: "), Error);
    checkpoint::Checkpoint both = open_saved_run(mesh->world(), folder / (mesh->rank() == 0 ? "a" : "b"));
    CHECK(both.path() == folder / "a/checkpoints/step_00000001");  // what rank 0 asks for
    load_weights(both, run.gpt());
  });
}

TEST_CASE("a run with another model, seed, tokenizer or optimizer is refused, naming what differs") {
  struct Change {
    std::function<void(Recipe&)> make;
    std::string flag, was, is;
  };
  const std::vector<Change> changes = {
      {[](Recipe& r) { r.config.width = 64; }, "--width", "32", "64"},  // the MLP's follows from it
      {[](Recipe& r) { r.config.heads = 2; }, "--heads", "4", "2"},     // --kv-heads follows from it
      {[](Recipe& r) { r.config.layers = 5; }, "--layers", "4", "5"},
      {[](Recipe& r) { r.config.context = 8; }, "--context", "16", "8"},
      {[](Recipe& r) { r.config.vocab = 66; }, "--vocab", "65", "66"},
      {[](Recipe& r) { r.config.bias = false; }, "--bias", "on", "off"},
      {[](Recipe& r) { r.config.dropout = 0.1; }, "--dropout", "0.0", "0.1"},
      {[](Recipe& r) { r.config.activation = Activation::gelu_tanh; }, "--activation", "gelu", "gelu-tanh"},
      {[](Recipe& r) { r.config.activation = Activation::swiglu; }, "--activation", "gelu", "swiglu"},
      {[](Recipe& r) { r.dtype = DType::bf16; }, "--dtype", "f32", "bf16"},
      {[](Recipe& r) { r.config.kv_heads = 2; }, "--kv-heads", "4", "2"},
      {[](Recipe& r) { r.config.ffn_width = 64; }, "--ffn-width", "128", "64"},
      {[](Recipe& r) { r.config.norm = Norm::rms; }, "--norm", "layer", "rms"},
      {[](Recipe& r) { r.config.tied = false; }, "--tied", "on", "off"},
      {[](Recipe& r) { r.config.positions = PositionEncoding::rope; }, "--positions", "learned", "rope"},
      {[](Recipe& r) { r.config.document_separator = 3; }, "--document-mask", "off", "on"},
      {[](Recipe& r) { r.config.head_width = 10; }, "--head-width", "8", "10"},
      {[](Recipe& r) { r.config.lora.rank = 2; }, "--lora-rank", "0", "2"},
      {[](Recipe& r) { r.config.qkv_bias = true; }, "--qkv-bias", "off", "on"},
      {[](Recipe& r) { r.config.norm_eps = 0.5; }, "--norm-eps", "1e-05", "0.5"},
      {[](Recipe& r) { r.config.rope_base = 500; }, "--rope-base", "10000.0", "500.0"},
      {[](Recipe& r) { r.config.rope_scaling = "linear:2"; }, "--rope-scaling", "none", "linear:2"},
      {[](Recipe& r) { r.config.rope_interleaved = true; }, "--rope-interleaved", "off", "on"},
      {[](Recipe& r) { r.config.restart_positions = true; }, "--restart-positions", "off", "on"},
      {[](Recipe& r) { r.config.qk_norm = true; }, "--qk-norm", "off", "on"},
      {[](Recipe& r) { r.config.window = 4; }, "--window", "auto", "4"},
      {[](Recipe& r) { r.config.window_every = 2; }, "--window-every", "1", "2"},
      {[](Recipe& r) { r.config.full_every = 2; }, "--full-every", "none", "2"},
      {[](Recipe& r) { r.config.attention_softcap = 2; }, "--attention-softcap", "none", "2.0"},
      {[](Recipe& r) { r.config.logit_softcap = 2; }, "--logit-softcap", "none", "2.0"},
      {[](Recipe& r) { r.config.zero_centred_norms = true; }, "--zero-centred-norms", "off", "on"},
      {[](Recipe& r) { r.config.post_norms = true; }, "--post-norms", "off", "on"},
      {[](Recipe& r) { r.config.scaled_embeddings = true; }, "--scaled-embeddings", "off", "on"},
      {[](Recipe& r) { r.config.query_pre_attn_scalar = 2; }, "--query-pre-attn-scalar", "auto", "2.0"},
      {[](Recipe& r) { r.config.window_rope_base = 2; }, "--window-rope-base", "auto", "2.0"},
      {[](Recipe& r) { r.config.experts.count = 4; }, "--experts", "0", "4"},
  };
  const auto expected = [](const std::string& flag, const std::string& was, const std::string& is) {
    return fmt::format(" was saved with {} {}, and this run has {}; change {} or start without --resume", flag, was, is,
                       flag);
  };
  for (std::size_t i = 0; i < changes.size(); i += sanitized ? 4 : 1) {
    const Change& change = changes[i];
    CAPTURE(change.flag);
    Recipe changed;
    change.make(changed);
    const std::string forth = refusal({}, changed), back = refusal(changed, {});
    CHECK(contains(forth, "64 trireme: [resume]"));
    CHECK_MESSAGE(forth.ends_with(expected(change.flag, change.was, change.is)), forth);
    CHECK_MESSAGE(back.ends_with(expected(change.flag, change.is, change.was)), back);
  }
  Recipe four{};
  four.config.experts.count = 4;
  const auto of_experts = [&](const std::function<void(nn::ExpertsOptions&)>& make) {
    Recipe changed = four;
    make(changed.config.experts);
    return refusal(four, changed);
  };
  CHECK(contains(of_experts([](auto& o) { o.count = 8; }), expected("--experts", "4", "8")));
  CHECK(contains(of_experts([](auto& o) { o.shared = 1; }), expected("--shared-experts", "0", "1")));
  CHECK(contains(of_experts([](auto& o) { o.capacity_factor = 1.5; }), expected("--capacity-factor", "none", "1.5")));
  CHECK(contains(of_experts([](auto& o) { o.balance = nn::BalanceScope::batch; }),
                 expected("--aux-scope", "sequence", "batch")));

  std::string message;
  message = refusal({}, {}, 8);
  CHECK(contains(message, "was saved with --seed 7, and this run has 8; change --seed"));
  CHECK(contains(refusal({}, {}, 7, test_tokenizer(66)), "was saved with another tokenizer"));
  CHECK(contains(refusal({}, {}, 7, ByteTokenizer()), "use the same --data and --tokenizer"));
  CHECK(contains(refusal({.optimizer = "sgd"}, {}), expected("--optimizer", "sgd", "adamw")));
  CHECK(contains(refusal({}, {.optimizer = "sgd"}), expected("--optimizer", "adamw", "sgd")));
  CHECK(contains(refusal({}, {.optimizer = "lion"}), expected("--optimizer", "adamw", "lion")));
  CHECK(contains(refusal({.optimizer = "lion"}, {.optimizer = "sgd"}), expected("--optimizer", "lion", "sgd")));
  CHECK(contains(refusal({.optimizer = "adafactor"}, {}), expected("--optimizer", "adafactor", "adamw")));
  CHECK(contains(refusal({.optimizer = "muon"}, {.optimizer = "adafactor"}),
                 expected("--optimizer", "muon", "adafactor")));
  CHECK(refusal({}, {.global_batch = 16}) == "nothing");  // a batch may change
}

TEST_CASE("a run may drop its momentum, and cannot resume one that was not saved") {
  const TempFolder folder;
  run_mesh("dp=1", [&](const MeshPtr& mesh) {
    GptRun run = run_of(mesh, {.optimizer = "sgd"});
    const auto without = optim::make_sgd(run.gpt().parameters(), {.momentum = 0});
    run.save(folder / "with");
    save_run(folder / "without", run.gpt(), *without, run.progress, test_identity());
    load_run(folder / "with", run.gpt(), *without, test_identity());
    CHECK_THROWS_WITH_AS(run.load(folder / "without"),
                         doctest::Contains("was saved with --momentum 0, and this run has more; change --momentum or"),
                         Error);
  });
}

TEST_CASE("a run is resumed with the optimizer that it was saved with, also where both keep the same state") {
  const TempFolder folder;
  run_mesh("dp=1", [&](const MeshPtr& mesh) {
    const GptOptions options = options_of({}, mesh->shape());
    const auto model = make_gpt(options, options.model.config, mesh);
    for (const ParameterPtr& parameter : model->parameters())
      if (parameter->hidden_matrix) parameter->set_requires_grad(false);
    const auto muon = optim::make_muon(model->parameters(), *mesh, {});  // of vectors alone, which is AdamW
    save_run(folder.path(), *model, *muon, {}, test_identity());
    load_run(folder.path(), *model, *muon, test_identity());
    const auto adamw = optim::make_adamw(model->parameters(), {});
    CHECK_THROWS_WITH_AS(load_run(folder.path(), *model, *adamw, test_identity()),
                         doctest::Contains("was saved with --optimizer muon, and this run has adamw"), Error);
  });
}

TEST_CASE("an average of the weights that was not saved is missed by a run that keeps one, and by generation") {
  const TempFolder folder;
  run_mesh("dp=1", [&](const MeshPtr& mesh) {
    GptRun run = run_of(mesh, {});
    run.save(folder.path());
    const auto keeping = optim::make_adamw(run.gpt().parameters(), {});
    keeping->average_weights(0.9);
    CHECK_THROWS_WITH_AS(
        load_run(folder.path(), run.gpt(), *keeping, test_identity()),
        doctest::Contains("was saved with --ema-decay none, and this run has an average; change --ema-decay"), Error);
    checkpoint::Checkpoint saved(find_saved_run(folder.path()));
    CHECK_THROWS_WITH_AS(load_average(saved, run.gpt()),
                         doctest::Contains("its run kept no average of the weights: --ema-decay"), Error);
  });
}

TEST_CASE("a run is resumed only with the same data and the same validation part") {
  const TempFolder folder;
  run_mesh("dp=1", [&](const MeshPtr& mesh) {
    GptRun run = run_of(mesh, {});
    RunIdentity identity = test_identity();
    identity.data = 1234;
    identity.val_fraction = 0.1;
    run.save(folder.path(), identity);
    const auto resume = [&](const RunIdentity& given) { run.load(folder.path(), given); };
    resume(identity);
    RunIdentity other_data = identity, other_part = identity;
    other_data.data = 1235;
    other_part.val_fraction = 0.2;
    CHECK_THROWS_WITH_AS(resume(other_data), doctest::Contains("on other data"), Error);
    CHECK_THROWS_WITH_AS(resume(other_part),
                         doctest::Contains("was saved with --val-fraction 0.1, and this run has 0.2"), Error);
  });
}

TEST_CASE("a saved run keeps its origin, and a run with new weights has none") {
  const TempFolder folder;
  run_mesh("dp=2", [&](const MeshPtr& mesh) {
    GptRun run = run_of(mesh, {});
    run.save(folder / "new");
    run.progress.origin = "other/run";
    run.save(folder / "begun");
    run.load(folder / "new");
    CHECK(run.progress.origin.empty());
    run.load(folder / "begun");
    CHECK(run.progress.origin == "other/run");
  });
  CHECK(checkpoint::Checkpoint(find_saved_run(folder / "begun")).run("origin") == "other/run");
  CHECK(checkpoint::Checkpoint(find_saved_run(folder / "new")).manifest().run.count("origin") == 0);
}

TEST_CASE("a refused resume is one error on a mesh of many ranks") {
  const TempFolder folder;
  const auto resume = [&](std::int64_t seed) {
    run_mesh("dp=2,tp=2", [&](const MeshPtr& mesh) {
      GptRun run = run_of(mesh, {});
      if (seed == 7) run.save(folder.path());
      run.load(folder.path(), test_identity(seed));
    });
  };
  resume(7);
  CHECK_THROWS_WITH_AS(resume(9), doctest::Contains("was saved with --seed 7, and this run has 9"), Error);
}

TEST_CASE("a model alone is read back for generation, on any mesh") {
  const TempFolder folder;
  Recipe recipe{.config = small_config(0.3)};
  recipe.config.activation = Activation::gelu_tanh;
  recipe.config.bias = false;
  run_mesh("dp=1", [&](const MeshPtr& mesh) {
    GptRun run = run_of(mesh, recipe);
    run.steps(3);
    run.save(folder.path());
  });
  const SavedGpt saved = read_saved_gpt(checkpoint::Checkpoint(find_saved_run(folder.path())));
  CHECK(saved.config.layers == 4);
  CHECK(saved.config.width == 32);
  CHECK(saved.config.vocab == 65);
  CHECK(saved.config.dropout == 0);  // the model is read for generation
  CHECK_FALSE(saved.config.bias);
  CHECK(saved.config.activation == Activation::gelu_tanh);
  CHECK(saved.dtype == DType::f32);
  CHECK(saved.tokenizer->to_json() == test_tokenizer().to_json());
  CHECK(saved.progress.steps == 3);
  run_mesh("tp=2,pp=2", [&](const MeshPtr& mesh) {
    Gpt model(nn::Build(mesh, saved.dtype, 1), saved.config);
    checkpoint::Checkpoint file = open_saved_run(mesh->world(), folder.path());
    load_weights(file, model);
    for (const ParameterPtr& p : model.parameters())
      CHECK_MESSAGE(same_bits(whole(p->local, *p, *mesh), file.read(p->name)), p->name);
  });
}

TEST_CASE("a run in bf16 is read in f32 as the weights that its optimizer keeps") {
  const TempFolder folder;
  run_mesh("dp=2", [&](const MeshPtr& mesh) {
    GptRun run = run_of(mesh, {.dtype = DType::bf16});
    run.steps(3);
    run.save(folder.path());
  });
  run_mesh("tp=2,pp=2", [&](const MeshPtr& mesh) {
    Gpt model(nn::Build(mesh, DType::f32, 1), small_config());
    checkpoint::Checkpoint file = open_saved_run(mesh->world(), folder.path());
    load_weights(file, model);
    for (const ParameterPtr& p : model.parameters())
      CHECK_MESSAGE(same_bits(whole(p->local, *p, *mesh), file.read("optimizer.master." + p->name)), p->name);
  });
}

TEST_CASE("a model that is made for a checkpoint has its weights; a weight that is not loaded is an error") {
  const TempFolder folder;
  run_mesh("dp=1", [&](const MeshPtr& mesh) {
    GptRun run = run_of(mesh, {});
    run.steps(2);
    run.save(folder.path());
    GptOptions options = options_of({}, mesh->shape());
    options.run.loads_weights = true;
    const auto sum = [](const Gpt& model) {
      double all = 0;
      for (const ParameterPtr& p : model.parameters())
        all += trireme::sum(p->local.detach() * p->local.detach()).item();
      return all;
    };
    const auto model = make_gpt(options, options.model.config, mesh);
    CHECK(sum(*model) == 0);
    const auto optimizer = optim::make_adamw(model->parameters(), {});
    load_run(folder.path(), *model, *optimizer, test_identity());
    for (std::size_t i = 0; i < model->parameters().size(); ++i)
      CHECK(same_bits(model->parameters()[i]->local.detach(), run.gpt().parameters()[i]->local.detach()));

    // A parameter that the optimizer does not know is not loaded with its state.
    ParameterList some = model->parameters();
    const std::string forgotten = some.back()->name;
    some.pop_back();
    const auto partial = optim::make_adamw(some, {});
    CHECK_THROWS_WITH_AS(load_run(folder.path(), *model, *partial, test_identity()),
                         doctest::Contains(("no weights of the checkpoint are loaded into " + forgotten).c_str()),
                         Error);

    // A parameter that the checkpoint lacks.
    checkpoint::HeldTensor added =
        checkpoint::held_tensors(whole_weights(model->parameters()), model->buffers(), *mesh).front();
    added.name = "blocks.9.added";
    const Caught error = caught([&] { checkpoint::Checkpoint(find_saved_run(folder.path())).read({added}, "a hint"); });
    CHECK(error.code == ExitCode::data);
    CHECK(error.has("has no blocks.9.added; expected it, because its model has it"));
  });
}

TEST_CASE("a checkpoint without what a run needs is refused with the entry's name") {
  const TempFolder folder;
  int number = 0;
  const auto message = [&](const std::map<std::string, std::string>& run) {
    const std::filesystem::path path = folder / fmt::format("saved_{}", number++);
    checkpoint::Manifest manifest;
    manifest.run = run;
    std::filesystem::create_directories(path);
    write_plainly(path / checkpoint::manifest_name, checkpoint::to_text(manifest));
    const Caught error = caught([&] { read_saved_gpt(checkpoint::Checkpoint(path)); });
    CHECK(error.code == ExitCode::data);
    return error;
  };
  CHECK(message({}).has("lacks the entry 'model'"));
  CHECK(message({{"model", "a big one"}}).has("not valid JSON"));
  CHECK(message({{"model", R"({"layers":2})"}}).has("'heads' is missing; expected a whole number"));
  CHECK(message({{"model", R"({"layers":"two"})"}}).has("'layers' is \"two\"; expected a whole number"));
}

TEST_CASE("the parts of later decoders are read back; a model of an older version has their defaults") {
  GptConfig config = small_config();
  config.norm_eps = 1e-6;
  config.rope_base = 5e5;
  config.rope_scaling = "llama3:8,8192";
  config.window = 7;
  config.full_every = 3;
  config.logit_softcap = 30;
  config.query_pre_attn_scalar = 224;
  config.window_rope_base = 1e4;
  const std::string text = gpt_text(config, DType::f32);
  const auto read = [](const std::string& stored) { return read_gpt_text(stored, "manifest.json", 1e9).config; };
  CHECK(gpt_text(read(text), DType::f32) == text);
  nlohmann::json older = nlohmann::json::parse(text);
  for (const char* key :
       {"head_width", "qkv_bias", "norm_eps", "rope_base", "rope_scaling", "rope_interleaved", "restart_positions",
        "qk_norm", "window", "window_every", "full_every", "logit_softcap", "zero_centred_norms", "post_norms",
        "scaled_embeddings", "query_pre_attn_scalar", "window_rope_base"})
    CHECK(older.erase(key) == 1);
  CHECK(gpt_text(read(older.dump()), DType::f32) == gpt_text(small_config(), DType::f32));
  CHECK(gpt_settings(older.dump(), "manifest.json") == gpt_settings(gpt_text(small_config(), DType::f32), "now"));
  const std::pair<const char*, nlohmann::json> wrong[] = {
      {"norm_eps", 0},         {"rope_base", 1},         {"rope_scaling", "ntk:2"},
      {"window", 0},           {"head_width", 0},        {"query_pre_attn_scalar", 0},
      {"window_rope_base", 1}, {"window_every", 0},      {"full_every", 0},
      {"logit_softcap", -3},   {"attention_softcap", 0}, {"rope_scaling", 17},
      {"qk_norm", "maybe"},    {"rope_base", "large"}};
  for (const auto& [key, value] : wrong) {
    nlohmann::json changed = nlohmann::json::parse(text);
    changed[key] = value;
    CHECK_MESSAGE(says(error_of([&] { read(changed.dump()); }, ExitCode::data), "manifest.json"), key);
  }
}

TEST_CASE("a stored model's dtype is read back; a missing one is f32, and an unknown one is refused") {
  const auto read = [](const std::string& text) { return read_gpt_text(text, "manifest.json", 1e9).dtype; };
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
    CHECK(read(gpt_text(small_config(), dtype)) == dtype);
  const std::string text = gpt_text(small_config(), DType::bf16), entry = R"("dtype":"bf16",)";
  const auto with = [&](const std::string& other) {
    std::string changed = text;
    return changed.replace(text.find(entry), entry.size(), other);
  };
  CHECK(read(with("")) == DType::f32);
  for (const char* unknown : {R"("f8")", R"("")", "32", "null"}) {
    const std::string message = error_of([&] { read(with(fmt::format(R"("dtype":{},)", unknown))); }, ExitCode::data);
    CHECK(says(message, fmt::format("manifest.json: 'dtype' is {}, which this program does not know", unknown)));
    CHECK(says(message, "; use the version of Trireme that wrote it"));
  }
}
