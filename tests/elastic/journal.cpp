// SPDX-License-Identifier: Apache-2.0
// The file that a served store lives by, against bytes made by hand: what is written and when it is on the disk, what
// is read back, torn or damaged, who may open it, and what it says when the disk fails.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <reshard/elastic/served/journal.hpp>

#include "../support/own_folder.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using detail::store_journal;
using detail::store_request;
using detail::words_of;
using kind = store_request::kind;
using ms = patience;

namespace {

/// What is asked of the disk, a letter each: read, write, sync of a file, truncation, naming, lock, sync of a folder;
/// reads or writes in a row are one. A call may fail, or move few bytes.
struct watched_disk {
  std::string done;
  char fails = '-';
  std::size_t most = 0;  // so many bytes at most by a call, each second of which a signal interrupts; 0: as always
  int calls = 0;
  std::function<void()> before_name = {}, before_lock = {};
  std::string folder;    // the one whose sync counts
  bool shrinks = false;  // the next read finds the end of the file

  bool begins(char what) {
    const bool goes_on = (what == 'r' || what == 'w') && !done.empty() && done.back() == what;
    if (!goes_on) done += what;
    if (fails == what) errno = EIO;
    return fails != what;
  }
  ssize_t moves(char what, long number, int file, void* bytes, std::size_t count, off_t at) {
    if (!begins(what)) return -1;
    if (what == 'r' && std::exchange(shrinks, false)) {
      errno = EINTR;  // of an earlier call
      return 0;
    }
    if (most != 0 && ++calls % 2 == 1) {
      errno = EINTR;
      return -1;
    }
    return ::syscall(number, file, bytes, most == 0 ? count : std::min(count, most), at);
  }
};
watched_disk* disk = nullptr;  // none: as always

/// Watches while it lives.
struct watch : watched_disk {
  watch() { disk = this; }
  watch(const watch&) = delete;
  ~watch() { disk = nullptr; }
};

}  // namespace

/// These take the place of the C library's.
extern "C" ssize_t pread(int file, void* to, std::size_t count, off_t at) {
  return disk == nullptr ? ::syscall(SYS_pread64, file, to, count, at)
                         : disk->moves('r', SYS_pread64, file, to, count, at);
}
extern "C" ssize_t write(int file, const void* from, std::size_t count) {
  return disk == nullptr || file <= 2 ? ::syscall(SYS_write, file, from, count)
                                      : disk->moves('w', SYS_write, file, const_cast<void*>(from), count, 0);
}
extern "C" int fdatasync(int file) {
  if (disk != nullptr && !disk->begins('s')) return -1;
  return static_cast<int>(::syscall(SYS_fdatasync, file));
}
extern "C" int fsync(int file) {
  struct stat told = {}, folder = {};
  const bool right = disk != nullptr && ::fstat(file, &told) == 0 && ::stat(disk->folder.c_str(), &folder) == 0 &&
                     told.st_ino == folder.st_ino;
  if (disk != nullptr && !disk->begins(right ? 'f' : '?')) return -1;
  return static_cast<int>(::syscall(SYS_fsync, file));
}
extern "C" int ftruncate(int file, off_t size) noexcept {
  if (disk != nullptr && !disk->begins('t')) return -1;
  return static_cast<int>(::syscall(SYS_ftruncate, file, size));
}
extern "C" int rename(const char* from, const char* to) noexcept {
  if (disk != nullptr && !disk->begins('n')) return -1;
  if (disk != nullptr && disk->before_name) disk->before_name();
  return static_cast<int>(::syscall(SYS_rename, from, to));
}
extern "C" int flock(int file, int how) noexcept {
  if (disk != nullptr && !disk->begins('l')) return -1;
  const int result = static_cast<int>(::syscall(SYS_flock, file, how));
  if (disk != nullptr && disk->before_lock) disk->before_lock();
  return result;
}

