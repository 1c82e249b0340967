// SPDX-License-Identifier: Apache-2.0
// The elements of what is bound, each with its number in the whole tensor; and the boxes of several states that lie at
// one place, as an optimizer reads them. For who writes, compares or sums state whatever layout it is in.
// Builds on: memory/binding.hpp.
#pragma once

#include <initializer_list>
#include <vector>

#include <reshard/memory/binding.hpp>

namespace reshard {

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

/// Calls visit(element, i) for every element of a bound box of the type Element, i its row-major number in the whole
/// tensor as it is stored, whose family is given:
///   i = (part rows + row) columns + column
/// Refused where Element is not as wide as the elements that are bound.
template <typename Element, typename Visit>
void each_element(const bound_box& b, const family& tensor, Visit&& visit) {
  if (static_cast<bytes_t>(sizeof(Element)) != b.element_bytes)
    refuse("elements of ", sizeof(Element), " bytes are asked for of a box of family ", b.tensor.family, ", member ",
           b.tensor.member, ", whose elements have ", b.element_bytes);
  const index_t whole[] = {tensor.extent[axis_of::part], tensor.extent[axis_of::row], tensor.extent[axis_of::column]};
  detail::each_element<Element>(b, whole, visit);
}

/// Calls sink(boxes) with the part of every bound box of `wanted` that lies in it, and behind it the boxes of the other
/// states at the very same place, in the order in which the states are given:
///   boxes[0].where = boxes[1].where = ..,  boxes[k].state = (wanted.state, others..)[k]
/// Refused where another state is not bound there in one box. Sealed before.
template <typename Sink>
void each_sibling(const binding& of, const tensor_box& wanted, std::initializer_list<int> others, Sink&& sink) {
  std::vector<bound_box> boxes;
  of.meet(wanted, [&](const bound_box& first) {
    boxes.assign(1, first);
    for (const int state : others) {
      tensor_box there = first;
      there.state = state;
      of.meet(there, [&](const bound_box& b) {
        if (b.where == there.where) boxes.push_back(b);
      });
      if (boxes.back().state != state)
        refuse(of.who(), ": ", of.name(there), " is not bound in one box where ", of.name(first), " is");
    }
    sink(static_cast<const std::vector<bound_box>&>(boxes));
  });
}

}  // namespace reshard
