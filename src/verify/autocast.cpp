#include <algorithm>
#include <iterator>
#include <thread>

#include "everyo/autograd.h"
#include "everyo/error.h"
#include "everyo/nn.h"
#include "everyo/precision.h"
#include "everyo/random.h"
#include "verify/deep_sigmoid.h"
#include "verify/topics.h"

// P5 to P8: what autocast leaves alone, the cast that does it and that it is never of old weights, and its scope.
namespace everyo::verify_room {
namespace {

Tensor drawn(const Shape& shape, std::uint64_t seed) {
  const Tensor t = Tensor::empty(shape);
  Generator(seed).uniform(-1, 1, t.data<float>());
  return t;
}
double is(bool holds) { return holds ? 1 : 0; }

// Linear 8 -> 4, ReLU, Linear 4 -> 1 on 3 x 8.
struct SmallNet {
  Sequential net{Linear(8, 4, {.seed = 0}), ReLU(), Linear(4, 1, {.seed = 1})};
  Tensor x = drawn({3, 8}, 2);
};

/// Is the output float16? Weights that are float32, their gradients that are, and gradients of activations that are
/// float16.
std::vector<double> dtypes_of_small_net(bool secretly_in_float32) {
  SmallNet small;
  const std::vector<Tensor> p = small.net.parameters();
  const auto rounded = [&](const Tensor& t) { return secretly_in_float32 ? rounded_in_forward(t, float16) : t; };
  double halves = 0;
  const auto watched = [&halves](const Tensor& t) {
    on_gradient(t, [&halves](std::span<const Tensor> g) { halves += is(g[0].dtype() == float16); });
    return t;
  };
  Tensor y, loss;
  {
    const Autocast low(float16), as_said(!secretly_in_float32);
    const Tensor hidden = watched(rounded(linear(rounded(small.x), rounded(p[0]), rounded(p[1]))));  // [3, 4]
    y = watched(rounded(linear(watched(relu(hidden)), rounded(p[2]), rounded(p[3]))));               // [3, 1]
    loss = mean(y);
  }
  loss.backward();
  const auto in_float32 = [&](auto&& dtype_of) {
    return static_cast<double>(std::ranges::count_if(p, [&](const Tensor& t) { return dtype_of(t) == float32; }));
  };
  return {is(y.dtype() == float16), in_float32([](const Tensor& t) { return t.dtype(); }),
          in_float32([](const Tensor& t) { return t.grad().dtype(); }), halves};
}

/// For a leaf of each dtype: does its gradient under autocast to float16 have the leaf's dtype and the values of the
/// half's?
std::vector<double> leaf_gradients(bool detached) {
  std::vector<double> out;
  const Tensor x = drawn({3, 4}, 0);
  for (const DType dtype : {float32, float64, float16, bfloat16}) {
    const Tensor w = cast(drawn({4, 2}, 1), dtype);
    w.set_requires_grad();
    const Tensor half = cast(w.detach(), float16);
    half.set_requires_grad();
    const Tensor seed = Tensor::full({3, 2}, 1.0 / 3, float16);
    Tensor y, of_half;
    {
      const Autocast low(float16);
      y = matmul(x, detached ? cast(w.detach(), float16) : w);
      of_half = matmul(x, half);
    }
    of_half.backward({.seed = &seed});
    if (y.requires_grad()) y.backward({.seed = &seed});
    out.push_back(is(w.grad().defined() && w.grad().dtype() == dtype &&
                     w.grad().to_vector() == cast(half.grad(), dtype).to_vector()));
  }
  return out;
}

/// Outputs under autocast to bfloat16 that are not those of the weights as they are, after each kind of change; the
/// weights' halves were kept before it. Sabotaged: what was kept then is used.
std::vector<double> stale_outputs(bool sabotaged) {
  Linear layer(8, 4, {.seed = 0});
  const Tensor x = drawn({3, 8}, 2), weight = layer.parameters()[0], bias = layer.parameters()[1];
  const auto low = [&] {
    const Autocast scope(bfloat16);
    return layer(x);
  };
  const auto fresh = [](const Tensor& t) { return cast(t.copy(), bfloat16); };
  mean(low()).backward();  // keeps the halves, and gives gradients for a step
  Tensor w = fresh(weight), b = fresh(bias);
  std::vector<double> out;
  const auto look = [&] {
    const Tensor y = sabotaged ? linear(fresh(x), w, b) : low();
    w = fresh(weight), b = fresh(bias);
    out.push_back(is(y.to_vector() != linear(fresh(x), w, b).to_vector()));
  };
  SGD(layer.parameters(), {.lr = 0.5}).step();
  look();
  for (float& v : weight.write<float>()) v *= 2;
  look();
  weight.assign(drawn({8, 4}, 5));
  look();
  layer.load_state_dict(Linear(8, 4, {.seed = 9}).state_dict());
  look();
  return out;
}

DType product_dtype() {
  const Tensor x = Tensor::ones({2, 2});
  return matmul(x, x).dtype();
}

/// What must hold of the scope, 1 each.
std::vector<double> scopes(bool leaks) {
  const ContextScope everything(context());  // what leaks ends here
  const Autocast off(false);
  std::vector<double> out{is(product_dtype() == float32)};
  {
    const Autocast outer(float16);
    out.push_back(is(product_dtype() == float16));
    {
      const Autocast inner(bfloat16);
      out.push_back(is(product_dtype() == bfloat16));
      const Autocast island(false);
      out.push_back(is(product_dtype() == float32));
    }
    out.push_back(is(product_dtype() == float16));
    try {
      const Autocast inner(bfloat16);
      throw Error("");
    } catch (const Error&) {
      if (leaks) context().autocast_dtype = bfloat16;
    }
    out.push_back(is(product_dtype() == float16));
    DType elsewhere{};
    std::thread([&] { elsewhere = product_dtype(); }).join();
    out.push_back(is(elsewhere == float32));
  }
  out.push_back(is(product_dtype() == float32));
  double refused = 0;
  for (const DType dtype : {float32, float64, int32, int64, boolean}) try {
      const Autocast none(dtype);
    } catch (const DTypeError&) {
      ++refused;
    }
  out.push_back(refused);
  return out;
}

/// Weights of three steps, flat.
std::vector<double> trained(bool inside, bool rounds) {
  context().engine.warned_of_autocast = true;  // this is on purpose
  SmallNet small;
  Adam optimizer(small.net.parameters(), {.lr = 0.01});
  const Tensor y = drawn({3, 1}, 3);
  for (int step = 0; step < 3; ++step) {
    const Autocast low(bfloat16);
    optimizer.zero_grad();
    const Tensor loss = mse_loss(small.net(small.x), y);
    const Autocast as_said(inside);
    loss.backward();
    optimizer.step();
    const NoGrad no_grad;
    if (rounds)
      for (const Tensor& p : small.net.parameters()) p.assign(cast(p, bfloat16));
  }
  std::vector<double> weights;
  for (const Tensor& p : small.net.parameters()) std::ranges::copy(p.to_vector(), std::back_inserter(weights));
  return weights;
}

double step_inside_differs(bool sabotaged) {
  const std::vector<double> inside = trained(true, sabotaged), outside = trained(false, false);
  double differing = 0;
  for (std::size_t i = 0; i < inside.size(); ++i) differing += is(inside[i] != outside[i]);
  return differing;
}

}  // namespace

void add_autocast_checks(Checks& checks, const Figures& figures) {
  checks.push_back({.requirement = "P5",
                    .what = "Linear 8 -> 4, ReLU, Linear 4 -> 1 under autocast to float16, on 3 rows",
                    .figure = figures.at("small_net_dtypes"),
                    .measure = dtypes_of_small_net,
                    .sabotage = "backward is secretly in float32",
                    .note = "four parameters keep float32 values and gradients; what flows between ops is half",
                    .columns = {"float16 output", "float32 weights", "float32 gradients of weights",
                                "float16 gradients of activations"}});
  checks.push_back({.requirement = "P6",
                    .what = "leaves whose gradient is that of their half, cast to the leaf's own dtype",
                    .figure = figures.at("leaf_gradients"),
                    .measure = leaf_gradients,
                    .sabotage = "the cast is made outside the graph",
                    .columns = {"float32", "float64", "float16", "bfloat16"}});
  checks.push_back({.requirement = "P6",
                    .what = "outputs that are not of the weights as they are, after a change of those under autocast",
                    .figure = figures.at("stale_outputs"),
                    .measure = stale_outputs,
                    .sabotage = "weights as they were cast before the change",
                    .note = "a parameter's half is kept until the parameter is written",
                    .columns = {"step", "in place", "assigned", "loaded"}});
  checks.push_back(
      {.requirement = "P7",
       .what = "what holds of the scope, and how many of five dtypes that are no halves it refuses",
       .figure = figures.at("scopes"),
       .measure = scopes,
       .sabotage = "an exception leaves the inner scope open",
       .columns = {"before", "inside", "nested", "island", "restored", "exception", "thread", "after", "refused"}});
  checks.push_back({.requirement = "P8",
                    .what = "weights that differ after three steps when backward and the step are within autocast",
                    .figure = figures.at("step_inside"),
                    .measure = [](bool sabotaged) { return std::vector{step_inside_differs(sabotaged)}; },
                    .sabotage = "the step rounds weights as the region would"});
}

}  // namespace everyo::verify_room
