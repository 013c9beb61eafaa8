#include <nanobind/stl/pair.h>

#include <deque>

#include "common.h"

// What Python modules need of the library: initial values, and their place on the stack of module calls.
namespace everyo::python {
namespace {

Tensor initialised(const Initializer& fill, nb::handle shape, nb::handle seed, DTypeLike dtype) {
  const NoGrad no_grad;
  const Scoped<&Context::category> category(MemoryCategory::parameter);
  const Tensor values = Tensor::empty(shape_in(shape), dtype_in(dtype).value_or(float32));
  draw_with(seed, [&](Generator& generator) { fill(values, generator); });
  return values;
}

/// A module's place on the stack of calls, entered for a with-block; may be entered again while it is open.
class PyModuleScope {
 public:
  explicit PyModuleScope(std::string name) : name_(std::move(name)) {
    hash_ = name_.empty() ? 0 : module_name_hash(name_);
  }
  void enter() {
    Context& c = context();
    ModuleScope& scope = open_.emplace_back(ModuleScope{nullptr, c.scope, name_, 0, false});
    scope.path_hash = path_hash_below(c.scope != nullptr ? c.scope->path_hash : 0, hash_);
    c.scope = &scope;
  }
  void leave() {
    if (open_.empty()) return;
    context().scope = open_.back().parent;
    open_.pop_back();
  }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  std::string name_;
  std::uint64_t hash_ = 0;
  std::deque<ModuleScope> open_;  // places stay when it grows
};

struct Entered {
  PyModuleScope& scope;
  explicit Entered(PyModuleScope& s) : scope(s) { scope.enter(); }
  ~Entered() { scope.leave(); }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;
};

}  // namespace

void bind_nn(nb::module_& m) {
  m.def(
      "compute_fans",
      [](nb::handle shape) {
        const Fans fans = compute_fans(shape_in(shape));
        return std::make_pair(fans.in, fans.out);
      },
      "shape"_a, nb::sig("def compute_fans(shape: collections.abc.Sequence[int]) -> tuple[int, int]"),
      "Connections into and out of one unit: [in, out], [n] or a kernel [KH, KW, in, out].");
  m.def(
      "initialise",
      [](std::string_view name, nb::handle shape, nb::handle seed, DTypeLike dtype) {
        return wrap(initialised(Initializer(name), shape, seed, dtype));
      },
      "name"_a, "shape"_a, "seed"_a = nb::none(), "dtype"_a = nb::none(),
      nb::sig("def initialise(name: str, shape: collections.abc.Sequence[int], seed: typing.Any = None, "
              "dtype: DTypeLike = None) -> Tensor"),
      "First values by an initializer's name: xavier_, glorot_, he_ or kaiming_ with uniform or normal; zeros, ones, "
      "uniform (+-0.05), normal (deviation 0.05). Draws are numpy.random.default_rng(seed)'s, rounded once.");
  const auto scaled = [&](const char* name, Initializer (*make)(double)) {
    m.def(
        name,
        [make](nb::handle shape, nb::handle seed, double gain, DTypeLike dtype) {
          return wrap(initialised(make(gain), shape, seed, dtype));
        },
        "shape"_a, "seed"_a = nb::none(), "gain"_a = 1.0, "dtype"_a = nb::none(),
        nb::sig((std::string("def ") + name +
                 "(shape: collections.abc.Sequence[int], seed: typing.Any = None, gain: float = 1.0, "
                 "dtype: DTypeLike = None) -> Tensor")
                    .c_str()),
        "First values of a weight; draws as initialise().");
  };
  scaled("xavier_uniform", init::xavier_uniform);
  scaled("xavier_normal", init::xavier_normal);
  scaled("he_uniform", init::he_uniform);
  scaled("he_normal", init::he_normal);
  m.def(
      "uniform_init",
      [](nb::handle shape, nb::handle seed, double low, double high, DTypeLike dtype) {
        return wrap(initialised(init::uniform(low, high), shape, seed, dtype));
      },
      "shape"_a, "seed"_a = nb::none(), "low"_a = -0.05, "high"_a = 0.05, "dtype"_a = nb::none(),
      nb::sig("def uniform_init(shape: collections.abc.Sequence[int], seed: typing.Any = None, "
              "low: float = -0.05, high: float = 0.05, dtype: DTypeLike = None) -> Tensor"),
      "Uniform in [low, high).");
  m.def(
      "normal_init",
      [](nb::handle shape, nb::handle seed, double deviation, double mean, DTypeLike dtype) {
        return wrap(initialised(init::normal(deviation, mean), shape, seed, dtype));
      },
      "shape"_a, "seed"_a = nb::none(), "std"_a = 0.05, "mean"_a = 0.0, "dtype"_a = nb::none(),
      nb::sig("def normal_init(shape: collections.abc.Sequence[int], seed: typing.Any = None, "
              "std: float = 0.05, mean: float = 0.0, dtype: DTypeLike = None) -> Tensor"),
      "Normal with a deviation.");

  nb::class_<PyModuleScope>(m, "ModuleScope",
                            "A module's place on the stack of calls: its name within its parent, '' for the outermost. "
                            "The path that results keys dropout's masks and names errors.")
      .def(nb::init<std::string>(), "name"_a)
      .def_prop_ro("name", &PyModuleScope::name, "Name within the parent.")
      .def(
          "__enter__",
          [](nb::handle self) {
            nb::inst_ptr<PyModuleScope>(self)->enter();
            return nb::borrow(self);
          },
          nb::sig("def __enter__(self) -> ModuleScope"))
      .def(
          "__exit__", [](PyModuleScope& self, const nb::args&) { self.leave(); },
          nb::sig("def __exit__(self, *exception: object) -> None"))
      .def(
          "call",
          [](PyModuleScope& self, nb::handle function, const nb::args& arguments, const nb::kwargs& options) {
            const Entered entered(self);
            return nb::object(function(*arguments, **options));
          },
          "function"_a, "arguments"_a, "options"_a,
          nb::sig("def call(self, function: collections.abc.Callable[..., typing.Any], *arguments: typing.Any, "
                  "**options: typing.Any) -> typing.Any"),
          "function(*arguments, **options) inside this scope; cheaper than a with-block.");
  m.def("module_path", &module_path, "Dotted path of the module being called in this thread, '' outside any.");
}

}  // namespace everyo::python
