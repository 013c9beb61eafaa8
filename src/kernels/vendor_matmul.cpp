#include "kernels/vendor_matmul.h"

#include <fmt/format.h>

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

constexpr std::int64_t relu_block = 64 * 1024;

struct Key {
  MatmulProblem problem;
  int threads;
  bool bias;
  friend bool operator==(const Key&, const Key&) = default;
};
struct HashOfKey {
  std::size_t operator()(const Key& key) const noexcept {
    const MatmulProblem& p = key.problem;
    std::uint64_t h = static_cast<std::uint64_t>(key.threads) << 3 | static_cast<std::uint64_t>(p.transpose_b) << 2 |
                      static_cast<std::uint64_t>(p.accumulate) << 1 | static_cast<std::uint64_t>(key.bias);
    for (const std::int64_t size : {p.m, p.n, p.k}) {
      h = (h ^ static_cast<std::uint64_t>(size)) * 0x9e3779b97f4a7c15u;
      h ^= h >> 29;
    }
    return h;
  }
};

dnnl::memory::desc matrix(std::int64_t rows, std::int64_t columns, bool transposed) {
  const dnnl::memory::dims strides = transposed ? dnnl::memory::dims{1, rows} : dnnl::memory::dims{columns, 1};
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
    const dnnl::memory::desc a = matrix(p.m, p.k, false), b = matrix(p.k, p.n, p.transpose_b),
                             c = matrix(p.m, p.n, false);
    using Description = dnnl::matmul::primitive_desc;
    const Description description = key.bias ? Description(engine.engine, a, b, matrix(1, p.n, false), c, attributes)
                                             : Description(engine.engine, a, b, c, attributes);
    primitive_ = dnnl::matmul(description);
    scratch_bytes_ = static_cast<std::int64_t>(description.scratchpad_desc().get_size());
    reproducible_ = std::string_view(description.impl_info_str()).starts_with("brg:avx512");
    add(engine, DNNL_ARG_SRC, a);
    add(engine, DNNL_ARG_WEIGHTS, b);
    add(engine, DNNL_ARG_DST, c);
    if (scratch_bytes_ > 0) add(engine, DNNL_ARG_SCRATCHPAD, description.scratchpad_desc());
    if (key.bias) add(engine, DNNL_ARG_BIAS, matrix(1, p.n, false));
  }

  /// True for the implementation that was seen to give the same bits with any number of threads.
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

class Cache {
 public:
  bool run(const Key& key, const float* a, const float* b, float* c, const float* bias) {
    auto found = products_.find(key);
    if (found == products_.end()) {
      if (products_.size() >= most_products) products_.clear();
      found = products_.try_emplace(key, engine_, key).first;
    }
    if (!found->second.reproducible()) return false;
    found->second.run(engine_, a, b, c, bias);
    return true;
  }

 private:
  static constexpr std::size_t most_products = 512;
  Engine engine_;
  std::unordered_map<Key, Product, HashOfKey> products_;
};

}  // namespace

bool vendor_matmul(const MatmulProblem& problem, int threads, const float* a, const float* b, float* c,
                   const MatmulEpilogue<float>& epilogue) {
  if (problem.transpose_a) return false;
  use_isa();
  static thread_local Cache cache;
  const OpenMPThreads limit(threads);  // a primitive keeps the count it was made under
  try {
    if (!cache.run({problem, threads, epilogue.bias != nullptr}, a, b, c, epilogue.bias)) return false;
  } catch (const dnnl::error& error) {
    throw Error(fmt::format("[matmul] oneDNN failed for ({}, {}) x ({}, {}): {}", problem.m, problem.k, problem.k,
                            problem.n, error.what()));
  }
  if (!epilogue.relu) return true;
  // Not as oneDNN's own step: that turns NaN into 0.
  parallel_for(problem.m * problem.n, relu_block,
               [&](std::int64_t begin, std::int64_t end) { relu_in_place(c + begin, end - begin); });
  return true;
}

}  // namespace everyo::kernels
