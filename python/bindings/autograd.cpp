#include <fmt/format.h>

#include "common.h"

// Backward, modes and hooks.
namespace everyo::python {
namespace {

void backward(const Tensor& root, nb::handle gradient, bool retain_graph) {
  BackwardOptions options{.retain_graph = retain_graph};
  Tensor seed;
  if (!gradient.is_none()) {
    const NoGrad no_grad;
    seed = as_tensor(gradient, root.dtype());
    options.seed = &seed;
  }
  const nb::gil_scoped_release release;
  root.backward(options);
}

/// A mode of this thread for a with-block; may be entered again while it is open.
struct GradMode {
  bool on;
  std::vector<bool> before;
  void enter() {
    before.push_back(context().grad);
    context().grad = on;
  }
  void leave() {
    if (before.empty()) return;
    context().grad = before.back();
    before.pop_back();
  }
};

void bind_modes(nb::module_& m) {
  m.def(
      "is_grad_enabled", [] { return context().grad; }, "Are ops of this thread recorded?");
  m.def(
      "set_grad_mode", [](bool on) { context().grad = on; }, "mode"_a, "Turns recording on or off in this thread.");
  nb::class_<GradMode>(m, "GradMode", "Recording on or off in a with-block.")
      .def(
          "__init__",
          [](GradMode* self, bool mode) {
            new (self) GradMode{mode, {}};
          },
          "mode"_a)
      .def_prop_ro(
          "mode", [](const GradMode& g) { return g.on; }, "What the block sets.")
      .def(
          "__enter__",
          [](nb::handle self) {
            nb::inst_ptr<GradMode>(self)->enter();
            return nb::borrow(self);
          },
          nb::sig("def __enter__(self) -> GradMode"))
      .def(
          "__exit__", [](GradMode& self, const nb::args&) { self.leave(); },
          nb::sig("def __exit__(self, *exception: object) -> None"));
  const auto number = [&](const char* name, std::uint64_t Context::*field, const char* text) {
    m.def((std::string("get_") + name).c_str(), [field] { return context().*field; }, text);
    m.def((std::string("set_") + name).c_str(), [field](std::uint64_t value) { context().*field = value; }, "value"_a,
          text);
  };
  number("seed", &Context::seed, "The seed of this thread's keyed draws, such as dropout's.");
  number("step", &Context::step, "The step that keys this thread's draws; an optimizer's step moves it on.");
  m.def(
      "get_num_threads", [] { return static_cast<int>(context().threads); },
      "Most threads of a kernel called from this thread; 0: one a core.");
  m.def(
      "set_num_threads",
      [](int count) {
        if (count < 0 || count > ThreadLimit::most)
          throw ValueError(
              fmt::format("[set_num_threads] {}; between 0 (one a core) and {}", count, ThreadLimit::most));
        context().threads = static_cast<std::int16_t>(count);
      },
      "count"_a, "Most threads of a kernel called from this thread, 0 to 64; 0: one a core.");
}

}  // namespace

void bind_autograd(nb::module_& m, nb::class_<PyTensor>& tensor) {
  bind_modes(m);
  bind_node(m, tensor);
  tensor.def(
      "backward", [](const PyTensor& t, nb::handle gradient, bool retain) { backward(t.value, gradient, retain); },
      "gradient"_a = nb::none(), nb::kw_only(), "retain_graph"_a = true,
      nb::sig("def backward(self, gradient: typing.Optional[TensorLike] = None, *, retain_graph: bool = True) -> None"),
      "Adds the gradients of this tensor, times `gradient` [its shape], to every leaf it was made from. The graph "
      "stays until the tensor goes; retain_graph=False frees its memory at once.");
  m.def(
      "saved_bytes", [](const PyTensor& t) { return saved_bytes(t.value); }, "tensor"_a,
      "Bytes that the graph behind the tensor keeps for backward.");
  m.def(
      "on_gradient_ready",
      [](const PyTensor& t, nb::callable hook) {
        auto* held = new nb::callable(std::move(hook));
        const std::shared_ptr<nb::callable> shared(held, [](nb::callable* h) {
          if (!nb::is_alive()) return;
          const nb::gil_scoped_acquire acquire;
          delete h;
        });
        return add_ready_hook(t.value, [shared](const Tensor& leaf) {
          const nb::gil_scoped_acquire acquire;
          (*shared)(wrap(leaf));
        });
      },
      "tensor"_a, "hook"_a,
      nb::sig("def on_gradient_ready(tensor: Tensor, hook: collections.abc.Callable[[Tensor], object]) -> int"),
      "Calls hook(leaf) whenever a backward has completed a leaf's gradient; returns its number.");
  m.def(
      "remove_ready_hook", [](const PyTensor& t, std::uint64_t number) { remove_ready_hook(t.value, number); },
      "tensor"_a, "number"_a, "Takes a hook away.");
}

}  // namespace everyo::python
