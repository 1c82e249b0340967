// SPDX-License-Identifier: Apache-2.0
// What a device says of its small state, as text that the others read: numbers of 8 bytes, and words with their length
// before them; and the hash of a blob's bytes.
// Builds on: job/detail/small_state_routes.hpp, base/digest.hpp.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reshard/base/digest.hpp>
#include <reshard/job/detail/small_state_routes.hpp>

namespace reshard::detail {

/// The digest of the words of 8 bytes, the last one filled up with zeros: of bytes that are as long.
inline std::uint64_t hash_of(std::span<const std::byte> bytes) {
  digest of;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::int64_t)) {
    std::int64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
    of.add(word);
  }
  return of.value();
}

/// Writes a directory.
class directory_writer {
 public:
  static std::string text(const small_state& mine, const std::vector<blob_id>& wanted) {
    directory_writer w;
    w.number(static_cast<std::int64_t>(mine.blobs().size()));
    for (const blob& b : mine.blobs()) {
      w.add(b.id);
      w.number(static_cast<std::int64_t>(b.bytes.size()));
      w.number(static_cast<std::int64_t>(hash_of(b.bytes)));
    }
    w.number(static_cast<std::int64_t>(wanted.size()));
    for (const blob_id& id : wanted) w.add(id);
    return std::move(w.text_);
  }

 private:
  void number(std::int64_t n) { text_.append(reinterpret_cast<const char*>(&n), sizeof n); }
  void word(const std::string& w) {
    number(static_cast<std::int64_t>(w.size()));
    text_ += w;
  }
  void add(const blob_id& id) { word(id.name), word(id.key); }

  std::string text_;
};

/// Reads a directory.
class directory_reader {
 public:
  /// What device d says; nothing where it takes no part.
  static blob_directory directory(std::size_t d, const std::string& text) {
    if (text.empty()) return {.takes_part = false};
    directory_reader r{d, text};
    blob_directory all;
    for (std::int64_t left = r.number(); left != 0; --left) {
      blob_entry e{r.id()};
      e.bytes = r.number();
      e.hash = static_cast<std::uint64_t>(r.number());
      if (e.bytes < 0 || e.bytes > most_small_bytes) r.refuse_build();
      all.has.push_back(std::move(e));
    }
    for (std::int64_t left = r.number(); left != 0; --left) all.wants.push_back(r.id());
    if (!r.rest_.empty()) r.refuse_build();
    return all;
  }

 private:
  directory_reader(std::size_t device, std::string_view text) : device_(device), rest_(text) {}

  [[noreturn]] void refuse_build() const {
    refuse("device ", device_, " says of small state what no device of this build of the library says");
  }
  std::string_view take(std::uint64_t bytes) {
    if (bytes > rest_.size()) refuse_build();
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }
  std::int64_t number() {
    std::int64_t n = 0;
    std::memcpy(&n, take(sizeof n).data(), sizeof n);
    return n;
  }
  std::string word() { return std::string(take(static_cast<std::uint64_t>(number()))); }
  blob_id id() {
    std::string name = word();
    return {std::move(name), word()};
  }

  std::size_t device_;
  std::string_view rest_;
};

}  // namespace reshard::detail
