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

constexpr std::int64_t half_parts = 16;               // most parts of a product of halves, for any number of threads
constexpr std::int64_t least_half_work = 512 * 1024;  // products of halves; below, our own kernels have no call to pay

// A part of a product: its own m and n, in rows of B and C of `columns` elements.
struct Key {
  DType dtype;
  MatmulProblem problem;
  std::int64_t columns;
  bool bias;
  friend bool operator==(const Key&, const Key&) = default;
};
struct HashOfKey {
  std::size_t operator()(const Key& key) const noexcept {
    const MatmulProblem& p = key.problem;
    std::uint64_t h = static_cast<std::uint64_t>(key.dtype) << 8 | static_cast<std::uint64_t>(p.transpose_b) << 2 |
                      static_cast<std::uint64_t>(p.accumulate) << 1 | static_cast<std::uint64_t>(key.bias);
    for (const std::int64_t size : {p.m, p.n, p.k, key.columns}) {
      h = (h ^ static_cast<std::uint64_t>(size)) * 0x9e3779b97f4a7c15u;
      h ^= h >> 29;
    }
    return h;
  }
};

dnnl::memory::data_type type_of(DType dtype) {
  using Type = dnnl::memory::data_type;
  return dtype == DType::float16 ? Type::f16 : dtype == DType::bfloat16 ? Type::bf16 : Type::f32;
}

