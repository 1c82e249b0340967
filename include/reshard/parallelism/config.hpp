// SPDX-License-Identifier: Apache-2.0
// config<tp<4>, pp<8>, dp<2>, zero<1>>: a parallelism configuration as a type, axes in any order, those not named at their
// defaults. Each degree is static (tp<4>) or dynamic (tp<>, given as a number when the value is made), as mdspan mixes extents.
// Builds on: parallelism/degrees.hpp.
#pragma once

#include <concepts>
#include <limits>

#include <reshard/parallelism/degrees.hpp>

namespace reshard {

inline constexpr index_t dynamic_degree = std::numeric_limits<index_t>::min();

enum class axis { tp, cp, pp, vpp, dp, ep, etp, zero, bucket, split };

constexpr const char* name(axis which) {
  constexpr const char* names[] = {"tp", "cp", "pp", "vpp", "dp", "ep", "etp", "zero", "bucket", "split"};
  return names[static_cast<int>(which)];
}

/// The least legal value: 0 for the ZeRO level and a bucket's length, 1 for a degree.
constexpr index_t least_degree(axis which) { return which == axis::zero || which == axis::bucket ? 0 : 1; }

/// The check of one degree, the same for types, values and text.
constexpr void require_degree(axis which, index_t value) {
  if (value < least_degree(which)) refuse(name(which), "=", value, ": this degree is at least ", least_degree(which));
}

namespace detail {
template <index_t Value, index_t Least>
concept degree_at_least = Value == dynamic_degree || Value >= Least;

/// One named degree: static where Value is given, else a stored number.
template <axis Which, index_t Value>
struct degree {
  static_assert(degree_at_least<Value, least_degree(Which)>,
                "reshard: a degree of config<...> is below the least legal one (1; 0 for zero)");
  static constexpr axis which = Which;
  static constexpr bool is_static = true;
  static constexpr index_t static_value = Value;
  static constexpr index_t value() { return Value; }
};
template <axis Which>
struct degree<Which, dynamic_degree> {
  static constexpr axis which = Which;
  static constexpr bool is_static = false;
  static constexpr index_t static_value = dynamic_degree;
  index_t number = least_degree(Which);

  constexpr degree() = default;
  constexpr explicit degree(index_t n) : number(n) { require_degree(Which, n); }
  constexpr index_t value() const { return number; }
};
}  // namespace detail

#define RESHARD_DEGREE(NAME)                                         \
  template <index_t Value = dynamic_degree>                          \
  struct NAME : detail::degree<axis::NAME, Value> {                  \
    using detail::degree<axis::NAME, Value>::degree;                 \
  };                                                                 \
  NAME(index_t) -> NAME<dynamic_degree>
RESHARD_DEGREE(tp);
RESHARD_DEGREE(cp);
RESHARD_DEGREE(pp);
RESHARD_DEGREE(vpp);
RESHARD_DEGREE(dp);
RESHARD_DEGREE(ep);
RESHARD_DEGREE(etp);
RESHARD_DEGREE(zero);
RESHARD_DEGREE(bucket);
#undef RESHARD_DEGREE

/// How layers are dealt to pipeline chunks; always static.
template <pipeline_split Split>
struct split {
  static constexpr axis which = axis::split;
  static constexpr bool is_static = true;
  static constexpr pipeline_split value() { return Split; }
};

template <typename A>
concept Axis = requires(const A a) {
  { A::which } -> std::convertible_to<axis>;
  a.value();
};

namespace detail {
template <typename... Axes>
constexpr bool named_once() {
  constexpr axis names[] = {Axes::which..., axis::split};
  for (std::size_t i = 0; i < sizeof...(Axes); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (names[i] == names[j]) return false;
  return true;
}
template <typename... Axes>
concept distinct_axes = named_once<Axes...>();

constexpr void assign(degrees& d, axis which, index_t value) {
  switch (which) {
    case axis::tp: d.tp = value; break;
    case axis::cp: d.cp = value; break;
    case axis::pp: d.pp = value; break;
    case axis::vpp: d.vpp = value; break;
    case axis::dp: d.dp = value; break;
    case axis::ep: d.ep = value; break;
    case axis::etp: d.etp = value; break;
    case axis::zero: d.zero = value; break;
    case axis::bucket: d.bucket = greatest(value, 1); break;  // 0 and 1 both close after every parameter
    case axis::split: break;
  }
}
constexpr void assign(degrees& d, axis, pipeline_split value) { d.split = value; }
}  // namespace detail

/// A configuration. `config<tp<4>, pp<>>{8}` takes its dynamic degrees in the order of the list; `config{tp{4}, pp<8>{}}`
/// deduces. `operator degrees()` is the plain form that algorithms take.
template <Axis... Axes>
class config : private Axes... {
  static_assert(detail::distinct_axes<Axes...>, "reshard: an axis is named twice in config<...>");

 public:
  static constexpr bool is_static = (Axes::is_static && ...);
  static constexpr int dynamic_degrees = (0 + ... + (Axes::is_static ? 0 : 1));

  constexpr config()
    requires is_static
  = default;

  constexpr explicit config(const Axes&... axes)
    requires(sizeof...(Axes) > 0)
      : Axes(axes)... {}

  template <std::integral... Numbers>
    requires(sizeof...(Numbers) > 0)
  constexpr explicit config(Numbers... numbers) {
    static_assert(sizeof...(Numbers) == static_cast<std::size_t>(dynamic_degrees),
                  "reshard: config<...> takes exactly one number per dynamic degree, in the order of its list");
    const index_t given[] = {static_cast<index_t>(numbers)...};
    int next = 0;
    ((take<Axes>(given, next)), ...);
  }

  constexpr operator degrees() const {  // NOLINT: a configuration is its degrees
    degrees d;
    (detail::assign(d, Axes::which, static_cast<const Axes&>(*this).value()), ...);
    return d;
  }

 private:
  template <typename A>
  constexpr void take(const index_t* given, int& next) {
    if constexpr (!A::is_static) static_cast<A&>(*this) = A(given[next++]);
  }
};

template <Axis... Axes>
config(const Axes&...) -> config<Axes...>;

}  // namespace reshard
