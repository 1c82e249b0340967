// SPDX-License-Identifier: Apache-2.0
// A number for a set of ranks: equal sets that a holding gives for one box have one number, whoever asks. Sets that
// differ have different ones but for chance, 1 in 2^64.
// Builds on: base/digest.hpp, space/any_holding.hpp, parallelism/rank_product.hpp.
#pragma once

#include <cstdint>

#include <reshard/base/digest.hpp>
#include <reshard/parallelism/rank_product.hpp>
#include <reshard/space/any_holding.hpp>

namespace reshard {

/// Mixes one more number into a key.
constexpr std::uint64_t mixed_key(std::uint64_t key, std::uint64_t number) {
  return mix64((key << 17 | key >> 47) * mixing_step ^ number);
}

/// A key of the ranks in their order: costs what there are.
template <Holders All>
constexpr std::uint64_t holder_key(const All& all) {
  std::uint64_t key = 1;
  for (index_t i = 0; i < all.count(); ++i) key = mixed_key(key, static_cast<std::uint64_t>(all[i]));
  return key;
}
/// A key of a product by its axes, of a listed one by its ranks.
constexpr std::uint64_t holder_key(const rank_product& all) {
  std::uint64_t key = 2;
  if (all.listed != nullptr) {
    for (const rank_t rank : *all.listed) key = mixed_key(key, static_cast<std::uint64_t>(rank));
    return key;
  }
  for (int a = 0; a < mesh_ndim; ++a) {  // each step is one to one in what it takes in
    const progression& p = all.along[a];
    const index_t step = p.count == 1 ? 1 : p.step;
    for (const index_t word : {(all.on.extent[a] << 32) ^ p.first, (p.count << 32) ^ step})
      key = ((key << 29 | key >> 35) ^ static_cast<std::uint64_t>(word)) * 0xd6e8feb86659fd93u;
  }
  return mixed_key(key, 0);
}
/// A key of any holders is that of what they are.
inline std::uint64_t holder_key(const any_holders& any) {
  if (any.product() != nullptr) return holder_key(*any.product());
  return any.with_lost() != nullptr ? holder_key(*any.with_lost()) : holder_key<any_holders>(any);
}
/// A key of living holders is that of all: which are lost does not differ between the sets of a switch.
template <Holders All>
constexpr std::uint64_t holder_key(const living_holders<All>& living) {
  return holder_key(living.all());
}

}  // namespace reshard
