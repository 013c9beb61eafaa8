#include "kernels/vendor_convolution.h"

#include <fmt/format.h>

#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
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
    std::uint64_t h = static_cast<std::uint64_t>(key.pass) << 1 | static_cast<std::uint64_t>(key.bias);
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
memory::desc any_weight(const ConvolutionProblem& p) { return {weight_dims(p), f32, Tag::any}; }
memory::desc plain_weight(const ConvolutionProblem& p) {
  const std::int64_t row = p.outputs, tap = p.channels / p.groups * row;
  return {weight_dims(p), f32, memory::dims{p.outputs / p.groups, 1, row, p.width.window * tap, tap}};
}

// What each kind of primitive is described by.
class Descriptions {
 public:
  Descriptions(const Engine& engine, const ConvolutionProblem& p, std::int64_t images)
      : engine_(engine.engine),
        x_({images, p.channels, p.height.input, p.width.input}, f32, Tag::nhwc),
        y_({images, p.outputs, p.height.output, p.width.output}, f32, Tag::nhwc),
        bias_({p.outputs}, f32, Tag::x),
        strides_{p.height.stride, p.width.stride},
        dilations_{p.height.dilation - 1, p.width.dilation - 1},
        before_{p.height.before, p.width.before},
        after_{p.height.after, p.width.after} {
    attributes_.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  }
  [[nodiscard]] dnnl::convolution_forward::primitive_desc forward(const memory::desc& weight, bool bias) const {
    using Description = dnnl::convolution_forward::primitive_desc;
    // As in training: the hint of the gradients' primitives must be of this kind.
    constexpr auto kind = dnnl::prop_kind::forward_training;
    constexpr auto algorithm = dnnl::algorithm::convolution_direct;
    return bias ? Description(engine_, kind, algorithm, x_, weight, bias_, y_, strides_, dilations_, before_, after_,
                              attributes_)
                : Description(engine_, kind, algorithm, x_, weight, y_, strides_, dilations_, before_, after_,
                              attributes_);
  }
  [[nodiscard]] dnnl::convolution_backward_data::primitive_desc data(const memory::desc& weight,
                                                                     const memory::desc& any) const {
    return {engine_,    dnnl::algorithm::convolution_direct,
            x_,         weight,
            y_,         strides_,
            dilations_, before_,
            after_,     forward(any, false),
            attributes_};
  }
  [[nodiscard]] dnnl::convolution_backward_weights::primitive_desc weight(const memory::desc& weight,
                                                                          const memory::desc& any) const {
    return {engine_,    dnnl::algorithm::convolution_direct,
            x_,         weight,
            y_,         strides_,
            dilations_, before_,
            after_,     forward(any, false),
            attributes_};
  }
  [[nodiscard]] const memory::desc& x() const { return x_; }
  [[nodiscard]] const memory::desc& y() const { return y_; }
  [[nodiscard]] const memory::desc& bias() const { return bias_; }

 private:
  dnnl::engine engine_;
  memory::desc x_, y_, bias_;
  memory::dims strides_, dilations_, before_, after_;
  dnnl::primitive_attr attributes_;
};

// A primitive with its memory objects, whose pointers are set anew for each call.
class Chunk {
 public:
  // `weight`: the layout of the weight, or that "any" is as good.
  Chunk(const Engine& engine, const Key& key, const memory::desc& weight) {
    const Descriptions descriptions(engine, key.problem, key.images);
    const memory::desc any = any_weight(key.problem);
    const auto make = [&](auto primitive, const auto& description, const memory::desc& layout) {
      primitive_ = decltype(primitive)(description);
      weight_ = layout;
      scratch_bytes_ = static_cast<std::int64_t>(description.scratchpad_desc().get_size());
      scratch_ = description.scratchpad_desc();
    };
    switch (key.pass) {
      case ConvolutionPass::forward: {
        const auto description = descriptions.forward(weight, key.bias);
        make(dnnl::convolution_forward(), description, description.weights_desc());
        break;
      }
      case ConvolutionPass::data: {
        const auto description = descriptions.data(weight, any);
        make(dnnl::convolution_backward_data(), description, description.weights_desc());
        break;
      }
      case ConvolutionPass::weight: {
        const auto description = descriptions.weight(weight, any);
        make(dnnl::convolution_backward_weights(), description, description.diff_weights_desc());
        break;
      }
    }
    const bool forward = key.pass == ConvolutionPass::forward, data = key.pass == ConvolutionPass::data;
    add(engine, data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, descriptions.x());
    add(engine, key.pass == ConvolutionPass::weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, weight_);
    add(engine, forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, descriptions.y());
    if (scratch_bytes_ > 0) add(engine, DNNL_ARG_SCRATCHPAD, scratch_);
    if (key.bias) add(engine, DNNL_ARG_BIAS, descriptions.bias());
  }

