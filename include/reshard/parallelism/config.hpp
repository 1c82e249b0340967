// SPDX-License-Identifier: Apache-2.0
// config<tp<4>, pp<8>, dp<2>, zero<1>>: a parallelism configuration as a type, keys in any order, those not named at
// their defaults. Each degree is static (tp<4>) or dynamic (tp<>, given as a number when the value is made), as mdspan
// mixes extents.
// Builds on: parallelism/detail/layout_keys.hpp.
#pragma once

#include <concepts>
#include <cstddef>
#include <limits>
#include <string_view>

#include <reshard/parallelism/detail/layout_keys.hpp>

namespace reshard {

/// The Value of tp<> and of every degree that is given as a number at run time.
inline constexpr index_t dynamic_degree = std::numeric_limits<index_t>::min();

namespace detail {
template <index_t Value, index_t Least>
concept degree_at_least = Value == dynamic_degree || Value >= Least;

/// One named degree: static where Value is given, else a stored number.
template <layout_key Key, index_t Value>
struct degree {
  static_assert(degree_at_least<Value, entry_of(Key).least>,
                "reshard: a degree of config<...> is below the least legal one (1; 0 for zero and bucket)");
  static constexpr layout_key key = Key;
  static constexpr bool is_static = true;
  static constexpr index_t static_value = Value;
  static constexpr index_t value() { return Value; }
};
template <layout_key Key>
struct degree<Key, dynamic_degree> {
  static constexpr layout_key key = Key;
  static constexpr bool is_static = false;
  static constexpr index_t static_value = dynamic_degree;
  index_t number = entry_of(Key).least;

  constexpr degree() = default;
  constexpr explicit degree(index_t n) : number(n) { require_degree(Key, n); }
  constexpr index_t value() const { return number; }
};
}  // namespace detail

#define RESHARD_DEGREE(NAME, KEY)                         \
  template <index_t Value = dynamic_degree>               \
  struct NAME : detail::degree<layout_key::KEY, Value> {  \
    using detail::degree<layout_key::KEY, Value>::degree; \
  };                                                      \
  NAME(index_t)->NAME<dynamic_degree>
RESHARD_DEGREE(tp, tp);                // tensor parallelism
RESHARD_DEGREE(cp, cp);                // context parallelism
RESHARD_DEGREE(pp, pp);                // pipeline parallelism
RESHARD_DEGREE(vpp, vpp);              // chunks per pipeline rank
RESHARD_DEGREE(dp, dp);                // data parallelism
RESHARD_DEGREE(ep, ep);                // expert parallelism
RESHARD_DEGREE(etp, etp);              // tensor parallelism of experts
RESHARD_DEGREE(zero, zero);            // ZeRO level
RESHARD_DEGREE(bucket, bucket);        // elements after which an optimizer bucket closes
RESHARD_DEGREE(first_layers, first);   // layers of the first pipeline stage
RESHARD_DEGREE(last_layers, last);     // layers of the last pipeline stage
RESHARD_DEGREE(instances, instances);  // runs of the sharding group that shard alone
RESHARD_DEGREE(busbw, busbw);          // 1: buckets padded for bus bandwidth
RESHARD_DEGREE(pad_rows, pad);         // rows of the vocabulary become a multiple of pad x tp
#undef RESHARD_DEGREE

namespace detail {
/// A setting whose value is no number; always static.
template <layout_key Key, auto Value>
struct static_setting {
  static constexpr layout_key key = Key;
  static constexpr bool is_static = true;
  static constexpr auto value() { return Value; }
};

/// Characters as a template argument.
template <std::size_t Size>
struct literal {
  char text[Size] = {};
  constexpr literal(const char (&characters)[Size]) {  // NOLINT: a literal is its characters
    for (std::size_t i = 0; i < Size; ++i) text[i] = characters[i];
  }
  constexpr std::string_view view() const { return {text, Size - 1}; }
};
}  // namespace detail

/// How layers are dealt to pipeline chunks.
template <pipeline_split Split>
struct split : detail::static_setting<layout_key::split, Split> {};
/// shard_as<shard_by::rows>: how sharded states are cut.
template <shard_by By>
struct shard_as : detail::static_setting<layout_key::shard, By> {};
/// experts_are<experts_as::grouped>: what rows are cut of where experts are sharded.
template <experts_as As>
struct experts_are : detail::static_setting<layout_key::experts, As> {};
/// names_are<names_as::hf>: what the side calls its tensors.
template <names_as Names>
struct names_are : detail::static_setting<layout_key::names, Names> {};
/// ordered<"tp-cp-ep-dp-pp">: the axes from fastest to slowest.
template <detail::literal Text>
struct ordered {
  static constexpr layout_key key = layout_key::order;
  static constexpr bool is_static = true;
  static constexpr rank_order value() { return parse_rank_order(Text.view()); }
};
/// chunks_as<"Et*3|(tt|)*29m|L">: the pipeline chunks as a layout string deals them.
template <detail::literal Text>
struct chunks_as {
  static constexpr layout_key key = layout_key::string;
  static constexpr bool is_static = true;
  static constexpr pipeline_string value() { return parse_pipeline_string(Text.view()); }
};

/// What config<...> takes: a type with a key of the layout and a value().
template <typename A>
concept LayoutSetting = requires(const A a) {
  { A::key } -> std::convertible_to<layout_key>;
  a.value();
};

namespace detail {
template <typename... Settings>
constexpr bool named_once() {
  constexpr layout_key names[] = {Settings::key..., layout_key::split};
  for (std::size_t i = 0; i < sizeof...(Settings); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (names[i] == names[j]) return false;
  return true;
}
template <typename... Settings>
concept distinct_keys = named_once<Settings...>();
}  // namespace detail

/// A configuration. `config<tp<4>, pp<>>{8}` takes its dynamic degrees in the order of the list; `config{tp{4},
/// pp<8>{}}` deduces. `operator degrees()` is the plain form that algorithms take.
template <LayoutSetting... Settings>
class config : private Settings... {
  static_assert(detail::distinct_keys<Settings...>, "reshard: a key is named twice in config<...>");

 public:
  static constexpr bool is_static = (Settings::is_static && ...);
  static constexpr int dynamic_degrees = (0 + ... + (Settings::is_static ? 0 : 1));

  constexpr config() requires is_static = default;

  constexpr explicit config(const Settings&... settings) requires(sizeof...(Settings) > 0) : Settings(settings)... {}

  template <std::integral... Numbers>
    requires(sizeof...(Numbers) > 0)
  constexpr explicit config(Numbers... numbers) {
    static_assert(sizeof...(Numbers) == static_cast<std::size_t>(dynamic_degrees),
                  "reshard: config<...> takes exactly one number per dynamic degree, in the order of its list");
    const index_t given[] = {static_cast<index_t>(numbers)...};
    int next = 0;
    ((take<Settings>(given, next)), ...);
  }

  constexpr operator degrees() const {  // NOLINT: a configuration is its degrees
    degrees d;
    (detail::assign(d, Settings::key, static_cast<const Settings&>(*this).value()), ...);
    detail::settle_chunks(d, ((Settings::key == layout_key::vpp) || ...));
    return d;
  }

 private:
  template <typename A>
  constexpr void take(const index_t* given, int& next) {
    if constexpr (!A::is_static) static_cast<A&>(*this) = A(given[next++]);
  }
};

template <LayoutSetting... Settings>
config(const Settings&...) -> config<Settings...>;

}  // namespace reshard
