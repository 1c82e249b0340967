// SPDX-License-Identifier: Apache-2.0
#include "restart.hpp"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../../examples/trainer/sockets.hpp"
#include "parts.hpp"
#include "run.hpp"

namespace train {

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
std::string path_of(const std::string& folder, const char* what, rank_t rank) {
  return folder + "/" + what + "." + std::to_string(rank);
}

/// Writes what a rank has and no lower one has, and waits until the disk has it.
void write_parts(const std::string& path, rank_state& state) {
  const std::vector<std::byte> all = packed(state);
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) refuse("--restart: ", path, " cannot be written");
  for (std::size_t at = 0; at < all.size();) {
    const ssize_t n = ::write(file, all.data() + at, all.size() - at);
    if (n <= 0) refuse("--restart: ", path, " cannot be written");
    at += static_cast<std::size_t>(n);
  }
  if (::fsync(file) != 0) refuse("--restart: ", path, " is not on the disk");
  ::close(file);
}

/// Reads from all files of the world before what this rank has now.
void read_parts(const std::string& folder, const computed_holding& before, rank_state& now_here) {
  for (rank_t q = 0; q < before.ranks(); ++q) {
    const std::string path = path_of(folder, "rank", q);
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat about {};
    if (file < 0 || ::fstat(file, &about) != 0) refuse("--restart: ", path, " cannot be read");
    const auto size = static_cast<std::size_t>(about.st_size);
    void* const mapped = size == 0 ? nullptr : ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
    if (mapped == MAP_FAILED) refuse("--restart: ", path, " cannot be read");
    const auto* from = static_cast<const std::byte*>(mapped);
    each_part(before, q, [&](int state, const tensor_id& t, const box<3>& part) {
      now_here.tensors().meet({state, t, part}, [&](const bound_box& piece) {
        each_row_of(piece, part, from,
                    [](const std::byte* source, std::byte* to, std::size_t n) { std::memcpy(to, source, n); });
      });
      from += part.volume() * width(adam[state].type);
    });
    if (mapped != nullptr) ::munmap(mapped, size);
    ::close(file);
  }
}

/// Where the others are: each writes its ports to the folder, the last of it by a new name.
std::vector<std::string> meet(const std::string& folder, const char* what, rank_t me, rank_t ranks, int port) {
  const std::string mine = path_of(folder, what, me);
  std::ofstream(mine + ".new") << port;
  std::filesystem::rename(mine + ".new", mine);
  std::vector<std::string> all;
  for (rank_t r = 0; r < ranks; ++r) {
    int theirs = 0;
    while (!(std::ifstream(path_of(folder, what, r)) >> theirs))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    all.push_back("127.0.0.1:" + std::to_string(theirs));
  }
  return all;
}

/// Waits for all, and says whether each ended well.
bool all_ended_well(std::size_t count) {
  bool right = true;
  for (int status = 0; count > 0; --count) right = ::wait(&status) > 0 && status == 0 && right;
  return right;
}

/// Starts this program again, as process `rank` of the world to come.
void start(const std::vector<std::string>& words, rank_t rank) {
  if (::fork() != 0) return;
  std::vector<std::string> all = words;
  all.insert(all.end(), {"--restarted", std::to_string(rank)});
  std::vector<char*> arguments;
  for (std::string& w : all) arguments.push_back(w.data());
  arguments.push_back(nullptr);
  ::execv("/proc/self/exe", arguments.data());
  ::_exit(127);
}