  [[nodiscard]] const memory::desc& weight() const noexcept { return weight_; }

  // oneDNN writes through one of them, as the pass says.
  void run(const Engine& engine, const float* x, const float* packed, const float* bias, const float* y) {
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
  void run(const Engine& engine, const float* from, float* to) {
    from_.set_data_handle(const_cast<float*>(from));
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
  Chunk& chunk(const VendorConvolution& convolution, std::int64_t images) {
    const Key key = key_of(convolution, images);
    const auto found = chunks_.find(key);
    if (found != chunks_.end()) return found->second;
    make_room(chunks_);
    // A last, smaller chunk takes the weight as the whole ones do.
    const memory::desc weight = images == convolution.problem.images
                                    ? any_weight(convolution.problem)
                                    : chunk(convolution, convolution.problem.images).weight();
    return chunks_.try_emplace(key, engine_, key, weight).first->second;
  }
  Reorder& reorder(const VendorConvolution& convolution, bool pack) {
    const Key key = key_of(convolution, pack ? 0 : -1);
    const auto found = reorders_.find(key);
    if (found != reorders_.end()) return found->second;
    make_room(reorders_);
    const memory::desc plain = plain_weight(convolution.problem),
                       packed = chunk(convolution, convolution.problem.images).weight();
    return reorders_.try_emplace(key, engine_, pack ? plain : packed, pack ? packed : plain).first->second;
  }
  [[nodiscard]] const Engine& engine() const { return engine_; }

 private:
  static constexpr std::size_t most = 512;
  static Key key_of(const VendorConvolution& convolution, std::int64_t images) {
    Key key{convolution.problem, images, convolution.pass, convolution.bias};
    key.problem.dtype = float32;
    return key;
  }
  template <class Map>
  static void make_room(Map& map) {
    if (map.size() >= most) map.clear();
  }

  Engine engine_;
  std::unordered_map<Key, Chunk, HashOfKey> chunks_;
  std::unordered_map<Key, Reorder, HashOfKey> reorders_;
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

void run(const VendorConvolution& convolution, std::int64_t images, const float* x, const float* packed,
         const float* bias, const float* y) {
  with_cache(convolution,
             [&](Cache& cache) { cache.chunk(convolution, images).run(cache.engine(), x, packed, bias, y); });
}

}  // namespace

std::int64_t packed_weight_size(const VendorConvolution& convolution) {
  std::int64_t size = 0;
  with_cache(convolution, [&](Cache& cache) {
    const std::size_t bytes = cache.chunk(convolution, convolution.problem.images).weight().get_size();
    size = static_cast<std::int64_t>(bytes / sizeof(float));
  });
  return size;
}

void pack_weight(const VendorConvolution& convolution, const float* weight, float* packed) {
  with_cache(convolution, [&](Cache& cache) { cache.reorder(convolution, true).run(cache.engine(), weight, packed); });
}

void unpack_weight(const VendorConvolution& convolution, const float* packed, float* weight) {
  with_cache(convolution, [&](Cache& cache) { cache.reorder(convolution, false).run(cache.engine(), packed, weight); });
}

void run_forward(const VendorConvolution& convolution, std::int64_t images, const float* x, const float* packed,
                 const float* bias, float* y) {
  run(convolution, images, x, packed, bias, y);
}
void run_data(const VendorConvolution& convolution, std::int64_t images, const float* packed, const float* dy,
              float* grad_x) {
  run(convolution, images, grad_x, packed, nullptr, dy);
}
void run_weight(const VendorConvolution& convolution, std::int64_t images, const float* x, const float* dy,
                float* packed) {
  run(convolution, images, x, packed, nullptr, dy);
}

}  // namespace everyo::kernels
