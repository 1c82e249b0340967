// SPDX-License-Identifier: Apache-2.0
// What a device has beside its tensors: named blobs, few and short, such as the number of a step, a scheduler's values,
// the random generator of every rank.
// Builds on: base/integer.hpp.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <reshard/base/integer.hpp>

namespace reshard {

/// 1 MiB: the most that a device's small state has, names and keys counted.
inline constexpr bytes_t most_small_bytes = bytes_t{1} << 20;
/// 255: the longest that a blob's name or key may be.
inline constexpr bytes_t most_blob_name_bytes = 255;

/// What a blob is called. Without a key its rule is `same`: one value, the same on all devices. With a key its rule is
/// `per_rank`: the value of the rank that the key names, in words of the caller's.
struct blob_id {
  std::string name;
  std::string key = {};

  bool same() const { return key.empty(); }
  /// step, or rng[tp=1,pp=0]
  std::string text() const { return same() ? name : name + '[' + key + ']'; }
  bytes_t bytes() const { return static_cast<bytes_t>(name.size() + key.size()); }

  friend constexpr bool operator==(const blob_id&, const blob_id&) = default;
  friend constexpr auto operator<=>(const blob_id&, const blob_id&) = default;
};

/// Refuses a blob without a name, and a name or a key that is too long.
inline void require_legal(const blob_id& id) {
  if (id.name.empty()) refuse("a blob of small state has no name", id.same() ? "" : ", and the key ", id.key);
  const auto longest = static_cast<bytes_t>(std::max(id.name.size(), id.key.size()));
  if (longest > most_blob_name_bytes)
    refuse("a blob of small state has a name or a key of ", longest, " bytes; at most ", most_blob_name_bytes,
           " are legal: ", id.name.substr(0, 32), "..");
}

/// Named bytes.
struct blob {
  blob_id id;
  std::vector<std::byte> bytes;

  /// size(name) + size(key) + size(bytes): what counts against most_small_bytes.
  bytes_t counted() const { return id.bytes() + static_cast<bytes_t>(bytes.size()); }

  friend constexpr bool operator==(const blob&, const blob&) = default;
};

/// A device's blobs, ascending by name and key; no two are called the same, and a name has one rule.
class small_state {
 public:
  /// A value that is the same on all devices. It is copied.
  void add_same(std::string name, std::span<const std::byte> bytes) {
    add({{std::move(name)}, {bytes.begin(), bytes.end()}});
  }
  /// The value of the rank that `key` names.
  void add_per_rank(std::string name, std::string key, std::span<const std::byte> bytes) {
    if (key.empty()) refuse("small state ", name, " is per rank, and has no key that says whose it is");
    add({{std::move(name), std::move(key)}, {bytes.begin(), bytes.end()}});
  }
  /// Adds a blob under the rule that its key says; what is refused changes nothing.
  void add(blob b) {
    require_legal(b.id);
    const auto at = std::lower_bound(blobs_.begin(), blobs_.end(), b.id, before);
    if (at != blobs_.end() && at->id == b.id) refuse("small state ", b.id.text(), " is there twice");
    for (const auto near : {at, at == blobs_.begin() ? blobs_.end() : at - 1})
      if (near != blobs_.end() && near->id.name == b.id.name && near->id.same() != b.id.same())
        refuse("small state ", b.id.name, " is both the same on all devices and per rank; a name has one rule");
    const bytes_t after = counted_ + b.counted();
    if (after > most_small_bytes)
      refuse("small state has ", after, " bytes with ", b.id.text(), "; at most ", most_small_bytes,
             " a device are legal, names and keys counted");
    counted_ = after;
    blobs_.insert(at, std::move(b));
  }

  /// Whether there is such a blob.
  bool has(const blob_id& id) const { return find(id) != nullptr; }
  /// Its bytes; refused where there is none.
  const std::vector<std::byte>& bytes_of(const blob_id& id) const {
    const blob* const found = find(id);
    if (found == nullptr) refuse("there is no small state ", id.text(), " among ", blobs_.size(), " blobs");
    return found->bytes;
  }
  const std::vector<blob>& blobs() const { return blobs_; }
  /// sum of counted()
  bytes_t counted() const { return counted_; }

  friend constexpr bool operator==(const small_state&, const small_state&) = default;

 private:
  static bool before(const blob& b, const blob_id& id) { return b.id < id; }
  const blob* find(const blob_id& id) const {
    const auto at = std::lower_bound(blobs_.begin(), blobs_.end(), id, before);
    return at != blobs_.end() && at->id == id ? &*at : nullptr;
  }

  std::vector<blob> blobs_;
  bytes_t counted_ = 0;
};

}  // namespace reshard
