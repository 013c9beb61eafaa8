#include <fmt/format.h>

#include <random>

#include "common.h"

// Random numbers: NumPy's default_rng to the bit.
namespace everyo::python {
namespace {

// An integer of any size as 32-bit words, lowest first.
void append_words(nb::handle seed, std::vector<std::uint32_t>& words) {
  nb::object number = seed.attr("__index__")();
  if (nb::cast<bool>(number.attr("__lt__")(0)))
    throw ValueError(fmt::format("[seed] {} is negative; give 0 or more", text_of(number)));
  const auto bits = nb::cast<std::size_t>(number.attr("bit_length")());
  const std::size_t count = bits == 0 ? 1 : (bits + 31) / 32;
  const auto bytes = nb::cast<nb::bytes>(number.attr("to_bytes")(4 * count, "little"));
  const auto* data = static_cast<const unsigned char*>(bytes.data());
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t word = 0;
    for (std::size_t b = 4; b-- > 0;) word = word << 8 | data[4 * i + b];
    words.push_back(word);
  }
}

// What only NumPy knows to draw from, as its generator: one of its own, a SeedSequence, a sequence of integers. A seed
// of another kind is refused. Undefined for those that the library draws from itself.
nb::object numpy_generator(nb::handle seed) {
  if (seed.is_none() || PyLong_Check(seed.ptr()) || nb::isinstance<Generator>(seed)) return {};
  if (PyIndex_Check(seed.ptr()) && !PySequence_Check(seed.ptr())) return {};
  try {
    return numpy("random").attr("default_rng")(seed);
  } catch (nb::python_error& e) {
    if (!e.matches(PyExc_TypeError)) throw;
    raise(PyExc_TypeError, fmt::format("[seed] a {} is no seed; give None, a whole number from 0 up or a sequence of "
                                       "them, a SeedSequence or a Generator",
                                       class_name(seed)));
  }
}

// The state of a NumPy generator, copied. Throws TypeError unless its bits are PCG64's.
GeneratorState state_of(nb::handle generator) {
  const nb::object state = generator.attr("bit_generator").attr("state");
  if (text_of(state["bit_generator"]) != "PCG64")
    raise(PyExc_TypeError,
          fmt::format("[seed] the generator's bits are those of {}; it must be a PCG64, as default_rng's",
                      text_of(state["bit_generator"])));
  const auto word = [&](const char* name, int shift) {
    const nb::object part = (state["state"][name] >> nb::cast(shift)) & nb::cast(~std::uint64_t{0});
    return nb::cast<std::uint64_t>(part);
  };
  return {word("state", 64),
          word("state", 0),
          word("inc", 64),
          word("inc", 0),
          nb::cast<int>(state["has_uint32"]) != 0,
          nb::cast<std::uint32_t>(state["uinteger"])};
}

// Doubles drawn in row-major order, rounded once to the dtype.
template <class Fill>
Tensor drawn(const Shape& shape, std::optional<DType> dtype, Fill&& fill) {
  const NoGrad no_grad;
  const DType to = dtype.value_or(float32);
  if (to == float32) {
    Tensor values = Tensor::empty(shape, float32);
    fill(values.data<float>());
    return values;
  }
  const Tensor values = Tensor::empty(shape, float64);
  fill(values.data<double>());
  return cast(values, to);
}

struct Draw {
  nb::handle seed;
  DTypeLike dtype;
  nb::handle device;
  bool requires_grad;
};

Tensor finished(const Draw& draw, Tensor values) {
  check_device(draw.device);
  if (draw.requires_grad) values.set_requires_grad();
  return values;
}

Tensor uniform_draw(const Shape& shape, nb::handle sizes, double low, double high, const Draw& draw) {
  if (const nb::object generator = numpy_generator(draw.seed); generator.is_valid())
    return finished(draw,
                    as_tensor(generator.attr("uniform")(low, high, sizes), dtype_in(draw.dtype).value_or(float32)));
  Generator generator = generator_in(draw.seed);
  return finished(draw, drawn(shape, dtype_in(draw.dtype), [&](auto out) { generator.uniform(low, high, out); }));
}
Tensor normal_draw(const Shape& shape, nb::handle sizes, double mean, double deviation, const Draw& draw) {
  if (const nb::object generator = numpy_generator(draw.seed); generator.is_valid())
    return finished(
        draw, as_tensor(generator.attr("normal")(mean, deviation, sizes), dtype_in(draw.dtype).value_or(float32)));
  Generator generator = generator_in(draw.seed);
  return finished(draw, drawn(shape, dtype_in(draw.dtype), [&](auto out) { generator.normal(mean, deviation, out); }));
}

nb::object size_tuple(const Shape& shape) {
  nb::list sizes;
  for (const std::int64_t size : shape.sizes()) sizes.append(size);
  return nb::steal(PySequence_Tuple(sizes.ptr()));
}

nb::object array_of(const Tensor& values, nb::handle size) {
  return size.is_none() ? array_copy(values).attr("__getitem__")(nb::tuple()) : array_copy(values);
}
Shape size_in(nb::handle size) { return size.is_none() ? Shape{} : shape_in(size); }

void bind_generator(nb::module_& m) {
  nb::class_<Generator>(m, "Generator", "numpy.random.default_rng(seed): the same draws to the bit.")
      .def(
          "__init__", [](Generator* self, nb::handle seed) { new (self) Generator(generator_in(seed)); },
          "seed"_a = nb::none(), nb::sig("def __init__(self, seed: typing.Any = None) -> None"))
      .def(
          "random",
          [](Generator& g, nb::handle size) {
            return array_of(drawn(size_in(size), float64, [&](auto out) { g.random(out); }), size);
          },
          "size"_a = nb::none(), nb::sig("def random(self, size: typing.Any = None) -> typing.Any"),
          "Float64 draws in [0, 1).")
      .def(
          "uniform",
          [](Generator& g, double low, double high, nb::handle size) {
            return array_of(drawn(size_in(size), float64, [&](auto out) { g.uniform(low, high, out); }), size);
          },
          "low"_a = 0.0, "high"_a = 1.0, "size"_a = nb::none(),
          nb::sig("def uniform(self, low: float = 0.0, high: float = 1.0, size: typing.Any = None) -> typing.Any"),
          "Float64 draws in [low, high).")
      .def(
          "normal",
          [](Generator& g, double mean, double deviation, nb::handle size) {
            return array_of(drawn(size_in(size), float64, [&](auto out) { g.normal(mean, deviation, out); }), size);
          },
          "loc"_a = 0.0, "scale"_a = 1.0, "size"_a = nb::none(),
          nb::sig("def normal(self, loc: float = 0.0, scale: float = 1.0, size: typing.Any = None) -> typing.Any"),
          "Float64 normal draws.")
      .def(
          "integers",
          [](Generator& g, nb::handle low, nb::handle high, nb::handle size) {
            const Tensor values = Tensor::empty(size_in(size), int64);
            const std::int64_t from = high.is_none() ? 0 : whole_in(low, "low");
            g.integers(from, whole_in(high.is_none() ? low : high, "high"), values.data<std::int64_t>());
            return array_of(values, size);
          },
          "low"_a, "high"_a = nb::none(), "size"_a = nb::none(),
          nb::sig("def integers(self, low: int, high: typing.Optional[int] = None, size: typing.Any = None) -> "
                  "typing.Any"),
          "Int64 draws of low..high-1, or 0..low-1.")
      .def(
          "permutation",
          [](Generator& g, nb::handle count) {
            const Shape shape = shape_in(count);
            const std::vector<std::int64_t> order = g.permutation(shape.elements());
            return array_copy(Tensor::from(std::span<const std::int64_t>(order), {shape.elements()}));
          },
          "count"_a, nb::sig("def permutation(self, count: int) -> IntArray"), "0..count-1 in random order.")
      .def(
          "__getstate__",
          [](const Generator& g) {
            const GeneratorState& s = g.state();
            return nb::make_tuple(s.state_high, s.state_low, s.increment_high, s.increment_low, s.has_uint32,
                                  s.uinteger);
          },
          nb::sig("def __getstate__(self) -> tuple[typing.Any, ...]"))
      .def(
          "__setstate__",
          [](Generator& g, const nb::tuple& s) {
            const auto word = [&](std::size_t i) { return nb::cast<std::uint64_t>(s[i]); };
            new (&g) Generator(GeneratorState{word(0), word(1), word(2), word(3), nb::cast<bool>(s[4]),
                                              nb::cast<std::uint32_t>(s[5])});
          },
          nb::sig("def __setstate__(self, state: tuple[typing.Any, ...]) -> None"));
}

}  // namespace

