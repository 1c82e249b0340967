// SPDX-License-Identifier: Apache-2.0
// Every legal layout of a model on so many devices: tp, pp, dp and ep as they are asked to vary, every other key as in
// a layout that is given. The split is even where layers divide, else spread.
// Builds on: parallelism/legal.hpp, parallelism/parse_degrees.hpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <reshard/parallelism/legal.hpp>
#include <reshard/parallelism/parse_degrees.hpp>

namespace reshard {

/// Which degrees vary from layout to layout, each at most once.
using varied_axes = std::vector<layout_key>;

namespace detail {
inline constexpr layout_key may_vary[] = {layout_key::tp, layout_key::pp, layout_key::dp, layout_key::ep};

constexpr bool varies(const varied_axes& axes, layout_key key) {
  for (const layout_key one : axes)
    if (one == key) return true;
  return false;
}

/// { d : d divides n }, ascending.
constexpr std::vector<index_t> divisors_of(index_t n) {
  std::vector<index_t> low, high;
  for (index_t d = 1; d <= n / d; ++d) {
    if (n % d != 0) continue;
    low.push_back(d);
    if (d != n / d) high.push_back(n / d);
  }
  while (!high.empty()) low.push_back(high.back()), high.pop_back();
  return low;
}

/// What follows from the degrees: even or spread, the default of etp left unsaid, chunks of a layout string.
constexpr degrees settled(const model& m, degrees d) {
  const bool dealt_otherwise = d.first > 0 || d.last > 0 || d.string.given();
  const bool divide = m.shape.layers % d.chunks() == 0;
  d.split = dealt_otherwise || divide ? pipeline_split::even : pipeline_split::spread;
  if (d.string.given()) settle_chunks(d, false);
  const index_t etp = d.etp;
  d.etp = 0;
  if (d.expert_tp() != etp) d.etp = etp;
  return d;
}

/// Calls visit(degrees) with every way to make `rest` of the product of the axes from the a-th on.
template <typename Visit>
constexpr void each_product(const std::vector<layout_key>& axes, std::size_t a, index_t rest, degrees d,
                            Visit&& visit) {
  if (a == axes.size()) {
    if (rest == 1) visit(d);
    return;
  }
  for (const index_t degree : divisors_of(rest)) {
    assign(d, axes[a], degree);
    each_product(axes, a + 1, rest / degree, d, visit);
  }
}
}  // namespace detail

/// tp, pp and dp, and where the model has experts ep.
[[nodiscard]] constexpr varied_axes default_axes(const model& m) {
  varied_axes axes{layout_key::tp, layout_key::pp, layout_key::dp};
  if (m.shape.experts > 0) axes.push_back(layout_key::ep);
  return axes;
}

/// "tp,dp": the axes that vary. Refused: another word, or one that comes twice.
[[nodiscard]] inline varied_axes parse_axes(std::string_view text) {
  varied_axes axes;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    const layout_key* known = std::begin(detail::may_vary);
    while (known != std::end(detail::may_vary) && word != name(*known)) ++known;
    if (known == std::end(detail::may_vary)) refuse("axes: '", word, "' is none that varies; tp, pp, dp and ep do");
    if (detail::varies(axes, *known)) refuse("axes: ", word, " is named twice");
    axes.push_back(*known);
    if (comma == std::string_view::npos) return axes;
    rest.remove_prefix(comma + 1);
  }
}

/// { d : is_legal(m, d), d.world() == devices }, by tp, then pp, dp and ep. What a degree must divide is is_legal's to
/// say: under names=hf tp need divide neither heads nor rows. The axes vary, with etp=1 where ep does and there are
/// experts; split=even, else spread where layers do not divide; every other key is that of `like`. With first, last or
/// a layout string those deal the layers.
[[nodiscard]] constexpr std::vector<degrees> legal_layouts(const model& m, const degrees& like, rank_t devices,
                                                           const varied_axes& axes) {
  if (devices < 1) refuse("layouts: ", devices, " devices; there is at least 1");
  std::vector<degrees> found;
  std::vector<layout_key> factors;
  degrees fixed = like;  // what does not vary
  for (const layout_key key : detail::may_vary) {
    if (key == layout_key::ep || !detail::varies(axes, key)) continue;
    factors.push_back(key);
    detail::assign(fixed, key, 1);
  }
  const bool experts_vary = detail::varies(axes, layout_key::ep);
  if (experts_vary && m.shape.experts > 0) fixed.etp = 1;
  if (fixed.world() < 1 || devices % fixed.world() != 0) return found;
  detail::each_product(factors, 0, devices / fixed.world(), fixed, [&](degrees d) {
    // ep divides the experts; where chunk() deals them, no more than the ranks of a stage
    const index_t divided = rules::chunks_experts(d) ? d.stage_ranks() : greatest(m.shape.experts, 1);
    for (const index_t ep : detail::divisors_of(experts_vary ? divided : 1)) {
      if (experts_vary) d.ep = ep;
      if (const degrees one = detail::settled(m, d); is_legal(m, one)) found.push_back(one);
    }
  });
  return found;
}

/// The numbers of devices next to one, below and above, that have a legal layout; 0 where none is found within 4096.
struct nearest_devices {
  rank_t below = 0;
  rank_t above = 0;
};
/// The largest number below `devices` and the smallest above for which legal_layouts has some.
[[nodiscard]] constexpr nearest_devices devices_with_layouts(const model& m, const degrees& like, rank_t devices,
                                                             const varied_axes& axes) {
  constexpr rank_t searched = 4096;
  nearest_devices found;
  const auto any = [&](rank_t n) { return !legal_layouts(m, like, n, axes).empty(); };
  for (rank_t n = devices - 1; n >= 1 && n > devices - searched && found.below == 0; --n)
    if (any(n)) found.below = n;
  for (rank_t n = devices + 1; n < devices + searched && found.above == 0; ++n)
    if (any(n)) found.above = n;
  return found;
}

}  // namespace reshard
