#pragma once
#include <cstdint>
#include <vector>

#include "everyo/data_parallel.h"

// The one binary tree over V shards: neighbours in pairs, level by level; an odd last one goes up alone.
namespace everyo::parallel {

/// The left part of a node's shards; the right part is the rest. A node of one shard is a leaf.
constexpr std::int64_t left_size(std::int64_t size) noexcept {
  std::int64_t half = 1;
  while (2 * half < size) half *= 2;
  return half;
}

/// The largest nodes of the tree over `shards` that lie within `own`, from left to right.
std::vector<Block> nodes_within(std::int64_t shards, const Block& own);
/// The nodes above a leaf, from its parent up to the root.
std::vector<Block> nodes_above(std::int64_t shards, std::int64_t leaf);

}  // namespace everyo::parallel
