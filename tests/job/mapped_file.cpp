// SPDX-License-Identifier: Apache-2.0
// Files as memory: what is told of one, that all of it is there, and that nothing stays open or mapped.
#include <doctest/doctest.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <reshard/job/detail/mapped_file.hpp>

#include "../io/process.hpp"
#include "../support/refused.hpp"
#include "../support/sanitized.hpp"
#include "../support/tries.hpp"

using reshard::detail::mapped_file;
using open_file = reshard::detail::file_handle;  // <fcntl.h> has one of that name
using testing::refused, testing::scratch;

namespace {

bool is_open(int number) { return ::fcntl(number, F_GETFD) != -1; }
/// The number that the next file gets: the least that none has.
int next_number() {
  const int number = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::close(number);
  return number;
}
bool is_mapped(const void* at) {
  unsigned char unused = 0;
  return ::mincore(const_cast<void*>(at), 1, &unused) == 0;
}
std::string text_of(const mapped_file& file) {
  return {reinterpret_cast<const char*>(file.data()), static_cast<std::size_t>(file.bytes())};
}

}  // namespace

TEST_CASE("a file that is open: its length, when it was written to the nanosecond, and which paths lead to it") {
  const scratch room;
  const std::string path = room.file("file", "12345"), copy = room.file("copy", "12345");
  const std::string other = (room.folder / "other name").string(), link = (room.folder / "link").string();
  testing::fs::create_hard_link(path, other);
  testing::fs::create_symlink(path, link);
  for (const long nanoseconds : {0L, 1L, 987'654'321L, 999'999'999L}) {
    const timespec times[] = {{5, 6}, {1'234'567'890, nanoseconds}};
    REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
    CHECK(open_file(path, O_RDONLY).written() == std::int64_t{1'234'567'890'000'000'000} + nanoseconds);
  }
  const open_file file(path, O_RDONLY);
  CHECK(file.bytes() == 5);
  for (const std::string& leads : {path, other, link}) CHECK(file.is_at(leads));
  for (const std::string& leads_not : {copy, path + "x", room.folder.string(), std::string()})
    CHECK_FALSE(file.is_at(leads_not));
  CHECK(open_file(room.file("empty", ""), O_RDONLY).bytes() == 0);
}

TEST_CASE("a file is closed at its end, by whoever has it then, and no other program inherits it") {
  const scratch room;
  const std::string path = room.file("file", "12345");
  const int least = next_number();
  {
    std::optional<open_file> first(std::in_place, path, O_RDONLY);
    CHECK(first->number() == least);
    CHECK((::fcntl(least, F_GETFD) & FD_CLOEXEC) != 0);
    open_file second(std::move(*first));
    CHECK(first->number() == -1);
    first.reset();
    CHECK(second.number() == least);
    CHECK(second.bytes() == 5);
    CHECK(second.written() == open_file(path, O_RDONLY).written());
    CHECK(second.is_at(path));
    CHECK(is_open(least));
  }
  CHECK_FALSE(is_open(least));
  CHECK(refused([&] { const open_file none(path + "x", O_RDONLY); }) ==
        "reshard: " + path + "x cannot be opened: No such file or directory");
  for (const std::string& odd : {room.folder.string(), std::string("/dev/null")}) {
    CHECK(refused([&] { const open_file none(odd, O_RDONLY); }) ==
          "reshard: " + odd + " is no file of bytes that stay where they are");
    CHECK(next_number() == least);
  }
}

TEST_CASE("a file may have the number 0, where nothing else has, and is closed as others are") {
  const scratch room;
  const std::string path = room.file("file", "12345");
  const int kept = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  ::close(STDIN_FILENO);
  std::string sentence;
  int number = -1;
  {
    std::optional<open_file> first;
    sentence = refused([&] { number = first.emplace(path, O_RDONLY).number(); });
  }
  const bool left_open = is_open(STDIN_FILENO);
  if (kept >= 0) {
    ::dup2(kept, STDIN_FILENO);
    ::close(kept);
  }
  CHECK(sentence == "accepted");
  CHECK(number == 0);
  CHECK_FALSE(left_open);
}

TEST_CASE("what is made may be read and written by all whom the process lets") {
  const scratch room;
  const std::string path = (room.folder / "made").string();
  const mode_t before = ::umask(0);
  { const open_file made(path, O_RDWR | O_CREAT); }
  ::umask(before);
  struct stat told {};
  REQUIRE(::stat(path.c_str(), &told) == 0);
  CHECK((told.st_mode & 07777) == 0666);
}

TEST_CASE("a file as memory has its bytes, those that are written meanwhile too, until its end") {
  const scratch room;
  const int least = next_number();
  for (const std::size_t size : {1u, 4095u, 4096u, 4097u, 70'000u}) {
    std::string content(size, 'x');
    content.back() = 'y';
    const std::string path = room.file("file", content);
    std::optional<mapped_file> first(std::in_place, path);
    CHECK(next_number() == least);  // the mapping needs no open file
    const std::byte* const at = first->data();
    CHECK(text_of(*first) == content);
    mapped_file second(std::move(*first));
    CHECK(first->data() == nullptr);
    CHECK(first->bytes() == 0);
    first.reset();
    CHECK(second.data() == at);
    std::fstream(path, std::ios::binary | std::ios::in | std::ios::out) << "z";
    content.front() = 'z';
    CHECK(text_of(second) == content);
    std::optional<mapped_file> third(std::move(second));
    CHECK(is_mapped(at));
    third.reset();
    CHECK_FALSE(is_mapped(at));
  }
  const mapped_file nothing(room.file("empty", ""));
  CHECK(nothing.bytes() == 0);
  CHECK(nothing.data() == nullptr);
  CHECK(refused([&] { const mapped_file none(room.folder.string()); }) ==
        "reshard: " + room.folder.string() + " is no file of bytes that stay where they are");
}

TEST_CASE("a file for which there is no room in memory is refused by its name") {
  if (testing::sanitized || testing::under_sanitizer()) return;
  const scratch room;
  const std::string path = room.file("file", "");
  testing::fs::resize_file(path, std::uintmax_t{1} << 32);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_AS, &before) == 0);
  const rlimit less{rlim_t{1} << 28, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_AS, &less) == 0);
  const std::string sentence = refused([&] { const mapped_file all(path); });
  ::setrlimit(RLIMIT_AS, &before);
  CHECK(sentence == "reshard: " + path + " cannot be mapped: Cannot allocate memory");
}
