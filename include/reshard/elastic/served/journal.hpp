// SPDX-License-Identifier: Apache-2.0
// The file that a served store lives by: every question that changed it, in order, on the disk before it is answered.
// A store that starts again asks itself all of them. What was written last and not whole was never answered, and is cut
// off; a file that is damaged before its end is refused.
// Builds on: base/digest.hpp, elastic/served/words.hpp, transport/socket.hpp (a descriptor with an owner).
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <reshard/base/digest.hpp>
#include <reshard/elastic/served/words.hpp>
#include <reshard/transport/socket.hpp>

namespace reshard::detail {

/// A record is 16 bytes, the length and a checksum of where it stands and what follows, and that: all questions of one
/// answer's time.
class store_journal {
 public:
  /// Opens or begins a journal, and asks `state` all that it has.
  store_journal(std::string path, store_state& state) : path_(std::move(path)), file_(opened(path_, O_CREAT)) {
    const std::string all = whole();
    if (all.size() < magic.size() && magic.starts_with(all)) {  // new, or the first bytes were torn
      rewrite(state);
      return;
    }
    if (!all.starts_with(magic)) refuse("the file ", path_, " is no journal of a store; another name, or away with it");
    const std::size_t good = replay(all, state);
    if (good < all.size()) must(::ftruncate(file_.number(), static_cast<off_t>(good)), "cut off the torn end of");
    bytes_ = rewritten_ = good;
    must(::fdatasync(file_.number()), "sync");
    sync_folder();
  }

  /// Keeps questions, with all that came before, whatever happens to the process or the machine.
  void append(std::string_view requests) {
    write_all(record(requests, bytes_));
    must(::fdatasync(file_.number()), "sync");
  }
  /// Whether most of it is of the past.
  bool grown() const { return bytes_ > least_rewritten && bytes_ / 4 > rewritten_; }
  /// The shortest that says what the state is, in the place of what there was.
  void rewrite(const store_state& state) {
    const std::string fresh_path = path_ + ".new";
    ::unlink(fresh_path.c_str());
    owned_descriptor fresh = opened(fresh_path, O_CREAT | O_EXCL);
    std::swap(file_, fresh);  // the old one's lock goes once this one has its name
    bytes_ = 0;
    write_all(std::string(magic));
    write_all(record(said_by(state), bytes_));
    must(::fdatasync(file_.number()), "sync");
    must(std::rename(fresh_path.c_str(), path_.c_str()), "name");
    sync_folder();
    rewritten_ = bytes_;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  static constexpr std::string_view magic = "reshard store 2\n";
  static constexpr std::size_t head = 16, least_rewritten = std::size_t{1} << 20, most_summed = std::size_t{1} << 28;

  // FNV-1a, 64 bits, of bytes that begin at a place of the file
  static std::uint64_t checksum(std::string_view bytes, std::size_t at) { return fnv1a(bytes, fnv1a_basis ^ at); }
  static std::string record(std::string_view requests, std::size_t at) {
    std::string to;
    write_number(to, requests.size());
    write_number(to, checksum(requests, at));
    return to.append(requests);
  }
  static std::string said_by(const store_state& state) {
    using kind = store_request::kind;
    std::string all = words_of({.what = kind::counts, .revision = state.revision(), .lease = state.last_lease()});
    for (const auto& [lease, l] : state.leases())
      all += words_of({.what = kind::grant, .lease = lease, .time = l.time});
    for (const auto& [key, e] : state.keys())
      all += words_of({.what = kind::put, .key = key, .value = e.value, .revision = e.revision, .lease = e.lease});
    return all;
  }

  // What a whole record at a place says; nothing where there is none.
  static std::string_view record_at(std::string_view all, std::size_t at, std::size_t* left = nullptr) {
    if (all.size() - at < head) return {};
    frame_reader numbers(all.substr(at, head));
    const std::uint64_t bytes = numbers.number(), sum = numbers.number();
    if (bytes == 0 || bytes > all.size() - at - head) return {};
    const std::string_view requests = all.substr(at + head, bytes);
    if (left != nullptr) *left -= std::min<std::size_t>(*left, bytes);
    return checksum(requests, at) == sum ? requests : std::string_view();
  }
  // How many bytes of it are whole. Time stands still: leases begin when the store does. Behind what was torn there is
  // no whole record, as nothing is appended to it; behind what was damaged there is, but for the last one.
  std::size_t replay(const std::string& all, store_state& state) const {
    std::size_t at = magic.size();
    for (;;) {
      const std::string_view requests = record_at(all, at);
      if (requests.empty()) break;
      for (frame_reader from(requests); !from.empty();) answer(state, read_request(from), patience{});
      at += head + requests.size();
    }
    std::size_t left = most_summed;  // of what is torn it may take that much to see that there is none
    for (std::size_t behind = at + 1; behind < all.size() && left > 0; ++behind)
      if (!record_at(all, behind, &left).empty())
        refuse("the journal ", path_, " is damaged at byte ", at, " of ", all.size(),
               ", before its end; what was answered is lost");
    return at;
  }

  owned_descriptor opened(const std::string& path, int how) const {
    owned_descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_APPEND | how, 0644));
    if (!file.open()) throw_socket_error("cannot open the journal " + path);
    struct stat mine = {}, named = {};  // who rewrites it gives its name to another file
    if (::flock(file.number(), LOCK_EX | LOCK_NB) != 0 || ::fstat(file.number(), &mine) != 0 ||
        ::stat(path.c_str(), &named) != 0 || mine.st_ino != named.st_ino)
      refuse("the journal ", path, " is another store's, which runs; one process serves a journal");
    return file;
  }
  void must(int result, const char* what) const {
    if (result != 0) throw_socket_error(std::string("cannot ") + what + " the journal " + path_);
  }
  void write_all(const std::string& bytes) {
    for (std::size_t gone = 0; gone < bytes.size();) {
      const ssize_t wrote = ::write(file_.number(), bytes.data() + gone, bytes.size() - gone);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) throw_socket_error("cannot write the journal " + path_);
      gone += static_cast<std::size_t>(wrote);
    }
    bytes_ += bytes.size();
  }
  std::string whole() const {
    struct stat told = {};
    must(::fstat(file_.number(), &told), "look at");
    std::string all(static_cast<std::size_t>(told.st_size), '\0');
    for (std::size_t came = 0; came < all.size();) {
      const ssize_t n = ::pread(file_.number(), all.data() + came, all.size() - came, static_cast<off_t>(came));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw_socket_error("cannot read the journal " + path_);
      came += static_cast<std::size_t>(n);
    }
    return all;
  }
  // A name is on the disk once its folder is.
  void sync_folder() const {
    const std::size_t slash = path_.rfind('/');
    const std::string folder = slash == path_.npos ? "." : path_.substr(0, slash + 1);
    const owned_descriptor at(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (at.open()) must(::fsync(at.number()), "sync the folder of");
  }

  std::string path_;
  owned_descriptor file_;
  std::size_t bytes_ = 0, rewritten_ = 0;
};

}  // namespace reshard::detail
