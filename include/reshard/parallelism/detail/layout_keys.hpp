// SPDX-License-Identifier: Apache-2.0
// The keys of a layout, one table: what each is called, which value of the degrees it sets, and from which number on or
// to which words. Types (config.hpp), text (parse_degrees.hpp) and legality (legal.hpp) all read it.
// Builds on: parallelism/degrees.hpp.
#pragma once

#include <iterator>
#include <string_view>
#include <type_traits>

#include <reshard/parallelism/degrees.hpp>

namespace reshard {

/// In the order in which they are written.
enum class layout_key {
  tp,
  cp,
  pp,
  vpp,
  dp,
  ep,
  etp,
  zero,
  split,
  bucket,
  first,
  last,
  string,
  order,
  instances,
  busbw,
  pad,
  shard,
  experts,
  names
};

/// The words that a key may have, in the order of its enumeration, and how they are read and set.
struct word_entry {
  const char* const* words;
  int count;
  int (*get)(const degrees&);
  void (*set)(degrees&, int);
};

namespace detail {
inline constexpr const char* split_words[] = {"even", "account", "spread", "account_embedding", "account_loss"};
inline constexpr const char* shard_words[] = {"buffers", "rows"};
inline constexpr const char* experts_words[] = {"separate", "grouped"};
inline constexpr const char* names_words[] = {"megatron", "hf"};

template <auto Member, std::size_t Count>
constexpr word_entry words_of(const char* const (&words)[Count]) {
  return {words, static_cast<int>(Count), [](const degrees& d) { return static_cast<int>(d.*Member); },
          [](degrees& d, int word) {
            auto& value = d.*Member;
            value = static_cast<std::remove_reference_t<decltype(value)>>(word);
          }};
}
inline constexpr word_entry words_of_split = words_of<&degrees::split>(split_words);
inline constexpr word_entry words_of_shard = words_of<&degrees::shard>(shard_words);
inline constexpr word_entry words_of_experts = words_of<&degrees::experts>(experts_words);
inline constexpr word_entry words_of_names = words_of<&degrees::names>(names_words);
}  // namespace detail

/// A number of the degrees.
using degree_of = index_t degrees::*;

/// One key of a layout: its name, the number of the degrees that it sets with the least that this may be, or its words;
/// string and order have neither, their text is read by functions of their own.
struct key_entry {
  layout_key key;
  const char* name;
  degree_of number = nullptr;
  index_t least = 0;  // legal value
  const word_entry* words = nullptr;
};
/// Every key of a layout, in the order of layout_key.
inline constexpr key_entry layout_keys[] = {
    {layout_key::tp, "tp", &degrees::tp, 1},
    {layout_key::cp, "cp", &degrees::cp, 1},
    {layout_key::pp, "pp", &degrees::pp, 1},
    {layout_key::vpp, "vpp", &degrees::vpp, 1},
    {layout_key::dp, "dp", &degrees::dp, 1},
    {layout_key::ep, "ep", &degrees::ep, 1},
    {layout_key::etp, "etp", &degrees::etp, 1},
    {layout_key::zero, "zero", &degrees::zero, 0},
    {layout_key::split, "split", nullptr, 0, &detail::words_of_split},
    {layout_key::bucket, "bucket", &degrees::bucket, 0},
    {layout_key::first, "first", &degrees::first, 1},
    {layout_key::last, "last", &degrees::last, 1},
    {layout_key::string, "string"},
    {layout_key::order, "order"},
    {layout_key::instances, "instances", &degrees::instances, 1},
    {layout_key::busbw, "busbw", &degrees::busbw, 1},
    {layout_key::pad, "pad", &degrees::pad, 1},
    {layout_key::shard, "shard", nullptr, 0, &detail::words_of_shard},
    {layout_key::experts, "experts", nullptr, 0, &detail::words_of_experts},
    {layout_key::names, "names", nullptr, 0, &detail::words_of_names},
};
/// The entry e of layout_keys with e.key == key.
constexpr const key_entry& entry_of(layout_key key) { return layout_keys[static_cast<int>(key)]; }
/// The key, or a value of it, as it is written: "tp", "even", "rows".
constexpr const char* name(layout_key key) { return entry_of(key).name; }
constexpr const char* name(pipeline_split split) { return detail::split_words[static_cast<int>(split)]; }
constexpr const char* name(shard_by shard) { return detail::shard_words[static_cast<int>(shard)]; }
constexpr const char* name(names_as names) { return detail::names_words[static_cast<int>(names)]; }
constexpr const char* name(order_axis axis) {
  constexpr layout_key keys[] = {layout_key::tp, layout_key::cp, layout_key::ep, layout_key::dp, layout_key::pp};
  return name(keys[static_cast<int>(axis)]);
}

/// The order that a text like "tp-cp-ep-dp-pp" names. Refused: another word, or one that comes twice.
constexpr rank_order parse_rank_order(std::string_view text) {
  rank_order result;
  result.axes = 0;
  for (std::string_view rest = text;;) {
    const std::size_t dash = rest.find('-');
    const std::string_view word = rest.substr(0, dash);
    int a = 0;
    while (a < 5 && word != name(static_cast<order_axis>(a))) ++a;
    if (a == 5) refuse("layout: order=", text, " names '", word, "'; its axes are tp, cp, ep, dp and pp");
    if (result.has(static_cast<order_axis>(a))) refuse("layout: order=", text, " names ", word, " twice");
    result.axis[result.axes++] = static_cast<order_axis>(a);
    if (dash == std::string_view::npos) break;
    rest.remove_prefix(dash + 1);
  }
  for (int i = result.axes; i < 5; ++i) result.axis[i] = order_axis::tp;  // so that equal orders compare equal
  return result;
}

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
constexpr void assign(degrees& d, layout_key, shard_by value) { d.shard = value; }
constexpr void assign(degrees& d, layout_key, experts_as value) { d.experts = value; }
constexpr void assign(degrees& d, layout_key, names_as value) { d.names = value; }
constexpr void assign(degrees& d, layout_key, const rank_order& value) { d.order = value; }
constexpr void assign(degrees& d, layout_key, const pipeline_string& value) { d.string = value; }

/// A layout string says how many chunks there are, where vpp is not named beside it.
constexpr void settle_chunks(degrees& d, bool vpp_named) {
  if (d.string.given() && !vpp_named && d.pp >= 1) d.vpp = greatest(d.string.chunks / d.pp, 1);
}
}  // namespace detail

}  // namespace reshard
