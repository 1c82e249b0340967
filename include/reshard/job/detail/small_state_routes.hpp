// SPDX-License-Identifier: Apache-2.0
// Who sends which blob of small state to whom, from what every device says that it has and asks for: one function of
// plain data, so that all devices that hear the same derive the same, refusals included.
// Builds on: job/small_state.hpp, base/sink.hpp.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <reshard/base/sink.hpp>
#include <reshard/job/small_state.hpp>

namespace reshard {

/// What a device says of a blob that it has: what it is called, how long it is, and a hash of its bytes.
struct blob_entry {
  blob_id id;
  bytes_t bytes = 0;
  std::uint64_t hash = 0;

  bytes_t counted() const { return id.bytes() + bytes; }

  friend constexpr bool operator==(const blob_entry&, const blob_entry&) = default;
};

/// What a device says of itself: the blobs that it has, and those of ranks that it asks for. One that takes no part
/// neither has nor gets any.
struct blob_directory {
  bool takes_part = true;
  std::vector<blob_entry> has = {};
  std::vector<blob_id> wants = {};
};

/// A blob's way: from a device that has it to those that shall have it and do not, ascending; there may be none of
/// these.
struct blob_route {
  blob_entry what;
  rank_t src = 0;
  std::vector<rank_t> dst = {};

  friend constexpr bool operator==(const blob_route&, const blob_route&) = default;
};

namespace detail {

/// Calls something at every so manieth draw.
class now_and_then {
 public:
  explicit now_and_then(const sink<>& what) : what_(&what) {}
  void draw() {
    if (++drawn_ % 1024 == 0) (*what_)();
  }

 private:
  const sink<>* what_;
  index_t drawn_ = 0;
};

/// Who has one blob, ascending, and each one's entry.
using blob_holders = std::map<rank_t, blob_entry>;
using blobs_of_all = std::map<blob_id, blob_holders>;

/// Refuses where two devices have differing bytes under one name, and names both.
inline void require_equal(const blob_holders& holders) {
  const rank_t first = holders.begin()->first;
  const blob_entry& value = holders.begin()->second;
  const auto agree = std::count_if(holders.begin(), holders.end(), [&](const auto& h) { return h.second == value; });
  for (const auto& [device, other] : holders)
    if (other != value)
      refuse("small state ", value.id.text(), " differs: device ", first, " has ", value.bytes, " bytes of hash ",
             value.hash, ", device ", device, " has ", other.bytes, " bytes of hash ", other.hash, "; ", agree, " of ",
             holders.size(), " that have it agree with device ", first);
}

/// Refuses where a name is the same on all devices for one of them, and per rank for another.
inline void require_one_rule(const blobs_of_all& all) {
  for (auto at = all.begin(); at != all.end(); ++at) {
    const auto next = std::next(at);  // keys come behind none
    if (next != all.end() && at->first.same() && next->first.name == at->first.name)
      refuse("small state ", at->first.name, " is the same on all devices for device ", at->second.begin()->first,
             ", and per rank (", next->first.key, ") for device ", next->second.begin()->first,
             "; a name has one rule");
  }
}

/// Refuses what a device asks for and nobody has.
inline void require_there(const blobs_of_all& all, rank_t device, const blob_id& wanted) {
  if (all.contains(wanted)) return;
  index_t keys = 0;
  const blob_id* first = nullptr;
  for (auto at = all.lower_bound({wanted.name}); at != all.end() && at->first.name == wanted.name; ++at, ++keys)
    if (first == nullptr) first = &at->first;
  if (first == nullptr)
    refuse("device ", device, " asks for small state ", wanted.text(), ", and no device has any ", wanted.name);
  if (first->same())
    refuse("device ", device, " asks for small state ", wanted.text(), ", and ", wanted.name,
           " is the same on all devices");
  refuse("device ", device, " asks for small state ", wanted.text(), ", which no device has; there are ", keys,
         " keys, the first of them ", first->key);
}

/// What small_state_routes returns; `at_times` is called again and again meanwhile.
inline std::vector<blob_route> routes_of(const std::vector<blob_directory>& of_device, const sink<>& at_times) {
  blobs_of_all all;
  std::vector<rank_t> taking_part;
  now_and_then breath(at_times);
  for (std::size_t d = 0; d < of_device.size(); ++d) {
    for (const blob_entry& e : of_device[d].has) breath.draw(), all[e.id].emplace(static_cast<rank_t>(d), e);
    if (of_device[d].takes_part) taking_part.push_back(static_cast<rank_t>(d));
  }
  for (const auto& [id, holders] : all) breath.draw(), require_equal(holders);
  require_one_rule(all);
  std::map<blob_id, std::set<rank_t>> wanted;
  for (const rank_t d : taking_part) {
    const std::vector<blob_id>& wants = of_device[static_cast<std::size_t>(d)].wants;
    for (const blob_id& id : std::set<blob_id>(wants.begin(), wants.end())) {
      breath.draw();
      require_there(all, d, id);
      wanted[id].insert(d);
    }
  }
  std::vector<blob_route> routes;
  std::vector<bytes_t> after(of_device.size(), 0);
  for (const auto& [id, holders] : all) {
    breath.draw();
    if (!id.same() && !wanted.contains(id)) continue;
    routes.push_back({holders.begin()->second, holders.begin()->first});
    const auto shall_have = [&, &who = holders](rank_t d) {
      after[static_cast<std::size_t>(d)] += routes.back().what.counted();
      if (!who.contains(d)) routes.back().dst.push_back(d);
    };
    if (id.same()) std::for_each(taking_part.begin(), taking_part.end(), shall_have);
    else std::for_each(wanted[id].begin(), wanted[id].end(), shall_have);
  }
  for (const rank_t d : taking_part)
    if (const bytes_t bytes = after[static_cast<std::size_t>(d)]; bytes > most_small_bytes)
      refuse("device ", d, " would have ", bytes, " bytes of small state; at most ", most_small_bytes,
             " a device are legal, names and keys counted");
  return routes;
}

}  // namespace detail

/// { b : b is per rank, some device has it, and no device that takes part asks for it }, ascending: what is on no
/// device afterwards.
[[nodiscard]] inline std::vector<blob_id> unasked_blobs(const std::vector<blob_directory>& of_device) {
  std::set<blob_id> left;
  for (const blob_directory& d : of_device)
    for (const blob_entry& e : d.has)
      if (!e.id.same()) left.insert(e.id);
  for (const blob_directory& d : of_device)
    for (const blob_id& id : d.wants)
      if (d.takes_part) left.erase(id);
  return {left.begin(), left.end()};
}

/// For every blob b that is the same on all devices or that some device asks for, ascending:
///   src(b) = min { d : d has b },  dst(b) = { d : d takes part, b is the same on all or d asks for it, d has not b }.
/// `of_device` says so of every device. Refused, with both devices: differing bytes under one name, a name of two
/// rules; with the device: what it asks for and nobody has, and more than most_small_bytes for it.
[[nodiscard]] inline std::vector<blob_route> small_state_routes(const std::vector<blob_directory>& of_device) {
  return detail::routes_of(of_device, detail::sink<>::of([] {}));
}

}  // namespace reshard
