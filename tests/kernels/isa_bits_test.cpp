#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/digest.h"
#include "everyo/isa.h"
#include "kernels/convolution.h"
#include "kernels/draw.h"
#include "kernels/isa.h"
#include "kernels/matmul.h"
#include "kernels/reduce.h"
#include "kernels/unary.h"

namespace everyo::kernels {
namespace {

// Products of each kernel there is, oneDNN's among them, with their epilogues; functions of elements; sums.
template <class T>
void add_products(base::Sha256& digest) {
  for (const std::int64_t size : {7, 96, 160}) {
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        const MatmulProblem p{
            .m = size + 5, .n = size, .k = size + 1, .transpose_a = transpose_a, .transpose_b = transpose_b};
        const auto a = draw<T>(p.m * p.k, 1), b = draw<T>(p.k * p.n, 2), bias = draw<T>(p.n, 3);
        std::vector<T> c(static_cast<std::size_t>(p.m * p.n)), sums(static_cast<std::size_t>(p.n));
        matmul<T>(p, a.data(), b.data(), c.data(), {bias.data(), true});
        digest.update(std::as_bytes(std::span(c)));
        column_sum(dtype_v<T>, p.m, p.n, c.data(), sums.data());
        unary_forward(Unary::exp, dtype_v<T>, c.data(), c.data(), p.m * p.n);
        digest.update(std::as_bytes(std::span(c)));
        digest.update(std::as_bytes(std::span(sums)));
      }
    }
  }
}

void add_convolutions(base::Sha256& digest) {
  for (const std::int64_t channels : {3, 32}) {
    const ConvolutionAxis axis{.input = 16, .window = 3, .before = 1, .after = 1, .output = 16};
    const ConvolutionProblem p{.images = 3, .channels = channels, .outputs = 40, .height = axis, .width = axis};
    const auto x = draw<float>(p.images * p.image_size(), 1), weight = draw<float>(p.weight_size(), 2),
               dy = draw<float>(p.images * p.result_size(), 3), bias = draw<float>(p.outputs, 4);
    std::vector<float> y(dy.size()), grad_x(x.size()), grad_weight(weight.size());
    convolution(p, x.data(), weight.data(), bias.data(), true, y.data());
    convolution_data_gradient(p, weight.data(), dy.data(), grad_x.data());
    convolution_weight_gradient(p, x.data(), dy.data(), grad_weight.data(), false);
    for (const auto& values : {y, grad_x, grad_weight}) digest.update(std::as_bytes(std::span(values)));
  }
}

std::string bits() {
  use_isa();
  base::Sha256 digest;
  add_products<float>(digest);
  add_products<double>(digest);
  add_convolutions(digest);
  return digest.finish();
}

// A set is chosen once a process, so the other one's bits come from a second process: this test starts over in it, and
// what it prints there is held against what was found here.
TEST(IsaBits, FloatsAreThoseOfPlainAvx512OnSetsAboveIt) {
  if (detected_isa() < Isa::avx512_bf16 || isa() < Isa::avx512)
    GTEST_SKIP() << "needs a set above avx512; detected is " << name_of(detected_isa()) << ", used " << name_of(isa());
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string here = bits();
  const char* const name = std::getenv("EVERYO_ISA");
  const std::optional<std::string> before = name ? std::optional<std::string>(name) : std::nullopt;
  setenv("EVERYO_ISA", "avx512", 1);
  EXPECT_EXIT(
      {
        const std::string other = fmt::format("{} {}", name_of(isa()), bits());
        std::cerr << other << std::endl;
        std::_Exit(0);
      },
      testing::ExitedWithCode(0), fmt::format("avx512 {}", here));
  if (before)
    setenv("EVERYO_ISA", before->c_str(), 1);
  else
    unsetenv("EVERYO_ISA");
}

}  // namespace
}  // namespace everyo::kernels
