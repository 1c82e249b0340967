// SPDX-License-Identifier: Apache-2.0
// config<tp<4>, pp<8>, dp<2>, zero<1>>: a parallelism configuration as a type, keys in any order, those not named at
// their defaults. Each degree is static (tp<4>) or dynamic (tp<>, given as a number when the value is made), as mdspan
// mixes extents.
// Builds on: parallelism/layout_keys.hpp.
#pragma once

#include <concepts>
#include <limits>

#include <reshard/parallelism/layout_keys.hpp>

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

#define RESHARD_DEGREE(NAME)                               \
  template <index_t Value = dynamic_degree>                \
  struct NAME : detail::degree<layout_key::NAME, Value> {  \
    using detail::degree<layout_key::NAME, Value>::degree; \
  };                                                       \
  NAME(index_t)->NAME<dynamic_degree>
RESHARD_DEGREE(tp);      // tensor parallelism
RESHARD_DEGREE(cp);      // context parallelism
RESHARD_DEGREE(pp);      // pipeline parallelism
RESHARD_DEGREE(vpp);     // chunks per pipeline rank
RESHARD_DEGREE(dp);      // data parallelism
RESHARD_DEGREE(ep);      // expert parallelism
RESHARD_DEGREE(etp);     // tensor parallelism of experts
RESHARD_DEGREE(zero);    // ZeRO level
RESHARD_DEGREE(bucket);  // elements after which an optimizer bucket closes
#undef RESHARD_DEGREE

/// How layers are dealt to pipeline chunks; always static.
template <pipeline_split Split>
struct split {
  static constexpr layout_key key = layout_key::split;
  static constexpr bool is_static = true;
  static constexpr pipeline_split value() { return Split; }
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
