#include <algorithm>

#include "everyo/nn.h"
#include "everyo/precision.h"
#include "everyo/random.h"
#include "verify/deep_sigmoid.h"
#include "verify/topics.h"

// P11: a regression whose gradients lie below float16's range unless the loss is scaled.
namespace everyo::verify_room {
namespace {

constexpr double tiny = 1e-7;  // weight of the loss
constexpr std::int64_t rows = 64, features = 4, hidden = 32;

struct Data {
  Tensor x = Tensor::empty({rows, features}), y = Tensor::empty({rows, 1});
  Data() {  // as numpy.random.default_rng(0) draws: features, weights, noise
    Generator generator(0);
    generator.normal(0, 1, x.data<float>());
    const Tensor weights = Tensor::empty({features, 1});
    generator.uniform(-3, 3, weights.data<float>());
    const Tensor product = matmul(x, weights);
    std::ranges::transform(product.data<float>(), y.data<float>().begin(), [&generator](float p) {
      return static_cast<float>(static_cast<double>(p) + 0.05 * generator.standard_normal());
    });
  }
};

struct Recipe {
  bool low = false, scaled = false;
  double loss_weight = 1;
  bool secretly_in_float32 = false;
};

class Regression {
 public:
  explicit Regression(const Recipe& recipe) : recipe_(recipe) {}

  /// The gradients of a first step, [193], unscaled.
  Tensor first_gradients() {
    backward();
    scaler_.unscale(optimizer_);
    return gradients_of(net_.parameters());
  }
  /// Mean squared error after 400 steps on all rows.
  double train() {
    for (int step = 0; step < 400; ++step) {
      optimizer_.zero_grad();
      backward();
      scaler_.step(optimizer_);
      scaler_.update();
    }
    return error().item();
  }

 private:
  [[nodiscard]] Tensor predict() const {
    const auto rounded = [&](const Tensor& t) {
      return recipe_.secretly_in_float32 ? rounded_in_forward(t, float16) : t;
    };
    const std::vector<Tensor>& p = parameters_;
    const Autocast scope(float16), as_said(recipe_.low && !recipe_.secretly_in_float32);
    const Tensor a = rounded(tanh(rounded(linear(rounded(data_.x), rounded(p[0]), rounded(p[1])))));  // [64, 32]
    return rounded(linear(a, rounded(p[2]), rounded(p[3])));                                          // [64, 1]
  }
  [[nodiscard]] Tensor error() const { return mse_loss(cast(predict(), float32), data_.y); }
  void backward() { scaler_.backward(scale(error(), recipe_.loss_weight)); }

  Recipe recipe_;
  Data data_;
  Sequential net_{Linear(features, hidden, {.seed = 0}), Tanh(), Linear(hidden, 1, {.seed = 1})};
  std::vector<Tensor> parameters_ = net_.parameters();
  SGD optimizer_{parameters_, {.lr = 0.05 / recipe_.loss_weight}};
  GradScaler scaler_{{.init_scale = 0x1p15, .enabled = recipe_.scaled}};
};

}  // namespace

void add_recipe_checks(Checks& checks, const Figures& figures) {
  struct Row {
    Recipe recipe, sabotaged;
    const char *how, *zeros, *error, *sabotage;
  };
  constexpr Recipe unscaled{.low = true, .loss_weight = tiny}, scaled{.low = true, .scaled = true, .loss_weight = tiny},
      secret{.low = true, .loss_weight = tiny, .secretly_in_float32 = true}, plain{.loss_weight = 1};
  for (const Row& row : {Row{unscaled, secret, "under float16 autocast without a scaler", "recipe_zeros_unscaled",
                             "recipe_error_unscaled", "backward is secretly in float32"},
                         Row{scaled, unscaled, "under float16 autocast with a scaler", "recipe_zeros_scaled",
                             "recipe_error_scaled", "the scaler is disabled"},
                         Row{plain, unscaled, "in float32", "recipe_zeros_float32", "recipe_error_float32",
                             "float16 autocast is on, without a scaler"}}) {
    checks.push_back({.requirement = "P11",
                      .what = std::string("gradients that are zero, of 193, of a loss times 1e-7 ") + row.how,
                      .figure = figures.at(row.zeros),
                      .measure =
                          [row](bool sabotaged) {
                            Regression net(sabotaged ? row.sabotaged : row.recipe);
                            return std::vector{count_zeros(net.first_gradients())};
                          },
                      .sabotage = row.sabotage});
    checks.push_back(
        {.requirement = "P11",
         .what = std::string("mean squared error after 400 steps ") + row.how,
         .figure = figures.at(row.error),
         .measure =
             [row](bool sabotaged) { return std::vector{Regression(sabotaged ? row.sabotaged : row.recipe).train()}; },
         .sabotage = row.sabotage});
  }
}

}  // namespace everyo::verify_room
