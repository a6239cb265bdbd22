// A parameter server (Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server"): rank 0 has the
// weights, and the others send it gradients. How many gradients make an update, and how far a worker may run ahead,
// gives four methods:
//
//   synchronous    an update waits for all workers
//   backup         for all but the slowest, whose gradient is dropped (Chen et al. 2016, "Revisiting Distributed
//                  Synchronous SGD")
//   asynchronous   for one: each gradient is applied when it comes, whatever has happened to the weights since (Dean et
//                  al. 2012, "Large Scale Distributed Deep Networks"). Its staleness is the number of updates since
//   bounded        the same, and a worker may be at most so many steps ahead of the slowest (Ho et al. 2013, "More
//                  Effective Distributed ML via a Stale Synchronous Parallel Parameter Server")
//
// Read next: examples/history/hogwild.cpp, which needs no messages.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "autograd/ops.h"
#include "examples/history/history.h"

namespace trireme::history {
namespace {

constexpr int server = 0, tag = 0;
constexpr double stop = -1;  // in the place of a version

struct Method {
  std::string name;
  int gradients;             // that make an update
  bool in_rounds;            // a gradient that comes after its update is dropped
  std::optional<int> bound;  // how many steps a worker may be ahead of the slowest
};

/// [P + 1]: a vector, and the version of the weights that it is, or was computed from.
Tensor stamped(const Tensor& vector, double version) {
  Tensor message = Tensor::empty({vector.count() + 1});
  Tensor place = view::slice(message, 0, 0, vector.count());
  copy(vector, place);
  message.data<float>()[vector.count()] = static_cast<float>(version);
  return message;
}
double stamp_of(const Tensor& message) { return message.data<float>()[message.count() - 1]; }
Tensor vector_of(const Tensor& message) { return view::slice(message, 0, 0, message.count() - 1); }

/// What the server knows of a worker.
struct Client {
  Tensor message;  // [P + 1], arriving
  Work arriving;
  int steps = 0;         // gradients that it has sent
  bool waiting = false;  // for weights
};

std::string serve(ProcessGroup& world, const Method& method, int updates, Log& log) {
  Worker model(0, 1);  // to evaluate
  log.note(model.loss());
  Tensor w = model.weights(), sum = Tensor::zeros({model.size()});
  std::vector<Client> clients(static_cast<std::size_t>(world.size()));
  double version = 0, staleness = 0, used = 0, dropped = 0;
  int collected = 0;
  const auto reply = [&](int rank) {
    Client& client = clients[static_cast<std::size_t>(rank)];
    client.waiting = false;
    world.send(stamped(w, version), rank, tag).wait();
    client.message = Tensor::empty({w.count() + 1});
    client.arriving = world.recv(client.message, rank, tag);
  };
  for (int rank = 1; rank < world.size(); ++rank) reply(rank);
  while (version < updates) {
    for (int rank = 1; rank < world.size(); ++rank) {
      Client& client = clients[static_cast<std::size_t>(rank)];
      if (client.waiting || !client.arriving.done()) continue;
      client.arriving.wait();
      client.waiting = true;
      ++client.steps;
      const double age = version - stamp_of(client.message);
      if (method.in_rounds && age > 0) {  // too late for its step
        ++dropped;
        reply(rank);
        continue;
      }
      staleness += age;
      ++used;
      sum = sum + vector_of(client.message);
      if (++collected < method.gradients) continue;
      w = w - sum * (learning_rate / method.gradients);
      sum = Tensor::zeros({w.count()});
      collected = 0;
      ++version;
      model.set_weights(w);
      const int every = std::max(1, log_every * (world.size() - 1) / method.gradients);
      if (static_cast<int>(version) % every == 0 || version == updates) log.note(model.loss());
      int slowest = clients[1].steps;
      for (int other = 1; other < world.size(); ++other)
        slowest = std::min(slowest, clients[static_cast<std::size_t>(other)].steps);
      for (int other = 1; other < world.size(); ++other) {
        const Client& waits = clients[static_cast<std::size_t>(other)];
        if (waits.waiting && (!method.bound || waits.steps - slowest <= *method.bound)) reply(other);
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  for (int rank = 1; rank < world.size(); ++rank) {
    Client& client = clients[static_cast<std::size_t>(rank)];
    if (!client.waiting) client.arriving.wait();
    world.send(stamped(w, stop), rank, tag).wait();
  }
  return fmt::format("{:.0f} updates, mean staleness {:.1f}, {} gradients dropped", version, staleness / used, dropped);
}

void work(ProcessGroup& world, double slowness) {
  Worker worker(world.rank() - 1, world.size() - 1, slowness);
  const Tensor message = Tensor::empty({worker.size() + 1});
  while (true) {
    world.recv(message, server, tag).wait();
    if (stamp_of(message) == stop) return;
    worker.set_weights(vector_of(message));
    world.send(stamped(worker.gradient(), stamp_of(message)), server, tag).wait();
  }
}

}  // namespace

std::vector<Curve> parameter_server(const Setting& setting) {
  const int n = setting.workers;
  std::vector<Curve> curves = {synchronous(setting, setting.straggler)};
  curves.back().method = "all-reduce, one slow worker";
  for (const Method& method :
       {Method{"server, synchronous", n, true, {}}, Method{"server, one backup worker", n - 1, true, {}},
        Method{"server, asynchronous", 1, false, {}}, Method{"server, at most 2 ahead", 1, false, 2}}) {
    std::string note;
    const int updates = setting.steps * n / method.gradients;
    curves.push_back(measured(setting, method.name, n + 1, [&](const std::shared_ptr<ProcessGroup>& world, Log& log) {
      if (world->rank() == server) note = serve(*world, method, updates, log);
      if (world->rank() != server) work(*world, world->rank() == n ? setting.straggler : 1);
    }));
    curves.back().note = note;
  }
  return curves;
}

}  // namespace trireme::history
