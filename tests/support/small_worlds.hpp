// SPDX-License-Identifier: Apache-2.0
// Worlds of small state, thrown by dice, some of them with a fault; and what every device shall have afterwards, or
// what shall be refused, found by looking at everything.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <reshard/job/small_state.hpp>

#include "dice.hpp"

namespace testing {

/// What every device has and asks for; a device that is absent does neither.
struct small_world {
  struct device {
    bool absent = false;
    std::map<std::pair<std::string, std::string>, std::vector<std::byte>> has;  // by name and key
    std::vector<std::pair<std::string, std::string>> wants;
  };
  std::vector<device> devices;

  reshard::small_state has(std::size_t d) const {
    reshard::small_state result;
    for (const auto& [id, bytes] : devices[d].has) result.add({{id.first, id.second}, bytes});
    return result;
  }
  std::vector<reshard::blob_id> wants(std::size_t d) const {
    std::vector<reshard::blob_id> result;
    for (const auto& [name, key] : devices[d].wants) result.push_back({name, key});
    return result;
  }
};

/// What a world comes to: every device's blobs, or the words that a refusal shall have.
struct small_outcome {
  std::vector<std::map<std::pair<std::string, std::string>, std::vector<std::byte>>> after;
  std::vector<std::string> refusal_words;

  bool refused() const { return !refusal_words.empty(); }
};

/// What the dice threw, counted, so that a test can say what it has met.
struct small_features {
  long worlds = 0, absent = 0, moved = 0, kept = 0, per_rank = 0, empty = 0, large = 0;
  long differs = 0, rules = 0, missing = 0, of_same = 0, too_much = 0;
};

/// Some words in the place of bytes.
inline std::vector<std::byte> some_bytes(dice& random, std::int64_t size) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(size));
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.below(256));
  return bytes;
}

/// A legal world, or one with a fault. `large`: the longest that a blob is, at times.
inline small_world next_small_world(dice& random, std::int64_t devices, bool some_absent, std::int64_t large) {
  small_world world;
  world.devices.resize(static_cast<std::size_t>(devices));
  if (some_absent && devices > 1 && random.below(3) == 0)
    world.devices[static_cast<std::size_t>(random.below(devices))].absent = true;
  std::vector<std::size_t> living;
  for (std::size_t d = 0; d < world.devices.size(); ++d)
    if (!world.devices[d].absent) living.push_back(d);
  const auto some_device = [&]() -> small_world::device& {
    return world.devices[living[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(living.size())))]];
  };
  const auto size = [&] { return random.below(8) == 0 ? random.below(large + 1) : random.below(40); };
  const std::int64_t names = random.below(5);
  for (std::int64_t n = 0; n < names; ++n) {
    const std::string name = std::string(1, static_cast<char>('a' + n)) + (random.coin() ? "" : "_of_a_longer_name");
    const std::int64_t keys = random.coin() ? 0 : random.within(1, 4);
    for (std::int64_t k = 0; k < std::max<std::int64_t>(1, keys); ++k) {
      const std::string key = keys == 0 ? "" : "tp=" + std::to_string(k);
      const std::vector<std::byte> bytes = some_bytes(random, size());
      some_device().has[{name, key}] = bytes;
      for (const std::size_t d : living)
        if (random.below(3) == 0) world.devices[d].has[{name, key}] = bytes;
      for (const std::size_t d : living)
        if (keys > 0 && random.coin()) world.devices[d].wants.emplace_back(name, key);
      if (keys > 0 && random.below(6) == 0 && !world.devices[living[0]].wants.empty())  // asked for twice
        world.devices[living[0]].wants.push_back(world.devices[living[0]].wants.front());
    }
  }
  for (const std::size_t d : living)
    if (random.coin()) std::reverse(world.devices[d].wants.begin(), world.devices[d].wants.end());
  if (random.below(3) != 0) return world;
  small_world::device& odd = some_device();  // has a fault, perhaps
  switch (random.below(5)) {
    case 0:
      for (auto& [id, bytes] : odd.has) {
        if (random.coin() && !bytes.empty()) bytes.back() ^= std::byte{1};
        else bytes.push_back(std::byte{0});
        break;
      }
      break;
    case 1:  // another rule for what somebody else has
      for (const auto& other : world.devices)
        for (const auto& [id, bytes] : other.has) {
          bool mine = false;
          for (const auto& [own, b] : odd.has) mine = mine || own.first == id.first;
          if (!mine) odd.has[{id.first, id.second.empty() ? "tp=9" : ""}] = {};
        }
      break;
    case 2: odd.wants.emplace_back(random.coin() ? "a" : "nobody's", "tp=7"); break;
    case 3:
      for (const auto& other : world.devices)
        for (const auto& [id, bytes] : other.has)
          if (id.second.empty()) odd.wants.emplace_back(id.first, "tp=0");
      break;
    default:  // more than a device may have, from devices that each have less
      for (std::size_t i = 0; i < living.size(); ++i)
        if (world.devices[living[i]].has.empty())
          world.devices[living[i]].has[{"z" + std::to_string(i), ""}] = some_bytes(random, (1 << 19) + 4096);
  }
  return world;
}

