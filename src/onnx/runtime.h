#pragma once
#include <string>
#include <vector>

#include "everyo/onnx.h"

struct OrtApi;
struct OrtApiBase;
struct OrtEnv;
struct OrtStatus;

// ONNX Runtime, loaded by name when it is first needed and through its C interface: nothing links it, and a process
// that never asks for it has none.
namespace everyo::onnx_runtime {

/// A loaded library and its environment; there for as long as the process.
struct Runtime {
  const OrtApi* api = nullptr;
  OrtEnv* environment = nullptr;
  std::string version{}, path{};
};

/// What `options` name, loaded once. Threads may call it at once. Throws StateError (backend) that says where it was
/// looked for.
const Runtime& load(const OnnxRuntimeOptions& options);

/// One place to look for the library: what the loader is asked for, and what messages call it.
struct Candidate {
  std::string name, words;
};
/// The places that `options` allow, in order. One that is named is the only one.
std::vector<Candidate> candidates(const OnnxRuntimeOptions& options);

/// The interface of a library, checked to be one that this is built for; `path` is for the message.
const OrtApi* interface_of(const OrtApiBase* base, const std::string& path);

/// The words of a status, which ends with them.
std::string words_of(const OrtApi& api, OrtStatus* status);

}  // namespace everyo::onnx_runtime
