// SPDX-License-Identifier: Apache-2.0
// Where text goes that may be long: a buffer, written to a file whenever it has grown large, or kept as a string.
// Numbers are appended without a stream or a format string: regions of a large world are hundreds of thousands of
// lines.
// Builds on: base/integer.hpp.
#pragma once

#include <charconv>
#include <concepts>
#include <cstdio>
#include <string>
#include <string_view>

#include <reshard/base/integer.hpp>

namespace reshard::io {

/// A buffer of text, written to its file whenever it holds 1 MiB; without a file it keeps everything.
class text_output {
 public:
  text_output() = default;  // keeps everything: text()
  explicit text_output(std::FILE* file) : file_(file) {}
  text_output(const text_output&) = delete;
  text_output& operator=(const text_output&) = delete;

  text_output& operator<<(std::string_view text) {
    buffer_ += text;
    if (file_ != nullptr && buffer_.size() >= flush_bytes) flush();
    return *this;
  }
  text_output& operator<<(const char* text) { return *this << std::string_view(text); }
  text_output& operator<<(std::integral auto number) {
    char digits[24];
    return *this << std::string_view(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
  }
  text_output& operator<<(bool) = delete;
  text_output& operator<<(char) = delete;
  text_output& operator<<(double number) {  // as JSON writes one
    char digits[32];
    return *this << std::string_view(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
  }

  const std::string& text() const { return buffer_; }

  /// Writes what is buffered; refused where the file takes no more. Nothing is flushed by a destructor.
  void flush() {
    if (file_ == nullptr) return;
    const bool written =
        std::fwrite(buffer_.data(), 1, buffer_.size(), file_) == buffer_.size() && std::fflush(file_) == 0;
    if (!written) refuse("the output cannot be written: the disk is full, or nobody reads");
    buffer_.clear();
  }

 private:
  static constexpr std::size_t flush_bytes = std::size_t{1} << 20;
  std::FILE* file_ = nullptr;
  std::string buffer_;
};

/// The items of a JSON list or object: writes a comma before every one but the first.
class json_items {
 public:
  explicit json_items(text_output& out) : out_(&out) {}
  text_output& next() {
    *out_ << separator_;
    separator_ = ",";
    return *out_;
  }

 private:
  text_output* out_;
  const char* separator_ = "";
};

}  // namespace reshard::io
