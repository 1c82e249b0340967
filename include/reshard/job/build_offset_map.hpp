// SPDX-License-Identifier: Apache-2.0
// Builds the offset map of a file by one pass over it. What was done lies in MAP.part: who is stopped goes on from
// there, unless the file was written since.
// Builds on: job/offset_map.hpp, job/detail/delimiter_scan.hpp.
#pragma once

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <vector>

#include <reshard/job/detail/delimiter_scan.hpp>
#include <reshard/job/offset_map.hpp>

namespace reshard {

/// A map in the making. Each `advance()` goes through `stretch` bytes more and makes that last; who begins again with
/// the same files, after a crash too, goes on behind it. The map has its name once it is whole.
class offset_map_builder {
 public:
  static constexpr bytes_t stretch = bytes_t{64} << 20;

  offset_map_builder(const std::string& source, const std::string& map, const document_form& form = {})
      : scan_(form), source_name_(source), map_name_(map), width_(form.width), source_(source, O_RDONLY),
        part_(part_of_map(), O_RDWR | O_CREAT), buffer_(new page_of_file) {
    head_.source_bytes = source_.bytes();
    head_.width_and_delimiter = detail::offset_map_head::form_of(form);
    if (!go_on()) write_head();
  }

  /// Bytes of the source that are done.
  bytes_t scanned() const { return head_.scanned; }

  /// Goes on; false once the map is whole.
  bool advance() {
    if (done_) return false;
    const bytes_t until = std::min(head_.scanned + stretch, head_.source_bytes);
    while (head_.scanned < until) read_some(until);
    const bool whole = head_.scanned == head_.source_bytes;
    const index_t tokens = head_.source_bytes / width_;
    if (whole && head_.tokens < tokens) add(tokens);  // a last one without delimiter: each token read has room
    write_ends();
    if (whole) {
      const char behind[detail::bytes_behind_ends] = {};
      write(behind, sizeof behind, written_);
    }
    write_head();
    if (!whole) return true;
    if (::fsync(part_.number()) != 0 || ::rename((map_name_ + ".part").c_str(), map_name_.c_str()) != 0)
      refuse(map_name_, " cannot be written: ", std::strerror(errno));
    done_ = true;
    return false;
  }

 private:
  /// The name of what is not whole, once it is sure that there is a map to build: the source stays as it is.
  std::string part_of_map() const {
    if (source_.bytes() % width_ != 0)
      refuse(source_name_, " has ", source_.bytes(), " bytes, which are no whole number of tokens of ", width_);
    if (source_.bytes() / width_ > detail::most_tokens)
      refuse(source_name_, " has ", source_.bytes() / width_, " tokens; an offset map takes ", detail::most_tokens);
    for (const std::string& written : {map_name_, map_name_ + ".part"})
      if (source_.is_at(written))
        refuse(source_name_, " is ", written, " itself, which the map would take the place of; name the map otherwise");
    return map_name_ + ".part";
  }

  static constexpr std::size_t buffer_bytes = std::size_t{1} << 17;  // a multiple of every width; a cache holds it
  struct alignas(4096) page_of_file {                                // the kernel copies faster to where pages begin
    std::byte bytes[buffer_bytes];
  };

