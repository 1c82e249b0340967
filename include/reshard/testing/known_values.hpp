// SPDX-License-Identifier: Apache-2.0
// Known values for a switch to move: every element of a binding is written as a function of (state, tensor, global
// index), and compared with it afterwards. For anybody's tests of a layout, a binding or a back end.
// Builds on: memory/each_element.hpp.
#pragma once

#include <cstring>

#include <reshard/memory/each_element.hpp>

namespace reshard {

/// How many elements were compared, and how many were not what they should be.
struct comparison {
  index_t elements = 0;
  index_t wrong = 0;
};

/// Values that differ between tensors and states, and between the elements of one: an odd multiple of the index, plus
/// what depends on the tensor, of which an element of w bytes keeps the highest of 32 bits (or all 64).
struct known_values {
  std::uint64_t seed = 1;

  struct of_tensor {
    std::uint32_t base;
    template <typename Element>
    Element value(index_t index) const {
      if constexpr (sizeof(Element) == 8) return (std::uint64_t{base} << 32) + static_cast<std::uint64_t>(index);
      else
        return static_cast<Element>((base + static_cast<std::uint32_t>(index) * 0x9E3779B1u) >>
                                    (32 - 8 * static_cast<int>(sizeof(Element))));
    }
  };
  of_tensor operator()(const tensor_box& t) const {
    std::uint64_t x = seed;
    for (const index_t part : {index_t{t.state}, index_t{t.tensor.family}, t.tensor.member, t.tensor.expert}) {
      x = (x ^ static_cast<std::uint64_t>(part)) * 0xBF58476D1CE4E5B9u;
      x ^= x >> 29;
    }
    return {static_cast<std::uint32_t>(x >> 16)};
  }
};

/// Writes value(tensor_box) .value<Element>(global index) to every element that is bound. `h` says how large the
/// tensors are.
template <typename H, typename Values = known_values>
void fill(const binding& b, const H& h, const Values& values = {}) {
  for (const bound_box& box : b.boxes()) {
    const index_t(&extent)[5] = h.family_at(box.tensor.family).extent;
    const auto known = values(box);
    detail::each_element_of_width(box.element_bytes, box, {extent[2], extent[3], extent[4]},
                                  [known](auto& element, index_t index) {
                                    element = known.template value<std::remove_reference_t<decltype(element)>>(index);
                                  });
  }
}

/// Compares every element that is bound with what fill would write.
template <typename H, typename Values = known_values>
[[nodiscard]] comparison compare(const binding& b, const H& h, const Values& values = {}) {
  comparison result;
  for (const bound_box& box : b.boxes()) {
    const index_t(&extent)[5] = h.family_at(box.tensor.family).extent;
    const auto known = values(box);
    index_t wrong = 0;
    detail::each_element_of_width(
        box.element_bytes, box, {extent[2], extent[3], extent[4]}, [known, &wrong](const auto& element, index_t index) {
          wrong += element != known.template value<std::remove_cvref_t<decltype(element)>>(index) ? 1 : 0;
        });
    result.elements += box.where.volume();
    result.wrong += wrong;
  }
  return result;
}

}  // namespace reshard
