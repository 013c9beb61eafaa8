#include "kernels/vendor_convolution.h"

#include <fmt/format.h>

#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>

#include "everyo/error.h"
#include "kernels/isa.h"
#include "kernels/parallel.h"
#include "kernels/scratch.h"

namespace everyo::kernels {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
constexpr auto f32 = memory::data_type::f32;

memory::data_type type_of(DType dtype) {
  switch (dtype) {
    case DType::bfloat16: return memory::data_type::bf16;
    case DType::float16: return memory::data_type::f16;
    default: return f32;
  }
}

struct Key {
  ConvolutionProblem problem;
  std::int64_t images;
  ConvolutionPass pass;
  bool bias;
  friend bool operator==(const Key&, const Key&) = default;
};
struct HashOfKey {
  std::size_t operator()(const Key& key) const noexcept {
    const ConvolutionProblem& p = key.problem;
    std::uint64_t h = static_cast<std::uint64_t>(p.dtype) << 3 | static_cast<std::uint64_t>(key.pass) << 1 |
                      static_cast<std::uint64_t>(key.bias);
    const auto add = [&](std::int64_t size) {
      h = (h ^ static_cast<std::uint64_t>(size)) * 0x9e3779b97f4a7c15u;
      h ^= h >> 29;
    };
    for (const std::int64_t size : {key.images, p.images, p.channels, p.outputs, p.groups}) add(size);
    for (const ConvolutionAxis* axis : {&p.height, &p.width})
      for (const std::int64_t size :
           {axis->input, axis->window, axis->stride, axis->dilation, axis->before, axis->after, axis->output})
        add(size);
    return h;
  }
};

struct Engine {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
};

// The weight [KH, KW, C / G, O] as oneDNN names it, of any layout or of ours.
memory::dims weight_dims(const ConvolutionProblem& p) {
  return {p.groups, p.outputs / p.groups, p.channels / p.groups, p.height.window, p.width.window};
}
memory::desc any_weight(const ConvolutionProblem& p, memory::data_type type) {
  return {weight_dims(p), type, Tag::any};
}
memory::desc plain_weight(const ConvolutionProblem& p, memory::data_type type) {
  const std::int64_t row = p.outputs, tap = p.channels / p.groups * row;
  return {weight_dims(p), type, memory::dims{p.outputs / p.groups, 1, row, p.width.window * tap, tap}};
}
// Of the weight, or its gradient.
memory::data_type weight_type(const Key& key) {
  return key.pass == ConvolutionPass::weight ? f32 : type_of(key.problem.dtype);
}

// What the primitives are described by.
class Descriptions {
 public:
  // `optional`: a description is empty, instead of an error, where oneDNN has no kernel.
  Descriptions(const Engine& engine, const Key& key, bool optional)
      : engine_(engine.engine),
        key_(key),
        optional_(optional),
        x_(image(key, key.problem.channels, key.problem.height.input, key.problem.width.input)),
        y_(image(key, key.problem.outputs, key.problem.height.output, key.problem.width.output)),
        bias_({key.problem.outputs}, f32, Tag::x) {
    const ConvolutionAxis &height = key.problem.height, &width = key.problem.width;
    strides_ = {height.stride, width.stride};
    dilations_ = {height.dilation - 1, width.dilation - 1};
    before_ = {height.before, width.before};
    after_ = {height.after, width.after};
    attributes_.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  }
  // f(primitive of the pass, its description, the layout of the weight that it takes), `weight` being a layout or any.
  template <class F>
  void describe(const memory::desc& weight, F&& f) const {
    switch (key_.pass) {
      case ConvolutionPass::forward: {
        const auto d = forward(weight, key_.bias);
        return f(dnnl::convolution_forward(), d, d ? d.weights_desc() : memory::desc());
      }
      case ConvolutionPass::data: {
        const auto d = backward<dnnl::convolution_backward_data>(weight);
        return f(dnnl::convolution_backward_data(), d, d ? d.weights_desc() : memory::desc());
      }
      case ConvolutionPass::weight: {
        const auto d = backward<dnnl::convolution_backward_weights>(weight);
        return f(dnnl::convolution_backward_weights(), d, d ? d.diff_weights_desc() : memory::desc());
      }
    }
  }
  [[nodiscard]] const memory::desc& x() const { return x_; }
  [[nodiscard]] const memory::desc& y() const { return y_; }
  [[nodiscard]] const memory::desc& bias() const { return bias_; }

