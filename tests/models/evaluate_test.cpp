// The validation loss is the same on any mesh. Neither evaluation nor generation changes training.
#include "train/step/evaluate.h"
#include "data/eval_windows.h"

#include "tests/models/recipe.h"
#include "train/gpt/generate.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

/// 61 windows, of which the last is short. 61 is prime, so no batch size divides it.
EvalWindows windows() { return EvalWindows::all(test_tokens(16 * 61 - 5), 16); }

double loss_on(const std::string& mesh_text, std::int64_t batch, const Recipe& recipe = {},
               const EvalWindows& windows = ::windows()) {
  std::mutex mutex;
  std::vector<double> losses;
  run_mesh(mesh_text, [&](const MeshPtr& mesh) {
    GptRun run = run_of(mesh, recipe);
    const double loss = validation_loss(run.gpt(), windows, batch);
    const std::scoped_lock lock(mutex);
    losses.push_back(loss);
  });
  for (const double loss : losses) CHECK(loss == losses.front());
  return losses.front();
}

}  // namespace

TEST_CASE("evaluations are 20 in a run, or take about a tenth of the time") {
  CHECK(evaluation_interval(1000, 10, 100) == 50);
  CHECK(evaluation_interval(1001, 10, 100) == 51);
  CHECK(evaluation_interval(1, 1, 1000) == 1);
  const std::int64_t interval = evaluation_interval(100, 240, 8);
  CHECK(interval == 100);
  CHECK(3 * 8 * interval >= 10 * 240);  // work of steps, and of an evaluation
}

TEST_CASE("the validation loss is the mean over all targets, whatever the mesh and the batch") {
  double sum = 0;
  std::int64_t targets = 0;
  run_mesh("dp=1", [&](const MeshPtr& mesh) {  // window by window, logits and logarithms in f64
    Gpt model(nn::Build(mesh, DType::f64, 7), small_config());
    const EvalWindows all = windows();
    for (std::int64_t i = 0; i < all.count(); ++i) {
      const Batch one = all.make_batch(i, 1);
      const Tensor logits = contiguous(model.logits(model.hidden(0, {}, one)).detach());  // [1, T, V]
      for (std::int64_t t = 0; t < 16; ++t) {
        const std::int32_t target = one["targets"].data<std::int32_t>()[t];
        if (target < 0) continue;
        const double* row = logits.data<double>() + t * logits.size(2);
        double total = 0;
        for (std::int64_t v = 0; v < test_vocab; ++v) total += std::exp(row[v]);
        sum += std::log(total) - row[target];
        ++targets;
      }
    }
  });
  CHECK(targets == windows().targets());
  const double expected = sum / static_cast<double>(targets);
  CHECK(loss_on("dp=1", 4) == doctest::Approx(expected).epsilon(1e-6));
  CHECK(loss_on("dp=1", 1) == doctest::Approx(expected).epsilon(1e-6));  // more rounds than are in flight at once
  for (const std::string& mesh : Meshes{"dp=2", "dp=3", "tp=2", "pp=2", "dp=2,tp=2,pp=2", "cp=2", "dp=2,cp=4"}) {
    CHECK_MESSAGE(loss_on(mesh, 4, {.global_batch = 12}) == doctest::Approx(expected).epsilon(1e-6), mesh);
  }
  for (const std::string& mesh : Meshes{"pp=1", "pp=2", "dp=2,tp=2,pp=2"})
    CHECK_MESSAGE(loss_on(mesh, 4, {.pipeline = "interleaved:2"}) == doctest::Approx(expected).epsilon(1e-6), mesh);
  CHECK(loss_on("pp=2", 4, {.config = small_config(0.5)}) == loss_on("pp=2", 4));  // evaluation has no dropout
}

TEST_CASE("a validation loss of some windows is the same on any mesh, with any number of them in a forward") {
  const EvalWindows some = EvalWindows::of_batches(test_tokens(16 * 61 - 5), 16, 2);
  CHECK(some.count() == 24);
  const double expected = loss_on("dp=1", 24, {}, some);
  for (const std::int64_t batch : {1, 5, 7, 40}) {  // 40: more rows than there are windows
    for (const std::string& mesh : Meshes{"dp=1", "dp=2", "dp=4", "pp=2"})
      CHECK_MESSAGE(loss_on(mesh, batch, {}, some) == doctest::Approx(expected).epsilon(1e-6), mesh, " ", batch);
  }
}

TEST_CASE("one rank that is told to leave ends an evaluation on all, without a loss") {
  for (const std::string& text : Meshes{"dp=1", "dp=2,tp=2", "pp=2", "dp=2,pp=2", "cp=2"}) {
    CAPTURE(text);
    run_mesh(text, [&](const MeshPtr& mesh) {
      GptRun run = run_of(mesh, {.pipeline = text == "dp=1" ? "interleaved:2" : "1f1b"});
      const EvalWindows all = EvalWindows::all(test_tokens(16 * 301 - 5), 16);
      const bool told = mesh->rank() == mesh->world().size() - 1;
      std::int64_t asked = 0, batches = 0;
      const auto progress = [&](std::int64_t done, std::int64_t /*all*/) { batches = done + 1; };
      const auto after = [&](std::int64_t times) { return [&, times] { return ++asked > times && told; }; };
      CHECK_FALSE(validation_loss_unless(after(1), run.gpt(), all, 1, progress));
      CHECK(batches <= 33);
      // The pipeline and the groups are as before.
      const double whole = validation_loss(run.gpt(), windows(), 4);
      CHECK(validation_loss_unless([] { return false; }, run.gpt(), windows(), 4, {}) == whole);
    });
  }
}

TEST_CASE("training with evaluation and generation in between is training without, bit for bit") {
  for (const std::string& text : Meshes{"dp=1", "dp=2,tp=2,pp=2", "tp=2,cp=2", "pp=2"}) {
    const Recipe recipe{.config = small_config(0.1), .pipeline = text == "pp=2" ? "interleaved:2" : "1f1b"};
    std::vector<double> disturbed;
    run_mesh(text, [&](const MeshPtr& mesh) {
      GptRun run = run_of(mesh, recipe);
      const std::vector<std::int32_t> prompt = {1, 2, 3};
      std::vector<double> losses;
      for (int i = 0; i < 5; ++i) {
        losses.push_back(run.step());
        std::vector<Tensor> gradients;
        for (const ParameterPtr& p : run.gpt().parameters()) gradients.push_back(clone(p->grad()));
        const std::optional<std::int64_t> first_sample = run.gpt().run_state().first_sample;
        validation_loss(run.gpt(), windows(), 8);
        generate(run.gpt(), prompt, {.length = 4});
        CHECK(run.gpt().run_state().training);
        CHECK(run.gpt().run_state().first_sample == first_sample);
        CHECK(grad_enabled());
        for (std::size_t k = 0; k < gradients.size(); ++k) {
          CHECK_MESSAGE(same_bits(run.gpt().parameters()[k]->grad(), gradients[k]), run.gpt().parameters()[k]->name);
        }
      }
      if (mesh->rank() == 0) disturbed = losses;
    });
    CHECK(disturbed == losses_on(text, recipe, 5));
  }
}
