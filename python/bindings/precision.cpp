#include "everyo/precision.h"

#include "common.h"

// Autocast's fields of the context, and the scaler.
namespace everyo::python {
namespace {

using Parameters = std::vector<PyTensor*>;

/// Autocast of this thread for a with-block; may be entered again while it is open.
struct AutocastMode {
  bool on;
  DType dtype;
  std::vector<std::pair<bool, DType>> before;
  void enter() {
    Context& c = context();
    before.emplace_back(c.autocast, c.autocast_dtype);
    c.autocast = on;
    if (on) c.autocast_dtype = dtype;
  }
  void leave() {
    if (before.empty()) return;
    std::tie(context().autocast, context().autocast_dtype) = before.back();
    before.pop_back();
  }
};

std::vector<Tensor> slots_in(const Parameters& parameters) {
  std::vector<Tensor> list;
  for (const PyTensor* p : parameters)
    if (p->value.requires_grad() && p->value.body()->leaf) list.push_back(p->value);  // a frozen one is not stepped
  return list;
}

nb::tuple names_of(std::span<const DType> dtypes) {
  nb::list names;
  for (const DType dtype : dtypes) names.append(name_of(dtype));
  return nb::tuple(names);
}

const void* identity(nb::handle optimizer) { return optimizer.ptr(); }

std::int64_t count_in(const nb::dict& state, const char* name) {
  if (!state.contains(name)) return 0;
  const nb::object value = state[name];
  std::int64_t count = 0;
  if (!PyLong_Check(value.ptr()) || !nb::try_cast(value, count))
    throw FileError(std::string("[GradScaler] the state's ") + name + " is no whole number, or too large for a count");
  return count;
}

}  // namespace

void bind_precision(nb::module_& m) {
  nb::class_<AutocastMode>(m, "AutocastMode", "Autocast on or off in a with-block.")
      .def(
          "__init__",
          [](AutocastMode* self, bool on, DTypeLike dtype) {
            const DType half = dtype_in(dtype).value_or(float16);
            { const Autocast checked(half); }
            new (self) AutocastMode{on, half, {}};
          },
          "on"_a, "dtype"_a, nb::sig("def __init__(self, on: bool, dtype: DTypeLike) -> None"))
      .def(
          "__enter__",
          [](nb::handle self) {
            nb::inst_ptr<AutocastMode>(self)->enter();
            return nb::borrow(self);
          },
          nb::sig("def __enter__(self) -> AutocastMode"))
      .def(
          "__exit__", [](AutocastMode& self, const nb::args&) { self.leave(); },
          nb::sig("def __exit__(self, *exception: object) -> None"));
  m.def(
      "is_autocast_enabled", [] { return context().autocast; }, "Do products of this thread compute in a half?");
  m.def(
      "autocast_dtype_name", [] { return std::string(name_of(context().autocast_dtype)); },
      "The half that products of this thread take under autocast.");
  m.def(
      "autocast_ops", [] { return autocast_ops(); },
      "Names of the library's ops that compute in halves under autocast.");
  m.def(
      "precision_report",
      [](const nb::callable& run) {
        const std::vector<PrecisionRow> rows = precision_report([&run] { run(); });
        nb::list list;
        for (const PrecisionRow& row : rows)
          list.append(nb::make_tuple(row.module, row.op, name_of(row.policy), names_of(row.operands),
                                     names_of(row.results), row.calls));
        return nb::make_tuple(list, to_string(rows));
      },
      "run"_a,
      nb::sig("def precision_report(run: typing.Callable[[], object]) -> "
              "tuple[list[tuple[str, str, str, tuple[str, ...], tuple[str, ...], int]], str]"),
      "What ran in which dtype while `run` did, as rows and as a table.");
  nb::class_<GradScaler>(m, "GradScaler")
      .def(
          "__init__",
          [](GradScaler* self, double init_scale, double growth_factor, double backoff_factor,
             std::int64_t growth_interval, std::int64_t most_skips, bool enabled) {
            new (self) GradScaler(GradScalerOptions{.init_scale = init_scale,
                                                    .growth_factor = growth_factor,
                                                    .backoff_factor = backoff_factor,
                                                    .growth_interval = growth_interval,
                                                    .most_skips = most_skips,
                                                    .enabled = enabled});
          },
          "init_scale"_a, "growth_factor"_a, "backoff_factor"_a, "growth_interval"_a, "most_skips"_a, "enabled"_a)
      .def(
          "get_scale", [](const GradScaler& s) { return s.scale(); }, "The scale now; 1.0 when disabled.")
      .def(
          "scaled", [](const GradScaler& s, const PyTensor& loss) { return wrap(s.scale(loss.value)); }, "loss"_a,
          nb::sig("def scaled(self, loss: Tensor) -> Tensor"), "The loss times the scale.")
      .def(
          "unscale",
          [](GradScaler& s, const Parameters& parameters, nb::handle optimizer, const std::string& name) {
            return s.unscale(slots_in(parameters), identity(optimizer), name);
          },
          "parameters"_a, "optimizer"_a, "name"_a,
          nb::sig("def unscale(self, parameters: list[Tensor], optimizer: object, name: str) -> bool"),
          "Divides the gradients; are all finite?")
      .def(
          "step",
          [](GradScaler& s, const Parameters& parameters, nb::handle optimizer, const std::string& name,
             const nb::callable& make_step) {
            return s.step(slots_in(parameters), identity(optimizer), name, [&make_step] { make_step(); });
          },
          "parameters"_a, "optimizer"_a, "name"_a, "make_step"_a,
          nb::sig("def step(self, parameters: list[Tensor], optimizer: object, name: str, "
                  "make_step: typing.Callable[[], object]) -> bool"),
          "Calls make_step, unless gradients overflowed; whether it did.")
      .def(
          "update", [](GradScaler& s, std::optional<double> scale) { scale ? s.update(*scale) : s.update(); },
          "new_scale"_a = nb::none(), "Adapts the scale, or sets it.")
      .def_prop_ro(
          "skipped_steps", [](const GradScaler& s) { return s.skipped_steps(); }, "Steps left out so far.")
      .def_prop_ro(
          "applied_steps", [](const GradScaler& s) { return s.applied_steps(); }, "Steps made so far.")
      .def_prop_ro(
          "overflowed", [](const GradScaler& s) { return s.overflowed(); },
          "The first parameter whose gradient was not finite when a step was last left out.")
      .def(
          "state_dict",
          [](const GradScaler& s) {
            const StateTree tree = s.state();
            nb::dict state;
            for (const auto& [key, entry] : tree.entries()) {
              if (entry.is<double>())
                state[nb::cast(key)] = entry.as<double>();
              else
                state[nb::cast(key)] = entry.as<std::int64_t>();
            }
            return state;
          },
          nb::sig("def state_dict(self) -> dict[str, typing.Any]"), "Scale and counts.")
      .def(
          "load_state_dict",
          [](GradScaler& s, const nb::dict& state) {
            if (!state.contains("scale") || !is_number(state["scale"]))
              throw FileError("[GradScaler] the state has no scale; load what state_dict() gave");
            StateTree tree;
            tree["scale"] = number_in(state["scale"]);
            for (const char* name : {"good_steps", "applied_steps", "skipped_steps", "skips_in_a_row"})
              tree[name] = count_in(state, name);
            s.load(tree);
          },
          "state"_a, nb::sig("def load_state_dict(self, state: dict[str, typing.Any]) -> None"),
          "Goes on from what state_dict() gave.");
}

}  // namespace everyo::python
