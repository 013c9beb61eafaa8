#pragma once
#include <filesystem>

#include "everyo/io.h"
#include "everyo/nn/module.h"

// A model's state in one safetensors file.
namespace everyo::inline v1 {

/// Writes a model's state as save_safetensors does. A parameter that is tied is written once; its other names stand in
/// the metadata, each with the name it is written under, as the public package's save_model has it.
EVERYO_API void save_model(const std::filesystem::path& path, const ModuleBase& model, const Metadata& metadata = {});

/// Takes a model's state from such a file, or any safetensors file; names that the metadata gives to a tensor of the
/// file are names of that one value. The metadata. Throws FileError for the file, StateError as load_state_dict does: a
/// parameter that stands under none of its names is "Missing", one that has different values under two is refused.
EVERYO_API Metadata load_model(const std::filesystem::path& path, ModuleBase& model, const LoadOptions& options = {});

}  // namespace everyo::inline v1
