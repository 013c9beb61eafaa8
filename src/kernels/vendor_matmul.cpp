#include "kernels/vendor_matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <unordered_map>

#include "everyo/error.h"
#include "kernels/isa.h"
#include "kernels/parallel.h"
#include "kernels/scratch.h"
#include "kernels/small_matmul.h"

namespace everyo::kernels {
namespace {

constexpr std::int64_t most_rows_by_columns = 256;  // more rows than these are enough to cut

// A part of a product: its own m and n, in rows of B and C of `columns` elements.
struct Key {
  MatmulProblem problem;
  std::int64_t columns;
  bool bias;
  friend bool operator==(const Key&, const Key&) = default;
};
struct HashOfKey {
  std::size_t operator()(const Key& key) const noexcept {
    const MatmulProblem& p = key.problem;
    std::uint64_t h = static_cast<std::uint64_t>(p.transpose_b) << 2 | static_cast<std::uint64_t>(p.accumulate) << 1 |
                      static_cast<std::uint64_t>(key.bias);
    for (const std::int64_t size : {p.m, p.n, p.k, key.columns}) {
      h = (h ^ static_cast<std::uint64_t>(size)) * 0x9e3779b97f4a7c15u;
      h ^= h >> 29;
    }
    return h;
  }
};

dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns, const dnnl::memory::dims& strides) {
  return {{rows, columns}, dnnl::memory::data_type::f32, strides};
}

struct Engine {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
};

// A primitive with its memory objects, whose pointers are set anew for each call.
class Product {
 public:
  Product(const Engine& engine, const Key& key) {
    const MatmulProblem& p = key.problem;
    dnnl::post_ops steps;
    if (p.accumulate) steps.append_sum();
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(steps);
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::memory::dims across = {key.columns, 1}, down = {1, p.k};
    const dnnl::memory::desc a = matrix(p.m, p.k, {p.k, 1}), b = matrix(p.k, p.n, p.transpose_b ? down : across),
                             c = matrix(p.m, p.n, across);
    using Description = dnnl::matmul::primitive_desc;
    const Description description = key.bias ? Description(engine.engine, a, b, matrix(1, p.n, {p.n, 1}), c, attributes)
                                             : Description(engine.engine, a, b, c, attributes);
    primitive_ = dnnl::matmul(description);
    scratch_bytes_ = static_cast<std::int64_t>(description.scratchpad_desc().get_size());
    reproducible_ = std::string_view(description.impl_info_str()).starts_with("brg:avx512");
    add(engine, DNNL_ARG_SRC, a);
    add(engine, DNNL_ARG_WEIGHTS, b);
    add(engine, DNNL_ARG_DST, c);
    if (scratch_bytes_ > 0) add(engine, DNNL_ARG_SCRATCHPAD, description.scratchpad_desc());
    if (key.bias) add(engine, DNNL_ARG_BIAS, matrix(1, p.n, {p.n, 1}));
  }

  /// True for the implementation that was seen to give the same bits however rows are cut.
  [[nodiscard]] bool reproducible() const noexcept { return reproducible_; }

  void run(const Engine& engine, const float* a, const float* b, float* c, const float* bias) {
    set(0, const_cast<float*>(a));
    set(1, const_cast<float*>(b));
    set(2, c);
    int next = 3;
    const Scratch<std::byte> scratch(scratch_bytes_);
    if (scratch_bytes_ > 0) set(next++, scratch.data());
    if (bias) set(next, const_cast<float*>(bias));
    dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), engine.stream.get(), count_, arguments_),
                            "could not run a matmul");
  }

 private:
  void add(const Engine& engine, int argument, const dnnl::memory::desc& description) {
    memories_[count_] = dnnl::memory(description, engine.engine, DNNL_MEMORY_NONE);
    arguments_[count_] = {argument, memories_[count_].get()};
    ++count_;
  }
  void set(int i, void* bytes) {
    dnnl::error::wrap_c_api(dnnl_memory_set_data_handle(arguments_[i].memory, bytes),
                            "could not set a matmul's memory");
  }

  dnnl::matmul primitive_;
  dnnl::memory memories_[5];
  dnnl_exec_arg_t arguments_[5] = {};
  int count_ = 0;
  bool reproducible_ = false;
  std::int64_t scratch_bytes_ = 0;
};

// One thread's products.
class Cache {
 public:
  Product& product(const Key& key) {
    auto found = products_.find(key);
    if (found == products_.end()) {
      if (products_.size() >= most_products) products_.clear();
      found = products_.try_emplace(key, engine_, key).first;
    }
    return found->second;
  }
  [[nodiscard]] const Engine& engine() const noexcept { return engine_; }

 private:
  static constexpr std::size_t most_products = 512;
  Engine engine_;
  std::unordered_map<Key, Product, HashOfKey> products_;
};

// f(the product, its engine), made for one thread, with oneDNN's errors as ours.
template <class F>
auto with_product(const Key& key, F&& f) {
  static thread_local Cache cache;
  const OpenMPThreads one(1);  // a primitive keeps the count it was made under
  try {
    return f(cache.product(key), cache.engine());
  } catch (const dnnl::error& error) {
    const MatmulProblem& p = key.problem;
    throw Error(fmt::format("[matmul] oneDNN failed for ({}, {}) x ({}, {}): {}", p.m, p.k, p.k, p.n, error.what()));
  }
}

// Rows in a part for each thread; columns in parts that the problem alone decides, since how many there are enters the
// order of a sum. Each is a multiple of what oneDNN's kernel works on at once.
std::int64_t part_of(bool by_rows, std::int64_t count, std::int64_t work) {
  constexpr std::int64_t worthwhile = 1 << 17;  // products for which a thread is worth waking
  const std::int64_t at_once = by_rows ? 16 : 64, most_parts = by_rows ? max_threads() : 16;
  const std::int64_t parts = std::clamp<std::int64_t>(work / worthwhile, 1, most_parts);
  return (count + parts * at_once - 1) / (parts * at_once) * at_once;
}

}  // namespace

bool vendor_matmul(const MatmulProblem& problem, const float* a, const float* b, float* c,
                   const MatmulEpilogue<float>& epilogue) {
  if (problem.transpose_a) return false;
  use_isa();
  const bool by_rows = problem.m >= problem.n || problem.m >= most_rows_by_columns;
  const std::int64_t count = by_rows ? problem.m : problem.n,
                     part = part_of(by_rows, count, problem.m * problem.n * problem.k);
  Key key{problem, problem.n, epilogue.bias != nullptr};
  (by_rows ? key.problem.m : key.problem.n) = std::min(part, count);
  const auto reproducible = [](const Product& product, const Engine&) { return product.reproducible(); };
  if (!with_product(key, reproducible)) return false;
  parallel_for(count, part, [&](std::int64_t begin, std::int64_t end) {
    Key own = key;
    (by_rows ? own.problem.m : own.problem.n) = end - begin;
    const std::int64_t row = by_rows ? begin : 0, column = by_rows ? 0 : begin;
    float* const to = c + row * problem.n + column;
    with_product(own, [&](Product& product, const Engine& engine) {
      product.run(engine, a + row * problem.k, b + column * (problem.transpose_b ? problem.k : 1), to,
                  epilogue.bias ? epilogue.bias + column : nullptr);
    });
    if (!epilogue.relu) return;
    // While it is in the cache. Not as oneDNN's own step: that turns NaN into 0.
    for (std::int64_t r = 0; r < own.problem.m; ++r) relu_in_place(to + r * problem.n, own.problem.n);
  });
  return true;
}

}  // namespace everyo::kernels