  void read_some(bytes_t until) {
    const auto wanted = static_cast<std::size_t>(std::min(static_cast<bytes_t>(buffer_bytes), until - head_.scanned));
    std::size_t got = 0;
    while (got < wanted) {
      const ssize_t more =
          ::pread(source_.number(), buffer_->bytes + got, wanted - got, head_.scanned + static_cast<off_t>(got));
      if (more < 0 && errno == EINTR) continue;
      if (more < 0) refuse(source_name_, " cannot be read: ", std::strerror(errno));
      if (more == 0)
        refuse(source_name_, " ends at byte ", head_.scanned + static_cast<bytes_t>(got), "; it had ",
               head_.source_bytes, " when its map was begun");
      got += static_cast<std::size_t>(more);
    }
    const index_t first = head_.scanned / width_;
    const std::size_t tokens = wanted / static_cast<std::size_t>(width_);
    make_room(tokens);
    scan_.each(buffer_->bytes, tokens,
               [&](const std::uint32_t* places, std::size_t found) { add(first + 1, places, found); });
    head_.scanned += static_cast<bytes_t>(wanted);
  }
  /// Room for so many ends more, and for the two bytes that are written behind the last.
  void make_room(std::size_t more) {
    if (used_ > (std::size_t{4} << 20)) write_ends();
    const std::size_t needed = used_ + more * static_cast<std::size_t>(detail::bytes_of_end) + 2;
    if (ends_.size() < needed) ends_.resize(needed);
  }
  void add(index_t end) {
    const std::uint32_t at_once = 0;
    add(end, &at_once, 1);
  }
  /// Ends at first + places[i], i < found, for which there is room. Nothing of this object is touched in between: the
  /// compiler cannot know that bytes of ends are no bytes of it.
  void add(index_t first, const std::uint32_t* places, std::size_t found) {
    std::byte* to = ends_.data() + used_;
    std::uint64_t sum = head_.ends_sum, d = static_cast<std::uint64_t>(head_.documents);
    for (std::size_t i = 0; i < found; ++i, to += detail::bytes_of_end) {
      const std::uint64_t word = static_cast<std::uint64_t>(first) + places[i];
      std::memcpy(to, &word, sizeof word);
      sum += mix_word(word, d++);
    }
    used_ += found * static_cast<std::size_t>(detail::bytes_of_end);
    head_.ends_sum = sum;
    head_.tokens = first + places[found - 1];
    head_.documents += static_cast<index_t>(found);
  }
  void write(const void* from, std::size_t bytes, bytes_t at) {
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t more =
          ::pwrite(part_.number(), static_cast<const char*>(from) + done, bytes - done, at + static_cast<off_t>(done));
      if (more < 0 && errno == EINTR) continue;
      if (more <= 0) refuse(map_name_, ".part cannot be written: ", std::strerror(errno));
      done += static_cast<std::size_t>(more);
    }
  }
  /// Ends first, then the head that counts them.
  void write_ends() {
    write(ends_.data(), used_, written_);
    written_ += static_cast<bytes_t>(used_);
    used_ = 0;
  }
  void write_head() {
    head_.head_sum = head_.sum();
    write(&head_, sizeof head_, 0);
  }
  /// Whether MAP.part is of this source, and whole as far as its head says; else it begins anew.
  bool go_on() {
    const std::optional<detail::offset_map_head> there = whole_part();
    if (!there || source_.written() > part_.written()) return ::ftruncate(part_.number(), 0), false;
    head_ = *there;
    written_ = 64 + head_.documents * detail::bytes_of_end;
    return ::ftruncate(part_.number(), written_) == 0;
  }
  std::optional<detail::offset_map_head> whole_part() const {
    const detail::mapped_file old(map_name_ + ".part");
    detail::offset_map_head there;
    if (old.bytes() < static_cast<bytes_t>(sizeof there)) return {};
    std::memcpy(&there, old.data(), sizeof there);
    if (there.head_sum != there.sum() || there.source_bytes != head_.source_bytes ||
        there.width_and_delimiter != head_.width_and_delimiter || there.scanned < 0 ||
        there.scanned >= there.source_bytes || there.documents < 0 ||
        old.bytes() < 64 + there.documents * detail::bytes_of_end)
      return {};
    std::uint64_t sum = 0;
    for (index_t d = 0; d < there.documents; ++d) {
      std::uint64_t word = 0;
      std::memcpy(&word, old.data() + 64 + d * detail::bytes_of_end, static_cast<std::size_t>(detail::bytes_of_end));
      sum += mix_word(word, static_cast<std::uint64_t>(d));
    }
    if (sum != there.ends_sum) return {};
    return there;
  }

  detail::delimiter_scan scan_;
  std::string source_name_, map_name_;
  index_t width_;
  detail::file_handle source_, part_;
  std::unique_ptr<page_of_file> buffer_;
  std::vector<std::byte> ends_;
  std::size_t used_ = 0;  // of their bytes, how many are not written yet
  bytes_t written_ = 64;
  detail::offset_map_head head_;
  bool done_ = false;
};

/// Builds the map of a file, from where it was left.
inline void build_offset_map(const std::string& source, const std::string& map, const document_form& form = {}) {
  for (offset_map_builder builder(source, map, form); builder.advance();) {
  }
}

}  // namespace reshard
