#include <nanobind/stl/pair.h>

#include <fmt/format.h>

#include "state.h"

// Optimizers, clipping, schedules; their states as dicts of numbers and NumPy arrays.
namespace everyo::python {
namespace {

// Slots from a list of tensors; a frozen tensor gets a slot that stays without gradient.
std::vector<Tensor> slots_in(const char* optimizer, nb::handle parameters) {
  std::vector<Tensor> slots;
  for (const nb::handle each : parameters) {
    if (!is_tensor(each))
      throw StateError(fmt::format("[{}] entry {} is {}, not an EveryO tensor; give model.parameters()", optimizer,
                                   slots.size(), nb::cast<std::string>(nb::repr(each.type()))));
    const Tensor& value = tensor_in(each);
    if (!value.body()->leaf && value.is_leaf() && is_floating(value.dtype())) {
      value.set_requires_grad(true);
      value.set_requires_grad(false);
    }
    slots.push_back(value);
  }
  return slots;
}
std::vector<Tensor> tensors_in(nb::handle parameters) {
  std::vector<Tensor> list;
  for (const nb::handle each : parameters) {
    if (!is_tensor(each)) throw StateError("[clip] a list entry is not an EveryO tensor; give model.parameters()");
    list.push_back(tensor_in(each));
  }
  return list;
}

// While it lives, frozen parameters have no gradient, whatever an earlier backward left.
class FrozenLeftOut {
 public:
  explicit FrozenLeftOut(const std::vector<Tensor>& parameters) {
    for (const Tensor& p : parameters)
      if (GradSlot& slot = p.body()->leaf->grad; !p.requires_grad() && slot.full) {
        slot.full = false;
        hidden_.push_back(&slot);
      }
  }
  ~FrozenLeftOut() {
    for (GradSlot* slot : hidden_) slot->full = true;
  }
  FrozenLeftOut(const FrozenLeftOut&) = delete;
  FrozenLeftOut& operator=(const FrozenLeftOut&) = delete;

