// SPDX-License-Identifier: Apache-2.0
// A plan as bytes, for another process or another day. All numbers are 64 bits, little-endian:
//   "reshplan", version 4, fingerprint of states and families, device, numbers of sends, receives, retains, creates and
//   lost, then per transfer src, dst, states, family, phase, purpose, stream and 5 x (begin, end), and last the FNV-1a
//   hash of all bytes before it.
// Builds on: base/digest.hpp, io/detail/plan_check.hpp.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <reshard/base/digest.hpp>
#include <reshard/io/detail/plan_check.hpp>

namespace reshard::io {

namespace detail {

inline constexpr std::string_view plan_magic = "reshplan";
inline constexpr std::uint64_t plan_version = 4;
inline constexpr std::size_t numbers_of_transfer = 7 + 2 * family_ndim;

inline std::uint64_t hash_of_bytes(std::span<const std::byte> bytes) {
  return fnv1a({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

class byte_writer {
 public:
  void put(std::string_view text) {
    for (const char c : text) bytes_.push_back(static_cast<std::byte>(c));
  }
  void put(std::uint64_t number) {
    for (int i = 0; i < 8; ++i) bytes_.push_back(static_cast<std::byte>(number >> (8 * i)));
  }
  void put(std::int64_t number) { put(static_cast<std::uint64_t>(number)); }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  /// The bytes, with their hash behind them.
  std::vector<std::byte> finish() {
    put(hash_of_bytes(bytes_));
    return static_cast<std::vector<std::byte>&&>(bytes_);
  }

 private:
  std::vector<std::byte> bytes_;
};

/// A number for the list of states, and the families' names and extents: a plan is read only beside the list and the
/// model that it was made of.
template <Holding H>
std::uint64_t fingerprint(const state_list& list, const H& h) {
  byte_writer all;
  const auto add_text = [&all](std::string_view text) { all.put(std::uint64_t{text.size()}), all.put(text); };
  for (int s = 0; s < list.size(); ++s) {
    add_text(list[s].name);
    add_text(name(list[s].type));
    all.put(static_cast<std::uint64_t>(list[s].level));
  }
  for (int f = 0; f < h.families(); ++f) {
    const family& tensors = h.family_at(f);
    add_text(tensors.name);
    for (const index_t extent : tensors.extent) all.put(extent);
  }
  return hash_of_bytes(all.bytes());
}

/// The 8 bytes at an offset as a number.
inline std::uint64_t number_at(std::span<const std::byte> bytes, std::size_t offset) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < 8; ++i) number |= static_cast<std::uint64_t>(bytes[offset + i]) << (8 * i);
  return number;
}

}  // namespace detail

/// A plan as bytes, which plan_from_bytes reads back beside the same switch.
template <Holding From, Holding To>
[[nodiscard]] std::vector<std::byte> to_bytes(const plan& p, const layout_switch<From, To>& change) {
  detail::byte_writer out;
  out.put(detail::plan_magic);
  out.put(detail::plan_version);
  out.put(detail::fingerprint(change.list(), change.to()));
  out.put(p.device);
  const std::vector<transfer>* lists[] = {&p.sends, &p.receives, &p.retains, &p.creates, &p.lost};
  for (const std::vector<transfer>* list : lists) out.put(std::uint64_t{list->size()});
  for (const std::vector<transfer>* list : lists)
    for (const transfer& t : *list) {
      for (const std::int64_t number : {t.src, t.dst, std::int64_t{t.states.bits()}, std::int64_t{t.family},
                                        std::int64_t{t.phase}, static_cast<std::int64_t>(t.why)})
        out.put(number);
      out.put(t.stream);
      for (const interval& i : t.where.dim) out.put(i.begin), out.put(i.end);
    }
  return out.finish();
}

/// The plan that to_bytes wrote of this switch; anything else is refused.
template <Holding From, Holding To>
[[nodiscard]] plan plan_from_bytes(std::span<const std::byte> bytes, const layout_switch<From, To>& change) {
  constexpr std::size_t lists_of_plan = 5, header = (4 + lists_of_plan) * 8, closing = 8;
  if (bytes.size() < header + closing) refuse("plan from bytes: ", bytes.size(), " bytes are too few");
  for (std::size_t i = 0; i < 8; ++i)
    if (static_cast<char>(bytes[i]) != detail::plan_magic[i])
      refuse("plan from bytes: these do not begin as a plan does");
  const auto number = [&](std::size_t i) { return detail::number_at(bytes, 8 * i); };
  if (number(1) != detail::plan_version)
    refuse("plan from bytes: version ", number(1), "; version ", detail::plan_version, " is read here");
  if (detail::number_at(bytes, bytes.size() - closing) != detail::hash_of_bytes(bytes.first(bytes.size() - closing)))
    refuse("plan from bytes: some of them were changed");
  if (number(2) != detail::fingerprint(change.list(), change.to()))
    refuse("plan from bytes: the plan is of another model or list of states");
  plan p;
  p.device = static_cast<rank_t>(number(3));
  std::size_t at = header / 8;
  const std::uint64_t most = (bytes.size() - header - closing) / (8 * detail::numbers_of_transfer);
  std::uint64_t listed = 0;
  for (std::size_t i = 4; i < 4 + lists_of_plan; ++i) listed = number(i) > most ? most + 1 : listed + number(i);
  if (bytes.size() != header + closing + 8 * detail::numbers_of_transfer * static_cast<std::size_t>(listed))
    refuse("plan from bytes: ", bytes.size(), " bytes are not what its lists need");
  std::vector<transfer>* lists[] = {&p.sends, &p.receives, &p.retains, &p.creates, &p.lost};
  constexpr std::string_view names[] = {"sends", "receives", "retains", "creates", "lost"};
  for (std::size_t i = 0; i < lists_of_plan; ++i)
    for (std::uint64_t n = number(4 + i); n > 0; --n) {
      if ((number(at + 2) | number(at + 3)) >> 31 != 0)
        refuse("plan from bytes: no states or family have such a number");
      const state_set states = change.states().masked(static_cast<std::uint32_t>(number(at + 2)));
      if (states.bits() != number(at + 2))
        refuse("plan from bytes: ", names[i], "[", lists[i]->size(), "] has states that the switch does not move");
      if (number(at + 4) > static_cast<std::uint64_t>(most_phases) || number(at + 5) > 1)
        refuse("plan from bytes: no phase or purpose has such a number");
      transfer t{static_cast<rank_t>(number(at)),
                 static_cast<rank_t>(number(at + 1)),
                 states,
                 static_cast<int>(number(at + 3)),
                 {},
                 static_cast<int>(number(at + 4)),
                 static_cast<purpose>(number(at + 5)),
                 number(at + 6)};
      at += 7;
      for (interval& side : t.where.dim) {
        side = {static_cast<index_t>(number(at)), static_cast<index_t>(number(at + 1))};
        at += 2;
      }
      lists[i]->push_back(t);
    }
  require_plan_of(change, p, "plan from bytes");
  return p;
}

}  // namespace reshard::io
