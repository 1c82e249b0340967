// SPDX-License-Identifier: Apache-2.0
// The keys of a layout, one table: what each is called, which number of the degrees it sets, and from which value on.
// Types (config.hpp), text (parse_degrees.hpp) and legality (legal.hpp) all read it.
// Builds on: parallelism/degrees.hpp.
#pragma once

#include <iterator>

#include <reshard/parallelism/degrees.hpp>

namespace reshard {

/// In the order in which they are written.
enum class layout_key { tp, cp, pp, vpp, dp, ep, etp, zero, split, bucket };

/// One key of a layout: its name, the number of the degrees that it sets, and the least legal value of that.
struct key_entry {
  layout_key key;
  const char* name;
  index_t degrees::*number;  // none for split, whose value is a word
  index_t least;             // legal value
};
/// Every key of a layout, in the order of layout_key.
inline constexpr key_entry layout_keys[] = {
    {layout_key::tp, "tp", &degrees::tp, 1},    {layout_key::cp, "cp", &degrees::cp, 1},
    {layout_key::pp, "pp", &degrees::pp, 1},    {layout_key::vpp, "vpp", &degrees::vpp, 1},
    {layout_key::dp, "dp", &degrees::dp, 1},    {layout_key::ep, "ep", &degrees::ep, 1},
    {layout_key::etp, "etp", &degrees::etp, 1}, {layout_key::zero, "zero", &degrees::zero, 0},
    {layout_key::split, "split", nullptr, 0},   {layout_key::bucket, "bucket", &degrees::bucket, 0},
};
/// The entry e of layout_keys with e.key == key.
constexpr const key_entry& entry_of(layout_key key) { return layout_keys[static_cast<int>(key)]; }
/// The key or the split as it is written: "tp", "even".
constexpr const char* name(layout_key key) { return entry_of(key).name; }

/// One way to deal layers to pipeline chunks, and its name.
struct split_entry {
  pipeline_split split;
  const char* name;
};
/// Every split, in the order of pipeline_split.
inline constexpr split_entry pipeline_splits[] = {
    {pipeline_split::even, "even"}, {pipeline_split::account, "account"}, {pipeline_split::spread, "spread"}};
constexpr const char* name(pipeline_split split) { return pipeline_splits[static_cast<int>(split)].name; }

/// The check of one number, the same for types, values and text.
constexpr void require_degree(layout_key key, index_t value) {
  const index_t least = entry_of(key).least;
  if (value < least) refuse(name(key), "=", value, ": this degree is at least ", least);
}

namespace detail {
constexpr void assign(degrees& d, layout_key key, index_t value) {
  // 0 and 1 both close after every parameter
  d.*entry_of(key).number = key == layout_key::bucket ? greatest(value, 1) : value;
}
constexpr void assign(degrees& d, layout_key, pipeline_split value) { d.split = value; }
}  // namespace detail

}  // namespace reshard