/// By the words of the contract, one after another, over everything there is.
inline small_outcome outcome_of(const small_world& world, small_features& met) {
  using id_of = std::pair<std::string, std::string>;
  const auto text = [](const id_of& id) { return id.second.empty() ? id.first : id.first + "[" + id.second + "]"; };
  const auto device = [](std::size_t d) { return "device " + std::to_string(d) + " "; };
  ++met.worlds;
  std::map<id_of, std::vector<std::size_t>> holders;
  for (std::size_t d = 0; d < world.devices.size(); ++d) {
    met.absent += world.devices[d].absent ? 1 : 0;
    for (const auto& [id, bytes] : world.devices[d].has) holders[id].push_back(d);
  }
  for (const auto& [id, who] : holders)
    for (const std::size_t d : who)
      if (world.devices[d].has.at(id) != world.devices[who[0]].has.at(id)) {
        ++met.differs;
        const auto bytes = [&, &one = id](std::size_t of) {
          return std::to_string(world.devices[of].has.at(one).size());
        };
        return {{},
                {"small state " + text(id) + " differs: ", device(who[0]) + "has " + bytes(who[0]) + " bytes",
                 device(d) + "has " + bytes(d) + " bytes"}};
      }
  for (const auto& [id, who] : holders)
    for (const auto& [other, whose] : holders)
      if (id.second.empty() && !other.second.empty() && id.first == other.first) {
        ++met.rules;
        return {
            {},
            {"small state " + id.first + " is the same on all devices for device " + std::to_string(who[0]) +
             ", and per rank (" + other.second + ") for device " + std::to_string(whose[0]) + "; a name has one rule"}};
      }
  for (std::size_t d = 0; d < world.devices.size(); ++d)
    for (const id_of& id : std::set<id_of>(world.devices[d].wants.begin(), world.devices[d].wants.end())) {
      if (holders.count(id) > 0) continue;
      const bool same = holders.count({id.first, ""}) > 0;
      ++(same ? met.of_same : met.missing);
      std::vector<std::string> keys;
      for (const auto& [other, whose] : holders)
        if (other.first == id.first) keys.push_back(other.second);
      const std::string asks = device(d) + "asks for small state " + text(id);
      if (same) return {{}, {asks + ", and " + id.first + " is the same on all devices"}};
      if (keys.empty()) return {{}, {asks + ", and no device has any " + id.first}};
      return {{},
              {asks + ", which no device has; there are " + std::to_string(keys.size()) + " keys, the first of them " +
               *std::min_element(keys.begin(), keys.end())}};
    }
  small_outcome result;
  result.after.resize(world.devices.size());
  for (std::size_t d = 0; d < world.devices.size(); ++d) {
    if (world.devices[d].absent) continue;
    std::size_t counted = 0;
    for (const auto& [id, who] : holders) {
      bool shall = id.second.empty();
      for (const id_of& wanted : world.devices[d].wants) shall = shall || wanted == id;
      if (!shall) continue;
      const std::vector<std::byte>& bytes = world.devices[who[0]].has.at(id);
      result.after[d][id] = bytes;
      counted += id.first.size() + id.second.size() + bytes.size();
      ++(world.devices[d].has.count(id) > 0 ? met.kept : met.moved);
      met.per_rank += id.second.empty() ? 0 : 1;
      met.empty += bytes.empty() ? 1 : 0;
      met.large += bytes.size() > 16384 ? 1 : 0;
    }
    if (counted > 1048576) {
      ++met.too_much;
      return {{},
              {device(d) + "would have " + std::to_string(counted) +
               " bytes of small state; at most 1048576 a device are legal, names and keys counted"}};
    }
  }
  return result;
}

}  // namespace testing