 private:
  static constexpr auto direct = dnnl::algorithm::convolution_direct;
  static memory::desc image(const Key& key, std::int64_t channels, std::int64_t height, std::int64_t width) {
    return {{key.images, channels, height, width}, type_of(key.problem.dtype), Tag::nhwc};
  }
  [[nodiscard]] dnnl::convolution_forward::primitive_desc forward(const memory::desc& weight, bool bias) const {
    using Description = dnnl::convolution_forward::primitive_desc;
    // As in training: the hint of the gradients' primitives must be of this kind.
    constexpr auto kind = dnnl::prop_kind::forward_training;
    return bias ? Description(engine_, kind, direct, x_, weight, bias_, y_, strides_, dilations_, before_, after_,
                              attributes_, optional_)
                : Description(engine_, kind, direct, x_, weight, y_, strides_, dilations_, before_, after_, attributes_,
                              optional_);
  }
  template <class Primitive>
  [[nodiscard]] typename Primitive::primitive_desc backward(const memory::desc& weight) const {
    const auto hint = forward(any_weight(key_.problem, type_of(key_.problem.dtype)), false);
    if (!hint) return {};
    return {engine_, direct, x_, weight, y_, strides_, dilations_, before_, after_, hint, attributes_, optional_};
  }

  dnnl::engine engine_;
  Key key_;
  bool optional_;
  memory::desc x_, y_, bias_;
  memory::dims strides_, dilations_, before_, after_;
  dnnl::primitive_attr attributes_;
};

// A primitive with its memory objects, whose pointers are set anew for each call.
class Chunk {
 public:
  // `weight`: the layout of the weight, or that "any" is as good.
  Chunk(const Engine& engine, const Key& key, const memory::desc& weight) {
    const Descriptions descriptions(engine, key, false);
    descriptions.describe(weight, [&](auto primitive, const auto& description, const memory::desc& layout) {
      primitive_ = decltype(primitive)(description);
      weight_ = layout;
      scratch_bytes_ = static_cast<std::int64_t>(description.scratchpad_desc().get_size());
      scratch_ = description.scratchpad_desc();
    });
    const bool forward = key.pass == ConvolutionPass::forward, data = key.pass == ConvolutionPass::data;
    add(engine, data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, descriptions.x());
    add(engine, key.pass == ConvolutionPass::weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, weight_);
    add(engine, forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, descriptions.y());
    if (scratch_bytes_ > 0) add(engine, DNNL_ARG_SCRATCHPAD, scratch_);
    if (key.bias) add(engine, DNNL_ARG_BIAS, descriptions.bias());
  }

  [[nodiscard]] const memory::desc& weight() const noexcept { return weight_; }

  // oneDNN writes through one of them, as the pass says.
  void run(const Engine& engine, const void* x, const void* packed, const float* bias, const void* y) {
    set(0, x);
    set(1, packed);
    set(2, y);
    int next = 3;
    const Scratch<std::byte> scratch(scratch_bytes_);
    if (scratch_bytes_ > 0) set(next++, scratch.data());
    if (bias) set(next, bias);
    dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), engine.stream.get(), count_, arguments_),
                            "could not run a convolution");
  }

 private:
  void add(const Engine& engine, int argument, const memory::desc& description) {
    memories_[count_] = memory(description, engine.engine, DNNL_MEMORY_NONE);
    arguments_[count_] = {argument, memories_[count_].get()};
    ++count_;
  }
  void set(int i, const void* bytes) {
    dnnl::error::wrap_c_api(dnnl_memory_set_data_handle(arguments_[i].memory, const_cast<void*>(bytes)),
                            "could not set a convolution's memory");
  }

  dnnl::primitive primitive_;
  memory::desc weight_, scratch_;
  memory memories_[5];
  dnnl_exec_arg_t arguments_[5] = {};
  int count_ = 0;
  std::int64_t scratch_bytes_ = 0;
};

// A copy of the weight from one layout to the other.
class Reorder {
 public:
  Reorder(const Engine& engine, const memory::desc& from, const memory::desc& to)
      : from_(from, engine.engine, DNNL_MEMORY_NONE), to_(to, engine.engine, DNNL_MEMORY_NONE) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::reorder::primitive_desc description(engine.engine, from, engine.engine, to, attributes);
    primitive_ = dnnl::reorder(description);
    scratch_bytes_ = static_cast<std::int64_t>(description.scratchpad_desc().get_size());
    scratch_ = memory(description.scratchpad_desc(), engine.engine, DNNL_MEMORY_NONE);
  }
  void run(const Engine& engine, const void* from, void* to) {
    from_.set_data_handle(const_cast<void*>(from));
    to_.set_data_handle(to);
    const Scratch<std::byte> scratch(scratch_bytes_);
    if (scratch_bytes_ > 0) scratch_.set_data_handle(scratch.data());
    const dnnl_exec_arg_t arguments[] = {
        {DNNL_ARG_FROM, from_.get()}, {DNNL_ARG_TO, to_.get()}, {DNNL_ARG_SCRATCHPAD, scratch_.get()}};
    dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), engine.stream.get(), 3, arguments),
                            "could not reorder a weight");
  }

 private:
  dnnl::reorder primitive_;
  memory from_, to_, scratch_;
  std::int64_t scratch_bytes_ = 0;
};

