// SPDX-License-Identifier: Apache-2.0
// Where the documents of a file end, in a file beside it that is mapped and never read whole: six bytes a document.
// What writes one is job/build_offset_map.hpp.
// Builds on: base/digest.hpp, job/documents.hpp, job/detail/delimiter_scan.hpp, job/detail/mapped_file.hpp.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>

#include <reshard/base/digest.hpp>
#include <reshard/job/detail/delimiter_scan.hpp>
#include <reshard/job/detail/mapped_file.hpp>
#include <reshard/job/documents.hpp>

namespace reshard {

namespace detail {

static_assert(std::endian::native == std::endian::little, "an offset map is little-endian");

/// The first 64 bytes of an offset map.
struct offset_map_head {
  char magic[8] = {'r', 's', 'h', 'd', 'o', 'c', 's', '2'};
  std::int64_t documents = 0;     // ends that follow
  std::int64_t tokens = 0;        // the last of them
  std::int64_t source_bytes = 0;  // of the whole file
  std::int64_t scanned = 0;       // of these, how many were gone through
  std::uint64_t width_and_delimiter = 0;
  std::uint64_t ends_sum = 0;  // sum over d of mix_word(end d, d)
  std::uint64_t head_sum = 0;  // sum over i of mix_word(word i, i), of the words before it

  std::uint64_t sum() const {
    std::uint64_t words[7], sum = 0;
    std::memcpy(words, this, sizeof words);
    for (std::uint64_t i = 0; i < std::size(words); ++i) sum += mix_word(words[i], i);
    return sum;
  }
  static std::uint64_t form_of(const document_form& f) {
    return mix_word(static_cast<std::uint64_t>(f.width), 0) + mix_word(f.delimiter, 1);
  }
};
static_assert(sizeof(offset_map_head) == 64);

inline constexpr index_t bytes_of_end = 6, bytes_behind_ends = 2;  // so that eight bytes can be read of any end
inline constexpr index_t most_tokens = (index_t{1} << 48) - 1;

inline index_t end_at(const std::byte* ends, index_t d) {
  std::uint64_t word = 0;
  std::memcpy(&word, ends + d * bytes_of_end, sizeof word);
  return static_cast<index_t>(word & ((std::uint64_t{1} << 48) - 1));
}

}  // namespace detail

/// The offset map of a file of documents, mapped. Its head, its size and the sum of all ends are looked at first: a map
/// that is damaged or cut short is refused by its name.
class offset_map {
 public:
  explicit offset_map(const std::string& path) : file_(path) {
    const auto wrong = [&](const auto&... why) { refuse("offset map ", path, ": ", why...); };
    detail::offset_map_head head;
    if (file_.bytes() < static_cast<bytes_t>(sizeof head))
      wrong("it has ", file_.bytes(), " bytes, and its head alone has 64");
    std::memcpy(&head, file_.data(), sizeof head);
    const detail::offset_map_head ours;
    if (std::memcmp(head.magic, ours.magic, 7) != 0) wrong("it is no offset map");
    if (head.magic[7] != ours.magic[7]) wrong("it is of an earlier or later form than rshdocs2; build it again");
    if (head.head_sum != head.sum()) wrong("its head is damaged");
    if (head.scanned != head.source_bytes)
      wrong("it was left when ", head.scanned, " of ", head.source_bytes,
            " bytes were gone through; build it to its end");
    const index_t fit = (file_.bytes() - 64) / detail::bytes_of_end;
    if (head.documents != fit || file_.bytes() != 64 + fit * detail::bytes_of_end + detail::bytes_behind_ends)
      wrong("its ", file_.bytes(), " bytes do not hold the ends of ", head.documents, " documents and no more");
    std::uint64_t sum = 0;
    index_t before = 0;
    bool ascend = true;
    for (index_t d = 0; d < head.documents; ++d) {
      const index_t here = detail::end_at(file_.data() + 64, d);
      sum += mix_word(static_cast<std::uint64_t>(here), static_cast<std::uint64_t>(d));
      ascend = ascend && before < here;
      before = here;
    }
    std::uint16_t behind = 0;
    std::memcpy(&behind, file_.data() + 64 + head.documents * detail::bytes_of_end, sizeof behind);
    if (sum != head.ends_sum || !ascend || before != head.tokens || behind != 0)
      wrong("the ends of its ", head.documents, " documents are damaged");
    count_ = head.documents;
    tokens_ = head.tokens;
    source_bytes_ = head.source_bytes;
    form_ = head.width_and_delimiter;
    path_ = path;
  }

  index_t count() const { return count_; }
  index_t tokens() const { return tokens_; }
  /// [t_d, t_(d+1))
  interval tokens_of(index_t d) const {
    if (d < 0 || d >= count_) refuse("offset map ", path_, ": there is no document ", d, " of ", count_);
    return {d > 0 ? end(d - 1) : 0, end(d)};
  }
  /// The document of a token.
  document_place find(index_t token) const {
    return find_document(
        count_, [this](index_t d) { return end(d); }, token);
  }

  /// Refuses a file that this is not the map of: by its size, and where some 64 of its documents do not end as they
  /// should, or end before. That is no proof: what changed between them is not seen.
  void require_of(const std::string& path, const document_form& form) const {
    if (detail::offset_map_head::form_of(form) != form_)
      refuse("offset map ", path_, ": it was built of tokens of another width or delimiter than ", form.width,
             " bytes and ", form.delimiter);
    const detail::mapped_file source(path);
    if (source.bytes() != source_bytes_)
      refuse("offset map ", path_, ": ", path, " has ", source.bytes(), " bytes, and had ", source_bytes_,
             " when the map was built");
    if (tokens_ != source.bytes() / form.width)
      refuse("offset map ", path_, ": it tells of ", tokens_, " tokens, and ", path, " has ",
             source.bytes() / form.width);
    const auto token_at = [&](index_t token) {
      std::uint64_t found = 0;
      std::memcpy(&found, source.data() + token * form.width, static_cast<std::size_t>(form.width));
      return found;
    };
    for (index_t i = 0; i < 64 && count_ > 0; ++i) {
      const index_t d = floor_of_product(i, count_, 64);
      const interval tokens = tokens_of(d);
      if (d + 1 < count_ && token_at(tokens.end - 1) != form.delimiter)  // the last may lack its delimiter
        refuse("offset map ", path_, ": token ", tokens.end - 1, " of ", path, " is ", token_at(tokens.end - 1),
               " and ends no document; it is another file, or damaged");
      for (const index_t token : {tokens.begin, tokens.begin + (tokens.size() - 1) / 2, tokens.end - 2})
        if (token >= tokens.begin && token < tokens.end - 1 && token_at(token) == form.delimiter)
          refuse("offset map ", path_, ": token ", token, " of ", path,
                 " ends a document, and is within one; it is another file, or damaged");
    }
  }

 private:
  index_t end(index_t d) const { return detail::end_at(file_.data() + 64, d); }

  detail::mapped_file file_;
  index_t count_ = 0, tokens_ = 0;
  bytes_t source_bytes_ = 0;
  std::uint64_t form_ = 0;
  std::string path_;
};

}  // namespace reshard
