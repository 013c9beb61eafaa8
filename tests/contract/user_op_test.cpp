#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "contract/laws.h"

// The laws hold a user's own op, defined here outside the library, as they hold the library's; and each law finds an op
// that breaks it.
namespace everyo_test::contract {
namespace {

using eo::Tensor;

// f(x, g) of each element, in the type it is computed in.
template <class F>
void each(const Tensor& x, const Tensor& g, const Tensor& out, F f) {
  eo::visit_dtype(x.dtype(), [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>)
      std::ranges::transform(x.data<T>(), g.data<T>(), out.data<T>().begin(),
                             [&](T a, T b) { return eo::narrow<T>(f(eo::widen(a), eo::widen(b))); });
  });
}

constexpr auto square_infer = [](const eo::Inputs& in, const eo::NoAttrs&) -> eo::Specs { return in[0].spec(); };
constexpr auto square_forward = [](const eo::Call& c, const eo::NoAttrs&) {
  each(c.in[0], c.in[0], c.out[0], [](auto x, auto) { return x * x; });
};
constexpr auto square_backward = [](eo::Backward& b, const eo::NoAttrs&) {
  const Tensor d = Tensor::empty(b.input(0).spec());
  each(b.input(0), b.grad(), d, [](auto x, auto g) { return static_cast<decltype(x)>(2) * x * g; });
  b.give(0, d);
};
constexpr auto square_cost = [](const eo::Inputs& in, const eo::Specs&, const eo::NoAttrs&) -> eo::Cost {
  return {.flops = static_cast<double>(in[0].size()), .bytes = 2 * static_cast<double>(in[0].spec().bytes())};
};
constexpr auto square_lowering = [](eo::onnx::Graph& g, const eo::onnx::Values& v,
                                    const eo::NoAttrs&) -> eo::onnx::Values {
  return {g.node("Mul", {v[0], v[0]}, v[0].spec)};
};
constexpr auto square_composed = [](const eo::Inputs& in, const eo::NoAttrs&) { return eo::power(in[0], 2); };

constexpr eo::Record<> square_record{.name = "square",
                                     .policy = eo::CastPolicy::follow,
                                     .saves = {.inputs = {eo::for_grad_of(0)}},
                                     .infer = square_infer,
                                     .forward = square_forward,
                                     .backward = square_backward,
                                     .cost = square_cost,
                                     .onnx = square_lowering,
                                     .composed = square_composed};

// Samples of square as any record that claims to be it.
template <const auto& record>
Samples square_samples() {
  const auto of = [](const eo::Shape& shape) {
    return Case{.inputs = {{.shape = shape}},
                .run = [](Tensors in) { return eo::apply<record>({}, in[0]); },
                .reference = map([](double x) { return x * x; }),
                .flops = static_cast<double>(shape.elements())};
  };
  return {.op = "square",
          .at =
              [of](std::int64_t n) {
                return of({n, 5});
              },
          .cases = {of({2, 4}), of({})},
          .refusals = {{.run = [] { eo::apply<record>({}, Tensor()); },
                        .text = {"square", "undefined"},
                        .kind = eo::ErrorKind::state}}};
}

TEST(UserOp, ObeysEveryLaw) {
  const Samples samples = square_samples<square_record>();
  for (const Law& law : laws())
    EXPECT_THAT(law.check({eo::op_of<square_record>, samples}), testing::IsEmpty()) << law.name;
}

// ---- records with one fault each -----------------------------------------------------------------------------------

// Holds a record to every law: the law named, and only those in `others`, must find something.
template <const auto& record>
void expect_caught_by(const std::string& name, const std::vector<std::string>& others = {}) {
  const Samples samples = square_samples<record>();
  for (const Law& law : laws()) {
    const Findings findings = law.check({eo::op_of<record>, samples});
    if (law.name == name) {
      EXPECT_THAT(findings, testing::Not(testing::IsEmpty())) << law.name;
    } else if (std::ranges::find(others, law.name) == others.end()) {
      EXPECT_THAT(findings, testing::IsEmpty()) << law.name;
    }
  }
}

constexpr eo::Record<> with(auto change) {
  eo::Record<> record = square_record;
  change(record);
  return record;
}

constexpr auto bad_value = with([](eo::Record<>& r) {
  r.forward = [](const eo::Call& c, const eo::NoAttrs&) {
    each(c.in[0], c.in[0], c.out[0], [](auto x, auto) { return x * x + static_cast<decltype(x)>(0.03125); });
  };
});
TEST(WrongOp, ValueIsCaught) { expect_caught_by<bad_value>("values", {"rounding", "composed", "runtime"}); }

constexpr auto bad_gradient = with([](eo::Record<>& r) {
  r.backward = [](eo::Backward& b, const eo::NoAttrs&) {
    const Tensor d = Tensor::empty(b.input(0).spec());
    each(b.input(0), b.grad(), d, [](auto x, auto g) { return x * g; });
    b.give(0, d);
  };
});
TEST(WrongOp, GradientIsCaught) { expect_caught_by<bad_gradient>("gradients", {"composed", "zeros"}); }

constexpr auto unreached_gradient =
    with([](eo::Record<>& r) { r.backward = [](eo::Backward&, const eo::NoAttrs&) {}; });
TEST(WrongOp, MissingGradientIsCaught) {
  expect_caught_by<unreached_gradient>("gradients", {"independence", "rounding", "composed", "memory"});
}

// A gradient that is right for a leaf whose slot is empty, and lost when one is there already.
constexpr auto overwriting_gradient = with([](eo::Record<>& r) {
  r.backward = [](eo::Backward& b, const eo::NoAttrs& a) {
    const eo::Target target = b.target(0);
    if (!target) return square_backward(b, a);
    each(b.input(0), b.grad(), target.memory, [](auto x, auto g) { return static_cast<decltype(x)>(2) * x * g; });
    b.wrote(0);
  };
});
TEST(WrongOp, LostContributionIsCaught) { expect_caught_by<overwriting_gradient>("independence"); }

constexpr auto half_arithmetic = with([](eo::Record<>& r) {
  r.forward = [](const eo::Call& c, const eo::NoAttrs& a) {
    square_forward(c, a);
    if (c.out[0].dtype() == eo::bfloat16)  // truncates instead of rounding, twice
      for (eo::BFloat16& y : c.out[0].data<eo::BFloat16>()) y.bits = static_cast<std::uint16_t>(y.bits & 0xfffcu);
  };
});
TEST(WrongOp, RoundingIsCaught) { expect_caught_by<half_arithmetic>("rounding", {"composed", "runtime"}); }

constexpr auto wide_gradient = with([](eo::Record<>& r) {
  r.policy = eo::CastPolicy::keep32;  // and yet gives halves under autocast
});
TEST(WrongOp, PolicyIsCaught) { expect_caught_by<wide_gradient>("policy"); }

constexpr auto bad_flops = with([](eo::Record<>& r) {
  r.cost = [](const eo::Inputs& in, const eo::Specs& out, const eo::NoAttrs& a) {
    eo::Cost cost = square_cost(in, out, a);
    cost.flops *= 2;
    return cost;
  };
});
TEST(WrongOp, FlopsAreCaught) { expect_caught_by<bad_flops>("cost"); }
constexpr auto bad_bytes = with([](eo::Record<>& r) {
  r.cost = [](const eo::Inputs& in, const eo::Specs& out, const eo::NoAttrs& a) {
    eo::Cost cost = square_cost(in, out, a);
    cost.bytes /= 2;
    return cost;
  };
});
TEST(WrongOp, BytesAreCaught) { expect_caught_by<bad_bytes>("cost"); }

constexpr auto other_when_meta = with([](eo::Record<>& r) {
  r.infer = [](const eo::Inputs& in, const eo::NoAttrs&) -> eo::Specs {
    return eo::Spec{in[0].is_meta() ? eo::float64 : in[0].dtype(), in[0].shape()};
  };
});
TEST(WrongOp, MetaSpecIsCaught) { expect_caught_by<other_when_meta>("meta"); }

// The sum of the elements before it makes an element depend on where the work is cut.
constexpr auto depends_on_place = with([](eo::Record<>& r) {
  r.forward = [](const eo::Call& c, const eo::NoAttrs& a) {
    square_forward(c, a);
    if (c.out[0].dtype() != eo::float32 || c.out[0].size() == 0) return;
    if (reinterpret_cast<std::uintptr_t>(c.in[0].bytes()) % 16 != 0)
      c.out[0].data<float>()[0] = std::nextafterf(c.out[0].data<float>()[0], 1e9f);
  };
});
TEST(WrongOp, DependenceOnPlaceIsCaught) { expect_caught_by<depends_on_place>("bits"); }
constexpr auto depends_on_threads = with([](eo::Record<>& r) {
  r.forward = [](const eo::Call& c, const eo::NoAttrs& a) {
    square_forward(c, a);
    if (c.out[0].dtype() == eo::float32 && c.out[0].size() != 0 && eo::context().threads == 2)
      c.out[0].data<float>()[0] = std::nextafterf(c.out[0].data<float>()[0], 1e9f);
  };
});
TEST(WrongOp, DependenceOnThreadsIsCaught) { expect_caught_by<depends_on_threads>("bits"); }

constexpr auto not_its_composition = with([](eo::Record<>& r) {
  r.composed = [](const eo::Inputs& in, const eo::NoAttrs&) { return eo::scale(eo::multiply(in[0], in[0]), 1.0625); };
});
TEST(WrongOp, OtherCompositionIsCaught) { expect_caught_by<not_its_composition>("composed", {"zeros"}); }

// x g + x g, each rounded: where 2 x g is small, both are 0.
constexpr auto rounds_too_often = with([](eo::Record<>& r) {
  r.backward = [](eo::Backward& b, const eo::NoAttrs&) {
    const Tensor half = Tensor::empty(b.input(0).spec());
    each(b.input(0), b.grad(), half, [](auto x, auto g) { return x * g; });
    b.give(0, eo::add(half, half));
  };
});
TEST(WrongOp, LostGradientIsCaught) { expect_caught_by<rounds_too_often>("zeros", {"composed"}); }

constexpr auto broken_graph = with([](eo::Record<>& r) {
  r.onnx = [](eo::onnx::Graph& g, const eo::onnx::Values& v, const eo::NoAttrs&) -> eo::onnx::Values {
    return {g.node("Mul", {v[0], {"nowhere", v[0].spec}}, v[0].spec)};
  };
});
TEST(WrongOp, UndefinedEdgeIsCaught) { expect_caught_by<broken_graph>("lowering", {"runtime"}); }
constexpr auto empty_graph = with([](eo::Record<>& r) {
  r.onnx = [](eo::onnx::Graph&, const eo::onnx::Values& v, const eo::NoAttrs&) -> eo::onnx::Values { return {v[0]}; };
});
TEST(WrongOp, EmptyGraphIsCaught) { expect_caught_by<empty_graph>("lowering", {"runtime"}); }
constexpr auto other_spec_in_graph = with([](eo::Record<>& r) {
  r.onnx = [](eo::onnx::Graph& g, const eo::onnx::Values& v, const eo::NoAttrs&) -> eo::onnx::Values {
    return {g.node("Mul", {v[0], v[0]}, {eo::float64, v[0].spec.shape})};
  };
});
TEST(WrongOp, OtherSpecInTheGraphIsCaught) { expect_caught_by<other_spec_in_graph>("lowering", {"runtime"}); }

constexpr auto other_op_in_graph = with([](eo::Record<>& r) {
  r.onnx = [](eo::onnx::Graph& g, const eo::onnx::Values& v, const eo::NoAttrs&) -> eo::onnx::Values {
    return {g.node("Add", {v[0], v[0]}, v[0].spec)};
  };
});
TEST(WrongOp, OtherOpInTheGraphIsCaught) { expect_caught_by<other_op_in_graph>("runtime"); }

constexpr auto leaves_the_last = with([](eo::Record<>& r) {
  r.forward = [](const eo::Call& c, const eo::NoAttrs& a) {
    // What was there is kept in the last element, as a masked store one too short would.
    const std::size_t size = eo::size_of(c.out[0].dtype()), bytes = c.out[0].spec().bytes();
    std::byte last[8]{};
    if (bytes != 0) std::memcpy(last, c.out[0].bytes() + bytes - size, size);
    const bool guarded = bytes > size && last[0] == std::byte{0xff} && last[size - 1] == std::byte{0xff};
    square_forward(c, a);
    if (guarded) std::memcpy(c.out[0].bytes() + bytes - size, last, size);
  };
});
TEST(WrongOp, UnwrittenOutputIsCaught) { expect_caught_by<leaves_the_last>("memory"); }
constexpr auto changes_its_operand = with([](eo::Record<>& r) {
  r.forward = [](const eo::Call& c, const eo::NoAttrs& a) {
    square_forward(c, a);
    if (c.in[0].dtype() == eo::float64 && c.in[0].size() > 40) c.in[0].data<double>()[40] += 1;
  };
});
TEST(WrongOp, ChangedOperandIsCaught) { expect_caught_by<changes_its_operand>("memory", {"values", "bits"}); }

struct SquareAttrs {
  double unused;
};
constexpr eo::Record<SquareAttrs> untold_record{
    .name = "square",
    .policy = eo::CastPolicy::follow,
    .infer = [](const eo::Inputs& in, const SquareAttrs&) { return square_infer(in, {}); },
    .forward = [](const eo::Call& c, const SquareAttrs&) { square_forward(c, {}); },
    .backward = eo::no("not needed here"),
    .cost = [](const eo::Inputs& in, const eo::Specs& out, const SquareAttrs&) { return square_cost(in, out, {}); },
    .onnx = eo::no("not needed here"),
    .composed = eo::no("primitive")};
TEST(WrongOp, UntoldAttributesAreCaught) {
  EXPECT_THAT(attributes_are_told({eo::op_of<untold_record>, square_samples<square_record>()}),
              testing::ElementsAre(testing::HasSubstr("no describe()")));
}

TEST(WrongOp, MissingSamplesAreCaught) {
  EXPECT_EQ(samples_of("square"), nullptr);  // a registry with square in it would fail by this name
  const eo::Op& op = eo::op_of<square_record>;
  const auto found = [&](auto change) {
    Samples samples = square_samples<square_record>();
    change(samples);
    return samples_are_complete({op, samples});
  };
  using testing::Contains;
  using testing::HasSubstr;
  EXPECT_THAT(found([](Samples& s) { s.at = nullptr; }), Contains(HasSubstr("`at`")));
  EXPECT_THAT(found([](Samples& s) { s.refusals.clear(); }), Contains(HasSubstr("`refusals`")));
  EXPECT_THAT(found([](Samples& s) { s.at = [](std::int64_t) { return square_samples<square_record>().at(3); }; }),
              Contains(HasSubstr("at(7)")));
  EXPECT_THAT(found([](Samples& s) { s.cases[0].reference = nullptr; }), Contains(HasSubstr("reference")));
  EXPECT_THAT(found([](Samples& s) {
                const auto at = s.at;
                s.at = [at](std::int64_t n) {
                  Case c = at(n);
                  c.run = [](Tensors in) { return eo::multiply(in[0], in[0]); };
                  c.flops.reset();
                  return c;
                };
                s.cases.clear();
              }),
              testing::AllOf(Contains(HasSubstr("no case calls the op")), Contains(HasSubstr("`flops`"))));
}

TEST(WrongOp, UnclearRefusalIsCaught) {
  const eo::Op& op = eo::op_of<square_record>;
  const auto found = [&](const Refusal& refusal) {
    Samples samples = square_samples<square_record>();
    samples.refusals = {refusal};
    return refusals_say_why({op, samples});
  };
  EXPECT_THAT(found({.run = [] {}, .text = {"broadcast"}}), testing::SizeIs(1));
  EXPECT_THAT(found({.run = [] { throw eo::ShapeError("wrong"); }, .text = {}}), testing::SizeIs(1));
  EXPECT_THAT(found({.run = [] { throw eo::ShapeError("[square] wrong"); }, .text = {"(2, 3)"}}), testing::SizeIs(1));
  EXPECT_THAT(found({.run = [] { throw eo::ValueError("[square] wrong"); }, .text = {"wrong"}}), testing::SizeIs(1));
}

}  // namespace
}  // namespace everyo_test::contract