// One thread's primitives.
class Cache {
 public:
  bool multiplies_halves(const VendorConvolution& convolution) {
    const Key key = key_of(convolution, convolution.problem.images);
    const auto found = multiplies_halves_.find(key);
    if (found != multiplies_halves_.end()) return found->second;
    make_room(multiplies_halves_);
    std::string kernel;  // the description that has the name goes first
    Descriptions(engine_, key, true)
        .describe(any_weight(key.problem, weight_type(key)), [&](const auto&, const auto& description, const auto&) {
          if (description) kernel = description.impl_info_str();
        });
    // The names of oneDNN's kernels end with the instructions they are made of.
    const bool yes =
        kernel.find("avx512_core_amx") != kernel.npos ||
        kernel.find(key.problem.dtype == bfloat16 ? "avx512_core_bf16" : "avx512_core_fp16") != kernel.npos;
    return multiplies_halves_.try_emplace(key, yes).first->second;
  }
  Chunk& chunk(const VendorConvolution& convolution, std::int64_t images) {
    const Key key = key_of(convolution, images);
    const auto found = chunks_.find(key);
    if (found != chunks_.end()) return found->second;
    make_room(chunks_);
    // A last, smaller chunk takes the weight as the whole ones do.
    const memory::desc weight = images == convolution.problem.images
                                    ? any_weight(convolution.problem, weight_type(key))
                                    : chunk(convolution, convolution.problem.images).weight();
    return chunks_.try_emplace(key, engine_, key, weight).first->second;
  }
  Reorder& reorder(const VendorConvolution& convolution, bool pack) {
    const Key key = key_of(convolution, pack ? 0 : -1);
    const auto found = reorders_.find(key);
    if (found != reorders_.end()) return found->second;
    make_room(reorders_);
    const memory::desc plain = plain_weight(convolution.problem, weight_type(key)),
                       packed = chunk(convolution, convolution.problem.images).weight();
    return reorders_.try_emplace(key, engine_, pack ? plain : packed, pack ? packed : plain).first->second;
  }
  [[nodiscard]] const Engine& engine() const { return engine_; }

 private:
  static constexpr std::size_t most = 512;
  static Key key_of(const VendorConvolution& convolution, std::int64_t images) {
    return {convolution.problem, images, convolution.pass, convolution.bias};
  }
  template <class Map>
  static void make_room(Map& map) {
    if (map.size() >= most) map.clear();
  }

  Engine engine_;
  std::unordered_map<Key, Chunk, HashOfKey> chunks_;
  std::unordered_map<Key, Reorder, HashOfKey> reorders_;
  std::unordered_map<Key, bool, HashOfKey> multiplies_halves_;
};

Cache& cache_of_thread() {
  static thread_local std::unique_ptr<Cache> cache;  // a pointer: room for thread-locals is small
  if (!cache) cache = std::make_unique<Cache>();
  return *cache;
}

// f(this thread's cache), with oneDNN's errors as ours.
template <class F>
void with_cache(const VendorConvolution& convolution, F&& f) {
  use_isa();
  const OpenMPThreads one(1);  // a primitive keeps the count it was made under
  try {
    f(cache_of_thread());
  } catch (const dnnl::error& error) {
    const ConvolutionProblem& p = convolution.problem;
    throw Error(fmt::format("[conv2d] oneDNN failed for images ({}, {}, {}), a kernel ({}, {}, {}, {}): {}",
                            p.height.input, p.width.input, p.channels, p.height.window, p.width.window,
                            p.channels / p.groups, p.outputs, error.what()));
  }
}

void run(const VendorConvolution& convolution, std::int64_t images, const void* x, const void* packed,
         const float* bias, const void* y) {
  with_cache(convolution,
             [&](Cache& cache) { cache.chunk(convolution, images).run(cache.engine(), x, packed, bias, y); });
}

}  // namespace

bool multiplies_halves(const VendorConvolution& convolution) {
  bool result = false;
  with_cache(convolution, [&](Cache& cache) { result = cache.multiplies_halves(convolution); });
  return result;
}

std::int64_t packed_weight_bytes(const VendorConvolution& convolution) {
  std::int64_t size = 0;
  with_cache(convolution, [&](Cache& cache) {
    size = static_cast<std::int64_t>(cache.chunk(convolution, convolution.problem.images).weight().get_size());
  });
  return size;
}

void pack_weight(const VendorConvolution& convolution, const void* weight, void* packed) {
  with_cache(convolution, [&](Cache& cache) { cache.reorder(convolution, true).run(cache.engine(), weight, packed); });
}

void unpack_weight(const VendorConvolution& convolution, const float* packed, float* gradient) {
  with_cache(convolution,
             [&](Cache& cache) { cache.reorder(convolution, false).run(cache.engine(), packed, gradient); });
}

void run_forward(const VendorConvolution& convolution, std::int64_t images, const void* x, const void* packed,
                 const float* bias, void* y) {
  run(convolution, images, x, packed, bias, y);
}
void run_data(const VendorConvolution& convolution, std::int64_t images, const void* packed, const void* dy,
              void* grad_x) {
  run(convolution, images, grad_x, packed, nullptr, dy);
}
void run_weight(const VendorConvolution& convolution, std::int64_t images, const void* x, const void* dy,
                float* packed) {
  run(convolution, images, x, packed, nullptr, dy);
}

}  // namespace everyo::kernels