// float32: the implementation that was seen to give the same bits however rows are cut. Halves: one on instructions
// that our kernels do not use, with sums in float32.
bool is_wanted(DType dtype, std::string_view implementation) {
  if (dtype == DType::bfloat16) return implementation.starts_with("brg:avx512_core_amx");
  if (dtype == DType::float16)
    return implementation.starts_with("brg:avx512_core_fp16") || implementation.starts_with("brg:avx512_core_amx_fp16");
  return implementation.starts_with("brg:avx512");
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
    const auto matrix = [type = type_of(key.dtype)](std::int64_t rows, std::int64_t columns,
                                                    const dnnl::memory::dims& strides) {
      return dnnl::memory::desc({rows, columns}, type, strides);
    };
    const dnnl::memory::dims across = {key.columns, 1}, down = {1, p.k};
    const dnnl::memory::desc a = matrix(p.m, p.k, {p.k, 1}), b = matrix(p.k, p.n, p.transpose_b ? down : across),
                             c = matrix(p.m, p.n, across);
    using Description = dnnl::matmul::primitive_desc;
    const Description description =
        key.bias ? Description(engine.engine, a, b, matrix(1, p.n, {p.n, 1}), c, attributes, true)
                 : Description(engine.engine, a, b, c, attributes, true);
    if (!description) return;  // no product of such halves
    primitive_ = dnnl::matmul(description);
    scratch_bytes_ = static_cast<std::int64_t>(description.scratchpad_desc().get_size());
    wanted_ = is_wanted(key.dtype, description.impl_info_str());
    add(engine, DNNL_ARG_SRC, a);
    add(engine, DNNL_ARG_WEIGHTS, b);
    add(engine, DNNL_ARG_DST, c);
    if (scratch_bytes_ > 0) add(engine, DNNL_ARG_SCRATCHPAD, description.scratchpad_desc());
    if (key.bias) add(engine, DNNL_ARG_BIAS, matrix(1, p.n, {p.n, 1}));
  }

  [[nodiscard]] bool wanted() const noexcept { return wanted_; }

  void run(const Engine& engine, const void* a, const void* b, void* c, const void* bias) {
    set(0, const_cast<void*>(a));
    set(1, const_cast<void*>(b));
    set(2, c);
    int next = 3;
    const Scratch<std::byte> scratch(scratch_bytes_);
    if (scratch_bytes_ > 0) set(next++, scratch.data());
    if (bias) set(next, const_cast<void*>(bias));
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
  bool wanted_ = false;
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

// One for all that with_product is called with, which a thread-local of the template would not be.
Cache& cache_of_thread() {
  static thread_local std::unique_ptr<Cache> cache;  // a pointer: room for thread-locals is small
  if (!cache) cache = std::make_unique<Cache>();
  return *cache;
}

// f(the product, its engine), made for one thread, with oneDNN's errors as ours.
template <class F>
auto with_product(const Key& key, F&& f) {
  const OpenMPThreads one(1);  // a primitive keeps the count it was made under
  try {
    Cache& cache = cache_of_thread();
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
  Key key{float32, problem, problem.n, epilogue.bias != nullptr};
  (by_rows ? key.problem.m : key.problem.n) = std::min(part, count);
  if (!with_product(key, [](const Product& product, const Engine&) { return product.wanted(); })) return false;
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

namespace {

// Parts that the problem alone decides: nobody has seen yet whether their cut enters the sums of these.
struct HalfParts {
  bool by_rows;
  std::int64_t count, part;
};
HalfParts half_parts_of(const MatmulProblem& p) {
  const bool by_rows = p.m >= p.n;
  const std::int64_t count = by_rows ? p.m : p.n, at_once = by_rows ? 16 : 64;
  return {by_rows, count,
          std::max((count + half_parts * at_once - 1) / (half_parts * at_once), std::int64_t{1}) * at_once};
}
Key key_of(DType dtype, const MatmulProblem& p, const HalfParts& parts, std::int64_t size) {
  Key key{dtype, p, p.n, false};
  (parts.by_rows ? key.problem.m : key.problem.n) = size;
  return key;
}

}  // namespace

template <class T>
bool vendor_takes_halves(const MatmulProblem& p) {
  const Isa least = std::is_same_v<T, BFloat16> ? Isa::amx : Isa::avx512_fp16;
  if (used_isa() < least || p.transpose_a || p.accumulate || p.m * p.n * p.k < least_half_work) return false;
  const HalfParts parts = half_parts_of(p);
  return with_product(key_of(dtype_v<T>, p, parts, std::min(parts.part, parts.count)),
                      [](const Product& product, const Engine&) { return product.wanted(); });
}

template <class T>
bool vendor_matmul_of_halves(const MatmulProblem& p, const T* a, const T* b, T* c, const MatmulEpilogue<T>& epilogue) {
  if (!vendor_takes_halves<T>(p)) return false;
  const HalfParts parts = half_parts_of(p);
  parallel_for(parts.count, parts.part, [&](std::int64_t begin, std::int64_t end) {
    const Key own = key_of(dtype_v<T>, p, parts, end - begin);
    const std::int64_t row = parts.by_rows ? begin : 0, column = parts.by_rows ? 0 : begin;
    T* const to = c + row * p.n + column;
    with_product(own, [&](Product& product, const Engine& engine) {
      product.run(engine, a + row * p.k, b + column * (p.transpose_b ? p.k : 1), to, nullptr);
    });
    // The product is rounded before the bias is added, as by ops of their own; oneDNN's steps would round once.
    if (epilogue.bias == nullptr && !epilogue.relu) return;
    for (std::int64_t r = 0; r < own.problem.m; ++r)
      finish_in_place(to + r * p.n, own.problem.n, epilogue.bias ? epilogue.bias + column : nullptr, epilogue.relu);
  });
  return true;
}
template bool vendor_takes_halves<Float16>(const MatmulProblem&);
template bool vendor_takes_halves<BFloat16>(const MatmulProblem&);
template bool vendor_matmul_of_halves(const MatmulProblem&, const Float16*, const Float16*, Float16*,
                                      const MatmulEpilogue<Float16>&);
template bool vendor_matmul_of_halves(const MatmulProblem&, const BFloat16*, const BFloat16*, BFloat16*,
                                      const MatmulEpilogue<BFloat16>&);

}  // namespace everyo::kernels
