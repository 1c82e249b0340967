// SPDX-License-Identifier: Apache-2.0
// Sorting by merging: what merges is compiled once, whatever is sorted, and does one pass over what is in order.
// Builds on: nothing of the library.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace reshard::detail {

/// Whether one of two items, given by their places, comes before the other.
class item_order {
 public:
  constexpr virtual bool precedes(std::size_t a, std::size_t b) const = 0;

 protected:
  constexpr ~item_order() = default;
};

/// Places of items in the order that they shall have, equals as they are; empty where all are in order already. Runs
/// that ascend are merged two by two until one is left: count x ceil(log2(runs)) steps.
constexpr std::vector<std::size_t> places_in_order(std::size_t count, const item_order& items) {
  std::vector<std::size_t> places, merged;
  for (std::size_t runs = 2; runs > 1;) {
    runs = 0;
    const auto place = [&](std::size_t at) { return places.empty() ? at : places[at]; };
    for (std::size_t first = 0, end = 0; first < count; first = end, ++runs) {
      std::size_t middle = 0;
      for (middle = first + 1; middle < count && !items.precedes(place(middle), place(middle - 1));) ++middle;
      if (first == 0 && middle == count) return places;
      for (end = middle < count ? middle + 1 : count; end < count && !items.precedes(place(end), place(end - 1));)
        ++end;
      for (std::size_t a = first, b = middle; a < middle || b < end;) {
        const bool second = a == middle || (b < end && items.precedes(place(b), place(a)));
        merged.push_back(place(second ? b++ : a++));
      }
    }
    places.swap(merged);
    merged.clear();
  }
  return places;
}

/// Sorts by `less`, a strict weak order; equals stay in the order that they have.
template <typename T, typename Less>
constexpr void sort_items(std::vector<T>& items, const Less& less) {
  class by_less final : public item_order {
   public:
    constexpr by_less(const std::vector<T>& all, const Less& before) : items_(&all), less_(&before) {}
    constexpr bool precedes(std::size_t a, std::size_t b) const override {
      return (*less_)((*items_)[a], (*items_)[b]);
    }

   private:
    const std::vector<T>* items_;
    const Less* less_;
  };
  const std::vector<std::size_t> places = places_in_order(items.size(), by_less(items, less));
  if (places.empty()) return;
  std::vector<T> sorted;
  sorted.reserve(items.size());
  for (const std::size_t place : places) sorted.push_back(std::move(items[place]));
  items.swap(sorted);
}

}  // namespace reshard::detail