Generator generator_in(nb::handle seed) {
  if (nb::isinstance<Generator>(seed)) return *nb::inst_ptr<Generator>(seed);
  if (const nb::object generator = numpy_generator(seed); generator.is_valid()) return Generator(state_of(generator));
  std::vector<std::uint32_t> words;
  if (seed.is_none()) {
    std::random_device entropy;
    for (int i = 0; i < 4; ++i) words.push_back(entropy());
  } else {
    append_words(seed, words);
  }
  return Generator(SeedSequence(words));
}

void draw_with(nb::handle seed, const std::function<void(Generator&)>& draw) {
  Generator generator = generator_in(seed);
  draw(generator);
  if (!nb::hasattr(seed, "bit_generator")) return;
  const GeneratorState& own = generator.state();
  const auto both = [](std::uint64_t high, std::uint64_t low) {
    return (nb::cast(high) << nb::cast(64)) | nb::cast(low);
  };
  const nb::object state = seed.attr("bit_generator").attr("state");
  state["state"]["state"] = both(own.state_high, own.state_low);
  state["state"]["inc"] = both(own.increment_high, own.increment_low);
  state["has_uint32"] = own.has_uint32 ? 1 : 0;
  state["uinteger"] = own.uinteger;
  seed.attr("bit_generator").attr("state") = state;
}