 private:
  std::vector<GradSlot*> hidden_;
};

DType state_dtype_in(DTypeLike dtype) { return dtype_in(dtype).value_or(float32); }

void bind_base(nb::module_& m) {
  nb::class_<Optimizer>(m, "Optimizer", "What every optimizer does.")
      .def(
          "step",
          [](Optimizer& o) {
            const FrozenLeftOut frozen(o.parameters());
            const nb::gil_scoped_release release;
            o.step();
          },
          "One update of every parameter that has a gradient and is not frozen.")
      .def("zero_grad", &Optimizer::zero_grad, "Forgets the gradients of all parameters.")
      .def_prop_rw(
          "lr", [](const Optimizer& o) { return o.lr(); }, [](Optimizer& o, double lr) { o.set_lr(lr); },
          "Learning rate; setting it sets that of every group.")
      .def_prop_ro("step_count", &Optimizer::step_count, "Steps taken.")
      .def_prop_ro(
          "parameters", [](const Optimizer& o) { return wrap(o.parameters()); },
          nb::sig("def parameters(self) -> list[Tensor]"), "Tensors of the slots, group by group.")
      .def("name", &Optimizer::name, "\"SGD\", \"Adam\" or \"AdamW\".")
      .def(
          "state", [](const Optimizer& o) { return python_of(o.state()); },
          nb::sig("def state(self) -> dict[str, typing.Any]"),
          "Step counts, learning rates and each parameter's state, as nested dicts with NumPy arrays.")
      .def(
          "load", [](Optimizer& o, const nb::dict& state) { o.load(tree_of(state)); }, "state"_a,
          nb::sig("def load(self, state: dict[str, typing.Any]) -> None"),
          "Goes on from what state() gave. EveryOError when it does not fit; nothing is changed then.");
}

void bind_optimizers(nb::module_& m) {
  nb::class_<SGD, Optimizer>(m, "SGD", "v = momentum v + g; p -= lr v, with Nesterov p -= lr (g + momentum v).")
      .def(
          "__init__",
          [](SGD* self, nb::handle parameters, double lr, double momentum, double weight_decay, bool nesterov,
             DTypeLike dtype, bool master_weights) {
            new (self) SGD(slots_in("SGD", parameters), {.lr = lr,
                                                         .momentum = momentum,
                                                         .weight_decay = weight_decay,
                                                         .nesterov = nesterov,
                                                         .state_dtype = state_dtype_in(dtype),
                                                         .master_weights = master_weights});
          },
          "parameters"_a, "lr"_a = 0.01, nb::kw_only(), "momentum"_a = 0.0, "weight_decay"_a = 0.0,
          "nesterov"_a = false, "state_dtype"_a = nb::none(), "master_weights"_a = true,
          nb::sig("def __init__(self, parameters: collections.abc.Iterable[Tensor], lr: float = 0.01, *, "
                  "momentum: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False, "
                  "state_dtype: DTypeLike = None, master_weights: bool = True) -> None"));
  nb::class_<Adam, Optimizer>(m, "Adam", "Adam (Kingma and Ba, 2015), bias-corrected; weight decay joins the gradient.")
      .def(
          "__init__",
          [](Adam* self, nb::handle parameters, double lr, std::pair<double, double> betas, double eps,
             double weight_decay, bool amsgrad, DTypeLike dtype, bool master_weights) {
            new (self) Adam(slots_in("Adam", parameters), {.lr = lr,
                                                           .beta1 = betas.first,
                                                           .beta2 = betas.second,
                                                           .eps = eps,
                                                           .weight_decay = weight_decay,
                                                           .amsgrad = amsgrad,
                                                           .state_dtype = state_dtype_in(dtype),
                                                           .master_weights = master_weights});
          },
          "parameters"_a, "lr"_a = 0.001, nb::kw_only(), "betas"_a = nb::make_tuple(0.9, 0.999), "eps"_a = 1e-8,
          "weight_decay"_a = 0.0, "amsgrad"_a = false, "state_dtype"_a = nb::none(), "master_weights"_a = true,
          nb::sig("def __init__(self, parameters: collections.abc.Iterable[Tensor], lr: float = 0.001, *, "
                  "betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-08, weight_decay: float = 0.0, "
                  "amsgrad: bool = False, state_dtype: DTypeLike = None, master_weights: bool = True) -> None"));
  nb::class_<AdamW, Adam>(m, "AdamW", "Adam with weight decay on the weight itself (Loshchilov and Hutter, 2019).")
      .def(
          "__init__",
          [](AdamW* self, nb::handle parameters, double lr, std::pair<double, double> betas, double eps,
             double weight_decay, bool amsgrad, DTypeLike dtype, bool master_weights) {
            new (self) AdamW(slots_in("AdamW", parameters), {.lr = lr,
                                                             .beta1 = betas.first,
                                                             .beta2 = betas.second,
                                                             .eps = eps,
                                                             .weight_decay = weight_decay,
                                                             .amsgrad = amsgrad,
                                                             .state_dtype = state_dtype_in(dtype),
                                                             .master_weights = master_weights});
          },
          "parameters"_a, "lr"_a = 0.001, nb::kw_only(), "betas"_a = nb::make_tuple(0.9, 0.999), "eps"_a = 1e-8,
          "weight_decay"_a = 0.01, "amsgrad"_a = false, "state_dtype"_a = nb::none(), "master_weights"_a = true,
          nb::sig("def __init__(self, parameters: collections.abc.Iterable[Tensor], lr: float = 0.001, *, "
                  "betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-08, weight_decay: float = 0.01, "
                  "amsgrad: bool = False, state_dtype: DTypeLike = None, master_weights: bool = True) -> None"));
}

struct PySchedule {
  Schedule factor;
};

void bind_schedules(nb::module_& m) {
  nb::class_<PySchedule>(m, "Schedule", "A factor on the learning rate at a step, 0 the first.")
      .def(
          "__call__", [](const PySchedule& s, std::int64_t step) { return s.factor(step); }, "step"_a);
  m.def(
      "constant_schedule", [] { return PySchedule{constant_schedule()}; }, "1 at every step.");
  m.def(
      "step_schedule", [](std::int64_t size, double gamma) { return PySchedule{step_schedule(size, gamma)}; },
      "step_size"_a, "gamma"_a, "gamma ** floor(step / step_size).");
  m.def(
      "cosine_schedule", [](std::int64_t steps, double minimum) { return PySchedule{cosine_schedule(steps, minimum)}; },
      "steps"_a, "minimum"_a = 0.0, "From 1 to minimum along half a cosine over `steps`, then minimum.");
  m.def(
      "warm_up",
      [](std::int64_t steps, const PySchedule* after) {
        return PySchedule{warm_up(steps, after != nullptr ? after->factor : constant_schedule())};
      },
      "steps"_a, "after"_a = nb::none(), "(step + 1) / steps for the first steps, then `after`, counted from 0.");
  nb::class_<Scheduler>(m, "Scheduler", "Applies a schedule to the learning rate an optimizer was made with.")
      .def(
          "__init__",
          [](Scheduler* self, Optimizer& optimizer, const PySchedule& schedule) {
            new (self) Scheduler(optimizer, schedule.factor);
          },
          "optimizer"_a, "schedule"_a, nb::keep_alive<1, 2>())
      .def("step", &Scheduler::step, "After each optimizer step that was applied.")
      .def_prop_ro("step_count", &Scheduler::step_count, "Steps taken.")
      .def(
          "state", [](const Scheduler& s) { return python_of(s.state()); },
          nb::sig("def state(self) -> dict[str, typing.Any]"), "The step and the rates it started from.")
      .def(
          "load", [](Scheduler& s, const nb::dict& state) { s.load(tree_of(state)); }, "state"_a,
          nb::sig("def load(self, state: dict[str, typing.Any]) -> None"), "Goes on from what state() gave.");
}

}  // namespace

void bind_optim(nb::module_& m) {
  bind_base(m);
  bind_optimizers(m);
  bind_schedules(m);
  m.def(
      "clip_grad_norm",
      [](nb::handle parameters, double max_norm, bool strict) {
        return clip_grad_norm(tensors_in(parameters), max_norm, {.error_if_nonfinite = strict});
      },
      "parameters"_a, "max_norm"_a, nb::kw_only(), "error_if_nonfinite"_a = false,
      nb::sig("def clip_grad_norm(parameters: collections.abc.Iterable[Tensor], max_norm: float, *, "
              "error_if_nonfinite: bool = False) -> float"),
      "Scales all gradients so that their joint L2 norm is at most max_norm; returns the norm before.");
  m.def(
      "clip_grad_value", [](nb::handle parameters, double limit) { clip_grad_value(tensors_in(parameters), limit); },
      "parameters"_a, "limit"_a,
      nb::sig("def clip_grad_value(parameters: collections.abc.Iterable[Tensor], limit: float) -> None"),
      "Clips every gradient element into [-limit, limit].");
  m.def(
      "first_nonfinite",
      [](nb::handle parameters, bool values) { return first_nonfinite(tensors_in(parameters), values); },
      "parameters"_a, "values"_a = false,
      nb::sig("def first_nonfinite(parameters: collections.abc.Iterable[Tensor], values: bool = False) -> str"),
      "Name of the first parameter whose gradient (or value) is infinite or NaN; '' when there is none.");
}

}  // namespace everyo::python
