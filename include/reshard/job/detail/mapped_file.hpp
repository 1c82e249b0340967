// SPDX-License-Identifier: Apache-2.0
// A file as memory that is only read.
// Builds on: base/integer.hpp and Linux's mmap.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <reshard/base/integer.hpp>

namespace reshard::detail {

/// An open file; it is closed at the end.
class file_handle {
 public:
  /// Delegates, so that what is refused is closed too.
  file_handle(const std::string& path, int flags) : file_handle(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    struct stat told {};
    if (number_ < 0 || ::fstat(number_, &told) != 0) refuse(path, " cannot be opened: ", std::strerror(errno));
    if (!S_ISREG(told.st_mode)) refuse(path, " is no file of bytes that stay where they are");
    bytes_ = told.st_size;
    device_ = told.st_dev, file_ = told.st_ino;
    written_ = told.st_mtim.tv_sec * std::int64_t{1'000'000'000} + told.st_mtim.tv_nsec;
  }
  file_handle(file_handle&& other) noexcept
      : number_(std::exchange(other.number_, -1)), bytes_(other.bytes_), written_(other.written_),
        device_(other.device_), file_(other.file_) {}
  file_handle& operator=(file_handle&&) = delete;
  ~file_handle() {
    if (number_ >= 0) ::close(number_);
  }
  int number() const { return number_; }
  /// When it was opened.
  bytes_t bytes() const { return bytes_; }
  /// When it was last written, in nanoseconds since 1970.
  std::int64_t written() const { return written_; }
  /// Whether a path leads to it.
  bool is_at(const std::string& path) const {
    struct stat told {};
    return ::stat(path.c_str(), &told) == 0 && told.st_dev == device_ && told.st_ino == file_;
  }

 private:
  explicit file_handle(int number) : number_(number) {}

  int number_;
  bytes_t bytes_ = 0;
  std::int64_t written_ = 0;
  dev_t device_ = 0;
  ino_t file_ = 0;
};

/// All bytes of a file. Nobody may make it shorter meanwhile.
class mapped_file {
 public:
  explicit mapped_file(const std::string& path) {
    const file_handle file(path, O_RDONLY);
    bytes_ = file.bytes();
    if (bytes_ == 0) return;
    void* const at = ::mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ, MAP_SHARED, file.number(), 0);
    if (at == MAP_FAILED) refuse(path, " cannot be mapped: ", std::strerror(errno));
    data_ = static_cast<const std::byte*>(at);
  }
  mapped_file(mapped_file&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  mapped_file& operator=(mapped_file&&) = delete;
  ~mapped_file() {
    if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), static_cast<std::size_t>(bytes_));
  }
  const std::byte* data() const { return data_; }
  bytes_t bytes() const { return bytes_; }

 private:
  const std::byte* data_ = nullptr;
  bytes_t bytes_ = 0;
};

}  // namespace reshard::detail