void bind_random(nb::module_& m) {
  m.def(
      "seed_word",
      [](nb::handle seed) {
        std::uint64_t word = 0;
        if (PyLong_Check(seed.ptr()) && nb::try_cast(seed, word)) return word;
        draw_with(seed, [&](Generator& generator) { word = generator.next_uint64(); });
        return word;
      },
      "seed"_a, nb::sig("def seed_word(seed: typing.Any) -> int"),
      "A seed of 64 bits: an int that has no more itself, else a draw of its generator.");
  bind_generator(m);
  constexpr const char* options =
      "seed: typing.Any = None, dtype: DTypeLike = None, device: typing.Any = 'cpu', "
      "requires_grad: bool = False) -> Tensor";
  m.def(
      "uniform",
      [](nb::handle shape, double low, double high, nb::handle seed, DTypeLike dtype, nb::handle device, bool grad) {
        const Shape sizes = shape_in(shape);
        return wrap(uniform_draw(sizes, size_tuple(sizes), low, high, {seed, dtype, device, grad}));
      },
      "shape"_a, "low"_a = 0.0, "high"_a = 1.0, nb::kw_only(), "seed"_a = nb::none(), "dtype"_a = nb::none(),
      "device"_a = "cpu", "requires_grad"_a = false,
      nb::sig((std::string("def uniform(shape: typing.Union[int, collections.abc.Sequence[int]], low: float = 0.0, "
                           "high: float = 1.0, *, ") +
               options)
                  .c_str()),
      "Draws in [low, high); an int seed gives those of numpy.random.default_rng(seed).");
  m.def(
      "normal",
      [](nb::handle shape, double mean, double deviation, nb::handle seed, DTypeLike dtype, nb::handle device,
         bool grad) {
        const Shape sizes = shape_in(shape);
        return wrap(normal_draw(sizes, size_tuple(sizes), mean, deviation, {seed, dtype, device, grad}));
      },
      "shape"_a, "mean"_a = 0.0, "std"_a = 1.0, nb::kw_only(), "seed"_a = nb::none(), "dtype"_a = nb::none(),
      "device"_a = "cpu", "requires_grad"_a = false,
      nb::sig((std::string("def normal(shape: typing.Union[int, collections.abc.Sequence[int]], mean: float = 0.0, "
                           "std: float = 1.0, *, ") +
               options)
                  .c_str()),
      "Normal draws; an int seed gives those of numpy.random.default_rng(seed).");
  const auto sized = [&](const char* name, bool normal, const char* text) {
    m.def(
        name,
        [normal](const nb::args& shape, nb::handle seed, DTypeLike dtype, nb::handle device, bool grad) {
          const Shape sizes = shape_in(shape);
          const Draw draw{seed, dtype, device, grad};
          const nb::object tuple = size_tuple(sizes);
          return wrap(normal ? normal_draw(sizes, tuple, 0, 1, draw) : uniform_draw(sizes, tuple, 0, 1, draw));
        },
        "shape"_a, nb::kw_only(), "seed"_a = nb::none(), "dtype"_a = nb::none(), "device"_a = "cpu",
        "requires_grad"_a = false,
        nb::sig((std::string("def ") + name + "(*shape: typing.Union[int, collections.abc.Sequence[int]], " + options)
                    .c_str()),
        text);
  };
  sized("rand", false, "Draws in [0, 1), rand(2, 3).");
  sized("randn", true, "Draws of mean 0 and deviation 1, randn(2, 3).");
}

}  // namespace everyo::python
