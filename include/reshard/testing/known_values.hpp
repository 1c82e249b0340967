// SPDX-License-Identifier: Apache-2.0
// Known values for a switch to move: every element of a binding is written as a function of (state, tensor, global
// index), and compared with it afterwards. For anybody's tests of a layout, a binding or a back end.
// Builds on: memory/binding.hpp.
#pragma once

#include <cstring>

#include <reshard/memory/binding.hpp>

namespace reshard {

/// How many elements were compared, and how many were not what they should be.
struct comparison {
  index_t elements = 0;
  index_t wrong = 0;
};

namespace detail {

/// Calls visit(element, global index) for a bound box, `tensor` being [parts, rows, columns] of the whole tensor.
template <typename Element, typename Visit>
void each_element(const bound_box& b, const index_t (&tensor)[3], Visit&& visit) {
  for (index_t part = b.where.dim[0].begin; part < b.where.dim[0].end; ++part)
    for (index_t row = b.where.dim[1].begin; row < b.where.dim[1].end; ++row) {
      const index_t first = (part * tensor[1] + row) * tensor[2] + b.where.dim[2].begin;
      auto* at = reinterpret_cast<Element*>(
          b.data + ((part - b.where.dim[0].begin) * b.stride[0] + (row - b.where.dim[1].begin) * b.stride[1]) *
                       static_cast<bytes_t>(sizeof(Element)));
      const index_t columns = b.where.dim[2].size(), stride = b.stride[2];
      if (stride == 1) {
        for (index_t c = 0; c < columns; ++c) visit(at[c], first + c);
      } else {
        for (index_t c = 0; c < columns; ++c) visit(at[c * stride], first + c);
      }
    }
}

template <typename Visit>
void each_element_of_width(bytes_t width, const bound_box& b, const index_t (&tensor)[3], Visit&& visit) {
  switch (width) {
    case 1: return each_element<std::uint8_t>(b, tensor, visit);
    case 2: return each_element<std::uint16_t>(b, tensor, visit);
    case 4: return each_element<std::uint32_t>(b, tensor, visit);
    default: return each_element<std::uint64_t>(b, tensor, visit);
  }
}

}  // namespace detail

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
