#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "everyo/dtype.h"

namespace everyo::inline v1 {

class ModuleBase;
struct Tracer;
class GradientSink;
class BufferUpdates;
class EventSink;
class SavedValueHooks;
struct CloneMap;

/// What a block of memory holds; the allocator counts bytes by it.
enum class MemoryCategory : std::uint8_t {
  parameter,
  gradient,
  optimizer_state,
  activation,
  communication,
  workspace,
  input,
};
inline constexpr std::size_t memory_category_count = 7;

/// One entry of the stack of module calls.
struct ModuleScope {
  const ModuleBase* module;
  const ModuleScope* parent;
  std::string_view name;  ///< of the module within its parent; "" for an outermost one
  std::uint64_t
      path_hash;  ///< of the dotted path from the outermost module; keys random draws and uses of tied weights
  bool stamped;   ///< parameters() of the outermost module has run, so every parameter should have a name
};

/// The engine's own bookkeeping in this thread; no scope changes it.
struct EngineState {
  std::uint64_t clock = 0;  ///< Lamport clock of recorded nodes; never turned back
  std::uint64_t walks = 0;  ///< backward passes begun
  void* walk = nullptr;     ///< the outermost backward running in this thread
  void* dying = nullptr;    ///< nodes waiting to be destroyed
  bool destroying = false;  ///< a chain is dropped iteratively
  bool warned_of_autocast = false;
  float loss_scale = 1;  ///< what the gradients of the backward running are multiplied by: see GradScaler
};

/// This thread's modes. Trivially copyable: a snapshot is a copy. Set only by the scoped objects below.
/// Pointers in a snapshot live as long as the scope that set them; a thread that outlives it clears them.
struct Context {
  bool grad = true;
  bool autocast = false;
  bool recompute = false;
  bool meta = false;
  DType autocast_dtype = float16;
  MemoryCategory category = MemoryCategory::activation;
  std::int16_t threads = 0;  ///< most threads a kernel may use; 0: all
  std::int16_t team = 1;     ///< threads of the parallel region this thread works in
  std::int32_t shard = 0, micro_batch = 0;
  std::int32_t rank = 0;  ///< that run_threads, run_processes or a launch gave this thread: its draws are its own
  std::uint64_t seed = 0, step = 0;  ///< a random draw's key is (seed, step, module path, rank, micro_batch, sample)
  const ModuleScope* scope = nullptr;
  Tracer* tracer = nullptr;
  GradientSink* gradients = nullptr;  ///< null: the leaves' own slots
  BufferUpdates* buffers = nullptr;   ///< null: a buffer's update is applied at once
  EventSink* events = nullptr;
  SavedValueHooks* saved = nullptr;
  CloneMap* clone = nullptr;
  EngineState engine{};
};
static_assert(std::is_trivially_copyable_v<Context>);

/// This thread's context. Library code takes the reference once per call.
EVERYO_API Context& context() noexcept;

/// Dotted path of the module being called in this thread ("blocks.0.up"), "" outside any.
EVERYO_API std::string module_path();

/// Carries a snapshot into this thread for a scope:
/// `std::thread([snapshot = context()] { ContextScope in(snapshot); … })`.
class [[nodiscard]] ContextScope {
 public:
  explicit ContextScope(const Context& snapshot) noexcept : old_(context()) { set(snapshot); }
  ~ContextScope() { set(old_); }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  static void set(const Context& to) noexcept {
    Context& now = context();
    EngineState engine = now.engine;
    if (to.engine.clock > engine.clock) engine.clock = to.engine.clock;
    now = to;
    now.engine = engine;
  }
  Context old_;
};

/// One field, for one scope: `Scoped<&Context::meta> m(true);`
template <auto Field>
class [[nodiscard]] Scoped {
 public:
  using Value = std::remove_reference_t<decltype(std::declval<Context&>().*Field)>;
  explicit Scoped(Value value) noexcept : old_(std::exchange(context().*Field, value)) {}
  ~Scoped() { context().*Field = old_; }
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;

 private:
  Value old_;
};

/// Nothing is recorded inside.
struct [[nodiscard]] NoGrad : Scoped<&Context::grad> {
  NoGrad() noexcept : Scoped(false) {}
};
/// Recording again, inside a NoGrad.
struct [[nodiscard]] EnableGrad : Scoped<&Context::grad> {
  EnableGrad() noexcept : Scoped(true) {}
};
/// Tensors made inside have shapes and no data; ops only infer.
struct [[nodiscard]] MetaScope : Scoped<&Context::meta> {
  MetaScope() noexcept : Scoped(true) {}
};
/// `count` threads a kernel where it has work for as many; 0: one a core. More than cores is allowed up to 64, so that
/// results can be compared.
struct [[nodiscard]] ThreadLimit : Scoped<&Context::threads> {
  static constexpr int most = 64;
  explicit ThreadLimit(int count) noexcept : Scoped(static_cast<std::int16_t>(std::clamp(count, 0, 0x7fff))) {}
};

}  // namespace everyo::inline v1
