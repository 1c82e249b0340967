// SPDX-License-Identifier: Apache-2.0
// A member that goes over to other worlds and keeps copies, over real connections: its arrays say of each element which
// it is, and its small state is one sum.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include <reshard/base/digest.hpp>
#include <reshard/elastic/run/world_change.hpp>
#include <reshard/memory/each_element.hpp>
#include <reshard/memory/rank_storage.hpp>

#include "one_member.hpp"

namespace testing {

/// Arrays of a world's rank, each of whose elements says which it is.
struct arrays_of {
  arrays_of(const model& m, const world& w, rank_t rank)
      : layout(space(m, w.layout), adam.all()),
        storage(layout, rank, "arrays", w.epoch == 1 ? pages_are::committed : pages_are::reserved) {}
  /// visit(element, which it is) of a box of such arrays, wherever it lies.
  void each_in(const bound_box& b, auto&& visit) const {
    const std::uint64_t key =
        mix64(static_cast<std::uint64_t>(b.state * 1'000'000 + b.tensor.family * 1000 + b.tensor.member));
    const auto one = [&](auto& x, index_t i) {
      visit(x, static_cast<std::remove_reference_t<decltype(x)>>(mix64(key + static_cast<std::uint64_t>(i))));
    };
    if (b.element_bytes == 2) each_element<std::uint16_t>(b, layout.family_at(b.tensor.family), one);
    else each_element<std::uint32_t>(b, layout.family_at(b.tensor.family), one);
  }
  /// Each element is which it is, with other bits for each `version`; as it is for version 0.
  void fill(index_t version = 0) {
    for (const bound_box& b : storage.tensors().boxes())
      each_in(b, [&](auto& x, auto is) { x = of_version<decltype(is)>(is, version); });
  }
  /// How many elements of a box are none of that version.
  index_t wrong_in(const bound_box& b, index_t version = 0) const {
    index_t wrong = 0;
    each_in(b, [&](auto& x, auto is) { wrong += x == of_version<decltype(is)>(is, version) ? 0 : 1; });
    return wrong;
  }
  /// How many elements there are, if each is right; -1 if one is wrong.
  index_t right() const {
    index_t all = 0, wrong = 0;
    for (const bound_box& b : storage.tensors().boxes()) all += b.where.volume(), wrong += wrong_in(b);
    return wrong == 0 ? all : -1;
  }
  bytes_t bytes() const {
    bytes_t all = 0;
    for (const bound_box& b : storage.tensors().boxes()) all += b.bytes();
    return all;
  }
  template <typename Element>
  static Element of_version(Element is, index_t version) {
    return static_cast<Element>(is ^ (static_cast<std::uint64_t>(version) * 0x9e3779b97f4a7c15u));
  }

  computed_holding layout;
  rank_storage storage;
};

struct mover : one_member {
  mover(local_store& shared, const std::string& me, bytes_t budget = no_budget, index_t every = 5)
      : one_member(
            me,
            [budget, every](job_settings& s) {
              s.wait = std::chrono::seconds(20), s.budget = budget, s.snapshot = every;
            },
            calls_of(*this), &shared),
        door(listening_socket("127.0.0.1:0")), groups(core, door), copies(core, groups), change(core, groups, copies) {
    put(core.keys.places() + me, "127.0.0.1:" + std::to_string(door.port()) + " 127.0.0.1:1 here");
    sum = me == "a" ? 111 : 222;
  }
  static trainer_calls calls_of(mover& one) {
    trainer_calls calls;
    calls.make_group = [](const group_request&, const std::stop_token&) {};
    calls.tensors = [&one](const world& w, rank_t rank) {
      auto& made = one.arrays[w.epoch];
      made = std::make_unique<arrays_of>(one.core.settings.model, w, rank);
      return made->storage.tensors();
    };
    calls.initialize = [&one](const world& w, rank_t) { one.arrays[w.epoch]->fill(); };
    calls.entered = [](const world&, rank_t) {};
    calls.update = [&one](double scalar) { one.watcher.say("update " + std::to_string(scalar)); };
    calls.small = [&one] {
      small_state mine;
      mine.add_same("sum", std::as_bytes(std::span(&one.sum, 1)));
      return mine;
    };
    calls.take_small = [&one](const small_state& s) {
      std::memcpy(&one.came, s.bytes_of({"sum"}).data(), sizeof one.came);
    };
    return calls;
  }
  /// It is in this world, with its state.
  void begin(const world& w, index_t version) {
    change.begin(w);
    change.settle(w);
    core.epoch = core.holds = core.tried = w.epoch;
    core.version = version;
  }
  /// Right elements of a world's arrays.
  index_t right(index_t epoch) { return arrays.contains(epoch) ? arrays[epoch]->right() : 0; }

  std::uint64_t sum = 0, came = 0;
  std::map<index_t, std::unique_ptr<arrays_of>> arrays = {};
  process_door door;
  detail::world_groups groups;
  detail::snapshots copies;
  detail::world_change change;
  detail::world_change::result result = {};
};

inline world cut(index_t epoch, const member_list& members, const char* layout, index_t first_step = 10) {
  world w = world_at(epoch, members, first_step);
  w.layout = parse_degrees(layout);
  return w;
}

}  // namespace testing