namespace {

const std::string magic = "reshard store 2\n";

std::string number(std::uint64_t n) {
  std::string bytes;
  for (int i = 0; i < 8; ++i, n /= 256) bytes += static_cast<char>(n % 256);
  return bytes;
}
/// Length, FNV-1a of 64 bits that begins with its basis xor the place, and the questions.
std::string record(const std::string& questions, std::size_t at) {
  std::uint64_t sum = 14695981039346656037u ^ at;
  for (const char c : questions) sum = (sum ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return number(questions.size()) + number(sum) + questions;
}
std::string file_of(const std::vector<std::string>& records) {
  std::string all = magic;
  for (const std::string& one : records) all += record(one, all.size());
  return all;
}
std::string swap_of(const std::string& key, const std::string& value, std::uint64_t expected = 0, lease_id lease = 0) {
  return words_of(store_request{.what = kind::swap, .key = key, .value = value, .revision = expected, .lease = lease});
}
const std::string counts_of_nothing = words_of(store_request{.what = kind::counts});

/// A folder with a journal, and the state of who opened it.
struct one_file {
  explicit one_file(const std::string& bytes = {}) {
    if (!bytes.empty()) put(bytes);
  }
  void put(const std::string& bytes) {
    journal.reset();
    std::ofstream(path, std::ios::binary) << bytes;
  }
  void open_of(const std::string& bytes) {
    put(bytes);
    open();
  }
  std::string bytes() const {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  bool there(const std::string& name) const {
    struct stat told = {};
    return ::stat(name.c_str(), &told) == 0;
  }
  void open() {
    journal.reset();
    state = store_state();
    journal = std::make_unique<store_journal>(path, state);
  }
  /// What another store says that opens it too.
  std::string second() const {
    store_state other;
    return testing::refused([&] { store_journal(path, other); });
  }

  testing::own_folder folder;
  std::string path = folder.path + "/journal";
  store_state state;
  std::unique_ptr<store_journal> journal;
};

/// The sentence of an error of the system; "fine" where there is none.
template <class Act>
std::string error_of(Act&& act) {
  try {
    act();
  } catch (const std::system_error& error) {
    return error.what();
  }
  return "fine";
}

bool contains(const std::string& all, const std::string& part) { return all.find(part) != all.npos; }

/// A lease, keys of it and of none, one of which was removed: three records, the second of two questions.
const std::vector<std::string> three = {
    counts_of_nothing,
    words_of(store_request{.what = kind::lease, .time = ms(70)}) + swap_of("a", "1", 0, 1),
    swap_of("b", "2"),
    words_of(store_request{.what = kind::remove, .key = "b", .revision = 2}),
};
/// Where records of `three` end.
std::vector<std::size_t> ends_of_three() {
  std::vector<std::size_t> ends = {magic.size()};
  for (const std::string& one : three) ends.push_back(ends.back() + 16 + one.size());
  return ends;
}

}  // namespace

TEST_CASE("a journal begins with its form and the counts of nothing; what is kept stands behind, as it was said") {
  one_file f;
  const mode_t masked = ::umask(0);
  f.open();
  ::umask(masked);
  struct stat told = {};
  CHECK(::stat(f.path.c_str(), &told) == 0);
  CHECK((told.st_mode & 0777) == 0644);
  CHECK(f.bytes() == file_of({counts_of_nothing}));
  CHECK(f.journal->bytes() == f.bytes().size());
  f.journal->append(swap_of("a", "1"));
  f.journal->append(swap_of("b", "2") + swap_of("c", "3"));
  CHECK(f.bytes() == file_of({counts_of_nothing, swap_of("a", "1"), swap_of("b", "2") + swap_of("c", "3")}));
  CHECK(f.journal->bytes() == f.bytes().size());
  CHECK_FALSE(f.there(f.path + ".new"));
}

TEST_CASE("who opens a journal asks itself all that it has, each once, and goes on behind it") {
  one_file f(file_of(three));
  f.open();
  CHECK(f.bytes() == file_of(three));
  CHECK(f.journal->bytes() == f.bytes().size());
  CHECK(f.state.revision() == 3);
  CHECK(f.state.last_lease() == 1);
  CHECK(f.state.list("").all == std::vector<stored>{{"a", "1", 1}});
  CHECK(f.state.leases().at(1).ends == ms(70));  // time stands still
  std::vector<std::string> four = three;
  four.push_back(swap_of("c", "3"));
  f.journal->append(four.back());
  CHECK(f.bytes() == file_of(four));
  f.open();
  CHECK(f.state.read("c") == stored{"c", "3", 4});
}

TEST_CASE("what was written last and not whole is cut off, wherever it was torn") {
  const std::string whole = file_of(three);
  const std::vector<std::size_t> ends = ends_of_three();
  const std::array<std::uint64_t, 5> revisions = {0, 0, 1, 2, 3};
  one_file f;
  for (std::size_t n = magic.size(); n <= whole.size(); ++n) {
    f.open_of(whole.substr(0, n));
    std::size_t good = 0;
    while (good + 1 < ends.size() && ends[good + 1] <= n) ++good;
    CHECK(f.state.revision() == revisions[good]);
    CHECK(f.bytes() == whole.substr(0, ends[good]));
    CHECK(f.journal->bytes() == ends[good]);
    const std::string more = swap_of("more", "x");
    f.journal->append(more);
    CHECK(f.bytes() == whole.substr(0, ends[good]) + record(more, ends[good]));
  }
}

TEST_CASE("a file that was torn within its first bytes begins anew; another's is refused and left as it is") {
  one_file f;
  for (std::size_t n = 0; n < magic.size(); ++n) {
    f.open_of(magic.substr(0, n));
    CHECK(f.bytes() == file_of({counts_of_nothing}));
  }
  for (const std::string foreign :
       {"x", "reshard store 3", "reshard store 1\n", "reshard store 1\nand more than that"}) {
    CHECK_REFUSED(f.open_of(foreign),
                  "the file " + f.path + " is no journal of a store; another name, or away with it");
    CHECK(f.bytes() == foreign);
  }
}

TEST_CASE("what is damaged before the last record is refused and left as it is; of the last one it is torn") {
  one_file f;
  const std::string whole = file_of(three);
  const std::vector<std::size_t> ends = ends_of_three();
  for (std::size_t at = magic.size(); at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] ^= 1;
    f.put(damaged);
    const std::size_t good = *std::prev(std::upper_bound(ends.begin(), ends.end(), at));
    if (good == ends[3]) {
      f.open();
      CHECK(f.state.revision() == 2);
      CHECK(f.bytes() == whole.substr(0, good));
      continue;
    }
    CHECK_REFUSED(f.open(), "the journal " + f.path + " is damaged at byte " + std::to_string(good) + " of " +
                                std::to_string(whole.size()) + ", before its end; what was answered is lost");
    CHECK(f.bytes() == damaged);
  }
}

TEST_CASE("behind what is torn a record is whole only at its own place, be it the very next byte or the last ones") {
  const std::string begun = file_of({counts_of_nothing}), said = swap_of("a", "1");
  one_file f;
  for (const std::size_t between : {1u, 2u, 30u}) {
    f.put(begun + std::string(between, 'x') + record(said, begun.size() + between));
    CHECK_REFUSED(f.open(), "is damaged at byte " + std::to_string(begun.size()));
  }
  for (const std::size_t place : {std::size_t{0}, begun.size() - 1, begun.size(), begun.size() + 31}) {
    f.open_of(begun + std::string(30, 'x') + record(said, place));  // a copy of another place's
    CHECK(f.bytes() == begun);
  }
  // lengths that are no record's, or longer than the file, and would be as a sum of 64 bits
  for (const std::string& none : {record("", begun.size()), std::string(100, '\0'), std::string(100, '\xFF'),
                                  number(~std::uint64_t{0} - 20) + std::string(40, 'x'), number(1) + number(0)}) {
    f.open_of(begun + none);
    CHECK(f.bytes() == begun);
    CHECK(f.state.revision() == 0);
  }
  for (std::size_t more = 1; more <= 33; ++more) {  // the sum is right, and the length is not
    f.open_of(begun + number(said.size() + more) + record(said, begun.size()).substr(8));
    CHECK(f.bytes() == begun);
  }
  const std::string lengths = number(50) + number(40) + std::string(100, 'x');  // that could be records', and are not
  f.put(begun + lengths + record(said, begun.size() + lengths.size()));
  CHECK_REFUSED(f.open(), "is damaged at byte");
  f.put(begun + "x" + record("y", begun.size() + 1));  // of one byte, at the end
  CHECK_REFUSED(f.open(), "is damaged at byte");
}

TEST_CASE("a journal that is written anew says what the state is, and no more") {
  one_file f(file_of(three));
  f.open();
  CHECK(f.state.lease(ms(90), ms(5)) == 2);
  CHECK(f.state.swap("c", "4", 0, 2) == 4);
  CHECK(f.state.swap("d", "5", 0, no_lease) == 5);
  std::ofstream(f.path + ".new") << "of a store that died as it wrote anew";
  f.journal->rewrite(f.state);
  const std::string said =
      words_of(store_request{.what = kind::counts, .revision = 5, .lease = 2}) +
      words_of(store_request{.what = kind::grant, .lease = 1, .time = ms(70)}) +
      words_of(store_request{.what = kind::grant, .lease = 2, .time = ms(90)}) +
      words_of(store_request{.what = kind::put, .key = "a", .value = "1", .revision = 1, .lease = 1}) +
      words_of(store_request{.what = kind::put, .key = "c", .value = "4", .revision = 4, .lease = 2}) +
      words_of(store_request{.what = kind::put, .key = "d", .value = "5", .revision = 5});
  CHECK(f.bytes() == file_of({said}));
  CHECK(f.journal->bytes() == f.bytes().size());
  CHECK_FALSE(f.there(f.path + ".new"));
  f.journal->append(swap_of("e", "6"));
  CHECK(f.bytes() == file_of({said, swap_of("e", "6")}));
  f.open();
  CHECK(f.state.list("").all == std::vector<stored>{{"a", "1", 1}, {"c", "4", 4}, {"d", "5", 5}, {"e", "6", 6}});
  CHECK(f.state.leases().at(2).keys == std::set<std::string>{"c"});
}

TEST_CASE("a journal has grown beyond a mebibyte and four times what it was, also since it was opened") {
  one_file f;
  f.open();
  CHECK_FALSE(f.journal->grown());
  const auto grow_to = [&](std::size_t bytes) { f.journal->append(std::string(bytes - f.journal->bytes() - 16, 'x')); };
  grow_to(std::size_t{1} << 20);
  CHECK(f.journal->bytes() == std::size_t{1} << 20);
  CHECK_FALSE(f.journal->grown());
  grow_to((std::size_t{1} << 20) + 17);
  CHECK(f.journal->grown());
  CHECK(f.state.swap("a", std::string(300'000, 'v'), 0, no_lease) == 1);
  for (const std::size_t more : {0u, 3u, 4u, 5u}) {
    f.journal->rewrite(f.state);
    CHECK_FALSE(f.journal->grown());
    const std::size_t least = f.journal->bytes();
    CHECK(least > 300'000);
    CHECK(least < 301'000);
    grow_to(4 * least + more);
    CHECK(f.journal->grown() == (more >= 4));
  }
  f.journal->rewrite(f.state);
  f.open();  // what it has then is as short as it was
  const std::size_t opened = f.journal->bytes();
  grow_to(4 * opened + 3);
  CHECK_FALSE(f.journal->grown());
  f.journal->rewrite(f.state);
  f.open();
  grow_to(4 * opened + 4);
  CHECK(f.journal->grown());
}

TEST_CASE("what is kept is on the disk before anybody is answered, and a new name before the old file goes") {
  one_file f;
  watch w;
  w.folder = f.folder.path + "/";
  f.open();
  CHECK(w.done == "llwsnf");  // both files are locked, the new one is whole, then named, then that is on the disk
  w.done.clear();
  f.journal->append(swap_of("a", "1"));
  CHECK(w.done == "ws");
  w.done.clear();
  f.open();
  CHECK(w.done == "lrsf");
  w.done.clear();
  f.journal->rewrite(f.state);
  CHECK(w.done == "lwsnf");
  f.journal.reset();
  f.put(f.bytes() + "torn");
  w.done.clear();
  f.open();
  CHECK(w.done == "lrtsf");
}

TEST_CASE("a journal of the working folder, by its name alone") {
  one_file f;
  const owned_descriptor here(::open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  REQUIRE(::chdir(f.folder.path.c_str()) == 0);
  {
    watch w;
    w.folder = f.folder.path;
    store_journal journal("journal", f.state);
    CHECK(w.done == "llwsnf");
  }
  CHECK(::fchdir(here.number()) == 0);
  CHECK(f.bytes() == file_of({counts_of_nothing}));
}

TEST_CASE("one store has a journal, as it writes it anew too; another may have it afterwards") {
  one_file f;
  f.open();
  const std::string no = "the journal " + f.path + " is another store's, which runs; one process serves a journal";
  CHECK(contains(f.second(), no));
  bool asked = false;
  {
    watch w;
    w.before_name = [&] { asked = contains(f.second(), no); };
    f.journal->rewrite(f.state);
  }
  CHECK(asked);
  CHECK(contains(f.second(), no));
  f.journal->append(swap_of("a", "1"));
  f.journal.reset();
  CHECK(f.second() == "accepted");
}

TEST_CASE("who opens a file that loses its name to another one meanwhile has no journal") {
  one_file f;
  for (const bool another : {true, false}) {
    f.put(file_of(three));
    const std::string other = f.folder.path + "/other";
    std::ofstream(other) << file_of(three);
    watch w;
    w.before_lock = [&] {  // when it has the lock already
      if (another) ::syscall(SYS_rename, other.c_str(), f.path.c_str());
      else ::unlink(f.path.c_str());
    };
    CHECK_REFUSED(f.open(), "the journal " + f.path + " is another store's, which runs");
    CHECK(f.state.revision() == 0);
  }
}

TEST_CASE("a disk that moves few bytes at a time, and is interrupted, has all of them in the end") {
  one_file f;
  std::string said = swap_of("a", std::string(3000, 'v'));
  watch w;
  w.most = 7;
  f.open();
  f.journal->append(said);
  f.open();
  CHECK(f.state.read("a")->value == std::string(3000, 'v'));
  w.most = 0;
  CHECK(f.bytes() == file_of({counts_of_nothing, said}));
}

TEST_CASE("a disk that fails is an error that says at what") {
  const std::vector<std::pair<char, std::string>> ways = {{'w', "cannot write the journal "},
                                                          {'s', "cannot sync the journal "},
                                                          {'n', "cannot name the journal "},
                                                          {'f', "cannot sync the folder of the journal "}};
  one_file f;
  for (const auto& [fails, words] : ways) {
    f.open_of(file_of(three));
    watch w;
    w.folder = f.folder.path;
    w.fails = fails;
    CHECK(contains(error_of([&] { f.journal->rewrite(f.state); }), "reshard: " + words + f.path));
    if (fails == 'w' || fails == 's')
      CHECK(contains(error_of([&] { f.journal->append(swap_of("a", "1")); }), "reshard: " + words + f.path));
  }
  for (const auto& [fails, words] :
       {std::pair('r', "cannot read the journal "), std::pair('t', "cannot cut off the torn end of the journal "),
        std::pair('s', "cannot sync the journal "), std::pair('f', "cannot sync the folder of the journal ")}) {
    f.put(file_of(three) + "torn");
    watch w;
    w.folder = f.folder.path;
    w.fails = fails;
    CHECK(contains(error_of([&] { f.open(); }), "reshard: " + (words + f.path)));
  }
  f.put(file_of(three));
  {
    watch w;
    w.fails = 'l';
    CHECK_REFUSED(f.open(), "is another store's, which runs");
  }
  {
    watch w;
    w.shrinks = true;
    CHECK(contains(error_of([&] { f.open(); }), "reshard: cannot read the journal " + f.path));
  }
  f.open();
  CHECK(f.bytes() == file_of(three));
  store_state none;
  CHECK(contains(error_of([&] { store_journal("/nowhere/journal", none); }),
                 "reshard: cannot open the journal /nowhere/journal: No such file"));
}

TEST_CASE("a folder that cannot be opened is not synced, and that is no error") {
  one_file f(file_of(three));
  rlimit before = {};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const int next = owned_descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC)).number();  // the next one's number
  const rlimit one_more{static_cast<rlim_t>(next) + 1, before.rlim_max};
  watch w;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &one_more) == 0);
  const std::string said = error_of([&] { f.open(); });
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(said == "fine");
  CHECK(w.done == "lrs");
}
