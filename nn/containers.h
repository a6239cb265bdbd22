// Modules that hold other modules: Sequential and ModuleList, as in PyTorch. The modules in them are named by their
// number, so that "net.2.weight" is the same tensor here and there.
//
//   nn::Sequential net(b / "net");                       // or a member of another module
//   net.add<nn::Linear>(8, 32);
//   net.add(gelu);                                       // any function of one tensor
//   net.add<nn::Linear>(32, 3);
//   const Tensor y = net(x);                             // [.., 8] -> [.., 3]
//
//   nn::ModuleList<Block> blocks(b / "blocks", 4, [&](const nn::Build& block, int) {
//     return std::make_unique<Block>(block, width);
//   });
//   for (Block& block : blocks) x = block(x);
//
// A Sequential of a Build that begins a unit is one unit. To make each of its modules a unit of its own, give a
// ModuleList's function `block.unit()`.
// Read next: nn/module_base.h.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/module.h"

namespace trireme::nn {

/// Modules and functions of one tensor, called one after the other; see the top of this file.
class Sequential : public Module {
 public:
  explicit Sequential(const Build& b) : Module(b) {}

  /// Makes M(b / "<its number>", args...), and adds it.
  template <class M, class... Args>
  M& add(Args&&... args) {
    auto module = std::make_unique<M>(next_build(), std::forward<Args>(args)...);
    M& made = *module;
    steps_.push_back({std::move(module), {}});
    return made;
  }
  /// Adds a function without parameters. It takes a number, as a module does.
  void add(std::function<Tensor(const Tensor&)> function);

  Tensor forward(const Tensor& x) override;
  std::size_t size() const { return steps_.size(); }
  /// Throws ExitCode::usage if there is no such number, or it is that of a function.
  Module& operator[](std::size_t index) const;

 private:
  struct Step {
    std::unique_ptr<Module> module;  // or
    std::function<Tensor(const Tensor&)> function;
  };
  Build next_build() const { return build() / std::to_string(steps_.size()); }

  std::vector<Step> steps_;
};

/// Modules in a row, which its owner calls. M: the type of each, or a base class of all.
/// @snippet modules_test.cpp module_list
template <class M = Module>
class ModuleList : public ModuleBase {
 public:
  explicit ModuleList(const Build& b) : ModuleBase(b) {}
  /// make(b / "0", 0), make(b / "1", 1), ..: std::unique_ptr<M>.
  template <class Make>
  ModuleList(const Build& b, int count, const Make& make) : ModuleBase(b) {
    require(count >= 0, "ModuleList", "{}: {} modules; expected 0 or more", name(), count);
    for (int i = 0; i < count; ++i) {
      modules_.push_back(make(next_build(), i));
      require(modules_.back() != nullptr, "ModuleList",
              "{}: the function returned null as module {}; expected a module", name(), i);
    }
  }

  /// Makes D(b / "<its number>", args...), and adds it.
  template <class D = M, class... Args>
  D& add(Args&&... args) {
    auto module = std::make_unique<D>(next_build(), std::forward<Args>(args)...);
    D& made = *module;
    modules_.push_back(std::move(module));
    return made;
  }

  std::size_t size() const { return modules_.size(); }
  /// Module number `index`. Throws ExitCode::usage if there is no such number.
  M& operator[](std::size_t index) const {
    if (index >= modules_.size())
      fail(ExitCode::usage, "ModuleList", "{} has no module {}; expected less than {}", name(), index, modules_.size());
    return *modules_[index];
  }

  /// For loops over the modules: *it is an M&.
  class Iterator {
   public:
    explicit Iterator(const std::unique_ptr<M>* at) : at_(at) {}
    M& operator*() const { return **at_; }  ///< the module
    /// The next module.
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    bool operator==(const Iterator&) const = default;

   private:
    const std::unique_ptr<M>* at_;
  };
  Iterator begin() const { return Iterator(modules_.data()); }
  Iterator end() const { return Iterator(modules_.data() + modules_.size()); }

 private:
  Build next_build() const { return build() / std::to_string(modules_.size()); }

  std::vector<std::unique_ptr<M>> modules_;
};

}  // namespace trireme::nn
