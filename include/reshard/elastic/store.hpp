// SPDX-License-Identifier: Apache-2.0
// What a job needs of a store: one order of all changes, a swap that fails where somebody was faster, leases that take
// keys along when their holder is silent, and the changes since a revision. The store orders worlds; it is not asked
// while nothing changes.
// Builds on: base/integer.hpp, base/patience.hpp.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <reshard/base/integer.hpp>
#include <reshard/base/patience.hpp>

namespace reshard {

/// A key, its value, and the revision of its last change. Revisions are of the whole store, and rise with each change;
/// keys that go with one lease may go in one revision, and are then told together.
struct stored {
  std::string key, value;
  std::uint64_t revision = 0;

  friend bool operator==(const stored&, const stored&) = default;
};

/// All keys with a prefix, ascending, as they were at a revision.
struct stored_list {
  std::vector<stored> all;
  std::uint64_t revision = 0;
};

/// A key was written, or went: then its value is empty.
struct store_change {
  stored now;
  bool removed = false;

  friend bool operator==(const store_change&, const store_change&) = default;
};

/// What changed under a prefix, in order, up to a revision. Where the store has forgotten what followed the revision
/// that was asked from, `anew` says so, and the changes are all keys that there are.
struct store_news {
  std::vector<store_change> changes;
  std::uint64_t revision = 0;
  bool anew = false;
};

/// A lease, by number.
using lease_id = std::int64_t;
/// The lease of a key that stays.
inline constexpr lease_id no_lease = 0;
/// The expected revision of a key that is not there.
inline constexpr std::uint64_t no_revision = 0;

/// The store did not answer, or not in time. Nothing is known of what was asked: a swap may have been made, and may
/// still be, until the key's revision is another than was expected. Said again it is made once at most, since no two
/// values of a key have one revision; a value that names its writer tells by whom. Where `no_revision` was expected
/// that holds as long as nobody removes the key.
class store_unreachable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// For a store s that several threads may ask at the same time; all throw store_unreachable where it does not answer:
///   s.read(key)                          the key, or nothing;
///   s.list(prefix)                       all keys with the prefix;
///   s.swap(key, value, expected, lease)  writes it iff its revision is `expected`, or none is where it is 0; the
///                                        key's new revision, or 0 where it was another or the lease is over. The key
///                                        goes with the lease, and no longer with the one that it had before;
///   s.remove(key, expected)              removes it iff its revision is `expected`; whether it did;
///   s.lease(ttl)                         a lease that ends where it is not renewed within the time;
///   s.renew(lease)                       whether it still is;
///   s.revoke(lease)                      ends it, and its keys go;
///   s.changes(prefix, after, wait)       what changed after that revision; waits at most so long for the first change.
template <typename S>
concept Store = requires(S& s, const std::string& text, std::uint64_t revision, lease_id lease, patience time) {
  { s.read(text) } -> std::same_as<std::optional<stored>>;
  { s.list(text) } -> std::same_as<stored_list>;
  { s.swap(text, text, revision, lease) } -> std::same_as<std::uint64_t>;
  { s.remove(text, revision) } -> std::same_as<bool>;
  { s.lease(time) } -> std::same_as<lease_id>;
  { s.renew(lease) } -> std::same_as<bool>;
  { s.revoke(lease) } -> std::same_as<void>;
  { s.changes(text, revision, time) } -> std::same_as<store_news>;
};

/// Any store by reference, so that what runs a job is compiled once.
class any_store {
 public:
  template <Store S>
    requires(!std::same_as<S, any_store>)  // a copy refers to the store that the other does
  explicit any_store(S& store) : store_(&store), calls_(&calls_of<S>) {}

  std::optional<stored> read(const std::string& key) const { return calls_->read(store_, key); }
  stored_list list(const std::string& prefix) const { return calls_->list(store_, prefix); }
  std::uint64_t swap(const std::string& key, const std::string& value, std::uint64_t expected,
                     lease_id lease = no_lease) const {
    return calls_->swap(store_, key, value, expected, lease);
  }
  bool remove(const std::string& key, std::uint64_t expected) const { return calls_->remove(store_, key, expected); }
  lease_id lease(patience time) const { return calls_->lease(store_, time); }
  bool renew(lease_id lease) const { return calls_->renew(store_, lease); }
  void revoke(lease_id lease) const { calls_->revoke(store_, lease); }
  store_news changes(const std::string& prefix, std::uint64_t after, patience wait) const {
    return calls_->changes(store_, prefix, after, wait);
  }

 private:
  struct calls {
    std::optional<stored> (*read)(void*, const std::string&);
    stored_list (*list)(void*, const std::string&);
    std::uint64_t (*swap)(void*, const std::string&, const std::string&, std::uint64_t, lease_id);
    bool (*remove)(void*, const std::string&, std::uint64_t);
    lease_id (*lease)(void*, patience);
    bool (*renew)(void*, lease_id);
    void (*revoke)(void*, lease_id);
    store_news (*changes)(void*, const std::string&, std::uint64_t, patience);
  };
  template <typename S>
  static constexpr calls calls_of = {
      [](void* s, const std::string& key) { return static_cast<S*>(s)->read(key); },
      [](void* s, const std::string& prefix) { return static_cast<S*>(s)->list(prefix); },
      [](void* s, const std::string& key, const std::string& value, std::uint64_t expected, lease_id lease) {
        return static_cast<S*>(s)->swap(key, value, expected, lease);
      },
      [](void* s, const std::string& key, std::uint64_t expected) { return static_cast<S*>(s)->remove(key, expected); },
      [](void* s, patience time) { return static_cast<S*>(s)->lease(time); },
      [](void* s, lease_id lease) { return static_cast<S*>(s)->renew(lease); },
      [](void* s, lease_id lease) { static_cast<S*>(s)->revoke(lease); },
      [](void* s, const std::string& prefix, std::uint64_t after, patience wait) {
        return static_cast<S*>(s)->changes(prefix, after, wait);
      }};

  void* store_;
  const calls* calls_;
};

}  // namespace reshard