std::vector<std::string> own_words() {
  std::vector<std::string> words;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

/// The pause of a restart: from when all of the old world come to it until all of the new one have their state.
double restarted_seconds(const options& asked, const job& all) {
  const phase &from = all.phases[0], &to = all.phases[1];
  int go[2];
  if (::pipe2(go, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  for (rank_t r = 0; r < from.layout.ranks(); ++r)
    if (::fork() == 0) {
      char begin = 0;
      rank_state state(computed_holding(from.layout), r, "a rank", pages_are::committed);
      state.initialize(all.set.seed);
      ::close(go[1]);
      if (::read(go[0], &begin, 1) < 0) ::_exit(1);  // until the parent closes its end
      write_parts(path_of(asked.restart, "rank", r), state);
      ::_exit(0);
    }
  std::this_thread::sleep_for(std::chrono::seconds(1));  // until each has its state
  const double begin = now();
  ::close(go[1]), ::close(go[0]);
  if (!all_ended_well(static_cast<std::size_t>(from.layout.ranks())))
    throw std::runtime_error("a process that wrote failed");
  const std::vector<std::string> words = own_words();
  for (rank_t r = 0; r < to.layout.ranks(); ++r) start(words, r);
  // each tells of being ready by a file, and then goes
  for (rank_t r = 0; r < to.layout.ranks(); ++r)
    while (!std::filesystem::exists(path_of(asked.restart, "ready", r))) {
      if (now() - begin > 60) throw std::runtime_error("a process that reads is not ready after 60 s");
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  const double seconds = now() - begin;
  if (!all_ended_well(static_cast<std::size_t>(to.layout.ranks())))
    throw std::runtime_error("a process that read failed");
  return seconds;
}

}  // namespace

int read_restarted(const options& asked, const job& all) {
  const phase& to = all.phases.at(1);
  const auto rank = static_cast<rank_t>(asked.restarted);
  listening_socket for_switches("127.0.0.1:0"), for_sums("127.0.0.1:0");
  rank_state state(computed_holding(to.layout), rank, "a rank", pages_are::reserved);
  read_parts(asked.restart, computed_holding(all.phases[0].layout), state);
  const rank_t ranks = to.layout.ranks();
  const auto switches = meet(asked.restart, "switch", rank, ranks, for_switches.port()),
             sums = meet(asked.restart, "sum", rank, ranks, for_sums.port());
  const std::unique_ptr<world> here = socket_world(rank, switches, std::move(for_switches), sums, std::move(for_sums));
  std::vector<rank_t> devices;
  for (rank_t r = 0; r < ranks; ++r) devices.push_back(r);
  groups with = groups::make(*here, to.layout, rank, devices);
  std::ofstream(path_of(asked.restart, "ready", rank)) << "ready";
  // of what was read, the digest; rank 0 writes it where the parent compares it with the first one's
  std::vector<double> sum;
  for (const std::uint64_t s : state.digest().of)
    for (int shift = 0; shift < 64; shift += 16) sum.push_back(static_cast<double>(s >> shift & 0xFFFF));
  with.all->sum(sum);
  digests all_of{};
  for (std::size_t i = 0; i < sum.size(); ++i) all_of.of[i / 4] += static_cast<std::uint64_t>(sum[i]) << (16 * (i % 4));
  rank_state whole(computed_holding(space(to.layout.model(), degrees{})), 0, "one rank", pages_are::committed);
  whole.initialize(all.set.seed);
  here->gather({});
  return all_of == whole.digest() ? 0 : 1;
}

int compare_with_restart(const options& asked, const job& all) {
  if (all.phases.size() != 2) refuse("--restart compares one switch; ", all.phases.size() - 1, " are asked for");
  namespace fs = std::filesystem;
  fs::create_directories(asked.restart);
  std::vector<double> restarts;
  for (int i = 0; i < 5; ++i) {
    for (const fs::directory_entry& e : fs::directory_iterator(asked.restart)) fs::remove(e.path());
    restarts.push_back(restarted_seconds(asked, all));
  }
  std::vector<double> switches;
  for (int i = 0; i < 5; ++i) switches.push_back(run_on_threads(all, {}).changes.at(0).seconds);
  std::sort(restarts.begin(), restarts.end()), std::sort(switches.begin(), switches.end());
  std::printf("{\"restart_seconds\":%.6f,\"switch_seconds\":%.6f,\"ratio\":%.4f,\"folder\":\"%s\"}\n", restarts[2],
              switches[2], switches[2] / restarts[2], asked.restart.c_str());
  return 0;
}

}  // namespace train
