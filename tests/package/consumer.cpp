// What a program outside the tree relies on: an op of its own is a full citizen, gradients come back, and an error
// thrown inside the library is caught here by its own type, with hidden symbols on both sides.
#include <everyo/autograd.h>
#include <everyo/op.h>

#include <algorithm>
#include <cstdio>
#include <string>

namespace {

constexpr everyo::Record<> square_record{
    .name = "square",
    .policy = everyo::CastPolicy::follow,
    .saves = {.inputs = {everyo::for_grad_of(0)}},
    .infer = [](const everyo::Inputs& in, const everyo::NoAttrs&) -> everyo::Specs { return in[0].spec(); },
    .forward =
        [](const everyo::Call& call, const everyo::NoAttrs&) {
          std::ranges::transform(call.in[0].data<float>(), call.out[0].data<float>().begin(),
                                 [](float x) { return x * x; });
        },
    .backward =
        [](everyo::Backward& b, const everyo::NoAttrs&) {
          everyo::Tensor gradient = everyo::Tensor::empty(b.input(0).spec());
          std::ranges::transform(b.input(0).data<float>(), b.grad().data<float>(), gradient.data<float>().begin(),
                                 [](float x, float g) { return 2 * x * g; });
          b.give(0, gradient);
        },
    .cost = [](const everyo::Inputs& in, const everyo::Specs&,
               const everyo::NoAttrs&) { return everyo::Cost{.flops = static_cast<double>(in[0].size())}; },
    .onnx = everyo::no("an example"),
    .composed = everyo::no("primitive")};
static_assert(square_record.complete());

int failures = 0;
void check(bool holds, const char* what) {
  if (holds) return;
  std::printf("FAILED: %s\n", what);
  ++failures;
}

}  // namespace

int main() {
  const everyo::Tensor x = everyo::Tensor::from({1.5f, -2.0f}, {2});
  x.set_requires_grad();
  const everyo::Tensor y = everyo::apply<square_record>({}, everyo::apply<square_record>({}, x));
  const everyo::Tensor seed = everyo::Tensor::ones({2});
  y.backward({.seed = &seed});
  check(y.to_vector() == std::vector<double>{5.0625, 16}, "x^4");
  check(x.grad().to_vector() == std::vector<double>{13.5, -32}, "4 x^3");

  try {
    everyo::dtype_of("float31");
    check(false, "an unknown dtype is refused");
  } catch (const everyo::DTypeError& error) {
    check(std::string(error.what()).find("float31") != std::string::npos, "the message names the dtype");
  }
  if (failures == 0) std::printf("consumer: all holds\n");
  return failures == 0 ? 0 : 1;
}
